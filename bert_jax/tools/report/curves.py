"""The curves of one run, or of several on top of each other."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_jax.data.minimal_pairs import suite_metric
from bert_jax.tools.pages.document import switch
from bert_jax.tools.pages.markup import Content, Markup
from bert_jax.tools.pages.plot import Level, Line, Mark, line_plot
from bert_jax.tools.pages.titles import title_of
from bert_jax.tools.report.workdir import (
    HELD_OUT,
    TRAINING,
    Workdir,
    axes_of,
    metrics_of,
    names_of,
    place_of,
)

# Metrics of the optimization and of the speed: name in metrics.jsonl -> title.
_OPTIMIZATION = {
    "learning_rate": "Learning rate",
    "gradient_norm": "Norm of the gradient",
    "update_norm": "Norm of the update",
    "skipped_share": "Steps that were not finite",
    "tokens_per_second": "Tokens per second",
    "mfu": "Model FLOPs utilization",
    "waiting_for_data": "Time that waits for data",
}
# Metrics of `config.data.general`, whose words have other frequencies than those of the corpus.
_GENERAL = "general_"
_CAN_BE_LOG = {"gradient_norm", "update_norm"}
_SPREAD = 20.0  # ratio of the largest to the smallest from which an axis is logarithmic


def is_share(metric: str) -> bool:
    """Whether a metric is shown in percent."""
    return metric.endswith(("accuracy", "_share", "mfu", "waiting_for_data"))


def axis_switch(runs: Sequence[Workdir]) -> Markup | None:
    """Returns the control that selects the axis of all plots; None if there is no choice."""
    axes = _axes(runs)
    options = {axis: axis for axis in axes}
    return switch("axis", "Horizontal axis", options) if len(axes) > 1 else None


def learning(runs: Sequence[Workdir]) -> list[Content]:
    """Returns a plot for each metric; for several runs, one for each split."""
    plots: list[Content] = []
    for metric in _metric_names(runs):
        title, (levels, *others) = title_of(metric), [levels_of(run, metric) for run in runs]
        if len(runs) == 1:
            lines = _lines(runs, HELD_OUT, metric, ["held-out"], color=1)
            lines += _lines(runs, TRAINING, metric, ["training"])
            plots += _plot(title, lines, metric, marks_of(runs), levels)
            continue
        shared = levels if all(other == levels for other in others) else []
        for split, what in ((HELD_OUT, "held-out"), (TRAINING, "training")):
            lines = _lines(runs, split, metric, names_of(runs))
            plots += _plot(f"{title}, {what}", lines, metric, [], shared)
    return plots


def optimization(runs: Sequence[Workdir]) -> list[Content]:
    """Returns the plots of learning rate, norms and speed."""
    plots: list[Content] = []
    names = names_of(runs) if len(runs) > 1 else ["training"]
    for metric, title in _OPTIMIZATION.items():
        lines = _lines(runs, TRAINING, metric, names)
        values = [y for line in lines for y in line.y if y is not None]
        spreads = bool(values) and 0 < min(values) < max(values) / _SPREAD
        is_log = metric in _CAN_BE_LOG and spreads
        plots += _plot(title, lines, metric, marks_of(runs), is_log=is_log)
    return plots


def levels_of(run: Workdir, metric: str) -> list[Level]:
    """Returns what a model reaches with only the frequencies of tokens, pairs or answers."""
    baseline = run.results.get("baseline")
    if metric == next(iter(run.config.metrics), "") and baseline is not None:
        return [Level("constant prediction", baseline)]
    train, held_out = run.statistics(TRAINING), run.statistics(HELD_OUT)
    if not train or metric.startswith(_GENERAL):
        return []
    if run.config.distillation.teacher and (metric == "loss" or metric.startswith("weighted_")):
        return []
    pairs = held_out.get("random_next_share", train.get("random_next_share", 0.0))
    chance = -sum(p * math.log(p) for p in (pairs, 1 - pairs) if p > 0)
    unigram = Level("unigram entropy", train["unigram_entropy"])
    if metric in map(suite_metric, run.config.eval.suites):
        return [Level("chance", 0.5)]
    if metric == "next_sentence_accuracy":
        return [Level("constant prediction", max(pairs, 1 - pairs))]
    if metric == "next_sentence_loss":
        return [Level("entropy of the pairs", chance)]
    if metric == "loss" and any("next_sentence_loss" in row for row in run.rows):
        return [Level("unigram entropy + pairs", unigram.value + chance)]
    if metric == "loss" or metric.endswith("_lm_loss"):
        return [unigram]
    if metric.endswith("_lm_accuracy"):
        return [Level("most frequent token", train["most_frequent_token"]["share"])]
    return []


def marks_of(runs: Sequence[Workdir]) -> list[Mark]:
    """Returns resumptions, beginnings of phases, and steps that were not finite, of one run."""
    if len(runs) > 1:
        return []
    (run,) = runs
    events = [(start["step"], f"resumed after step {start['step']}") for start in run.starts[1:]]
    for phase in run.phases[1:]:
        step, what = phase.first_step, f"phase of {phase.sequence_length} tokens"
        what += f", {phase.task}" if phase.task else ""
        if phase.data_step < step:  # a stage of the masks, on the same rows
            what = f"{phase.max_predictions_per_seq} predictions per sequence"
        if 0 < step <= run.steps:
            events.append((step, f"{what} after step {step}"))
    marks = [Mark(text, run.places(step)) for step, text in events]
    return marks + [
        Mark(f"step {step} was not finite: not applied", run.places(step), is_bad=True)
        for step in run.skipped
    ]


def _metric_names(runs: Sequence[Workdir]) -> list[str]:
    """Returns the metrics to plot, those that select checkpoints first."""
    found: dict[str, None] = {}
    for run in runs:
        names: dict[str, None] = {}
        for row in (*run.split(HELD_OUT), *run.split(TRAINING)):
            names |= dict.fromkeys(metrics_of(row))
        if not run.config.has_corpus:  # no scores of single classes
            first = dict.fromkeys(run.config.get("metrics", ()))
            names = {n: None for n in (*first, *names) if n in first or "loss" in n}
        found |= names
    rows = [row for run in runs for row in run.rows]
    known = [name for name in found if name not in _OPTIMIZATION]
    return [name for name in known if not is_repeated(name, known, rows)]


def is_repeated(name: str, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a loss is another name of the only one: `loss` of a corpus, `task_loss` of a task."""
    is_general = name.startswith(_GENERAL)
    names = [n for n in names if n.startswith(_GENERAL) == is_general]
    others = [n for n in names if n != name and "loss" in n]
    if "loss" not in name or len(others) != 1:
        return False
    pairs = [(row[name], row[others[0]]) for row in rows if name in row and others[0] in row]
    is_total = name.removeprefix(_GENERAL) == "loss"
    is_weaker = name == "task_loss" or (is_total and others[0] != "task_loss")
    return is_weaker and bool(pairs) and all(a == b for a, b in pairs)


def _axes(runs: Sequence[Workdir]) -> tuple[str, ...]:
    return axes_of(row for run in runs for row in run.rows)


def _lines(
    runs: Sequence[Workdir], split: str, metric: str, names: Sequence[str], color: int = 0
) -> list[Line]:
    axes, lines = _axes(runs), []
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        rows = [row | (row.get("speed") or {}) for row in run.split(split)]
        found = [(row, row[metric]) for row in rows if metric in row]
        y = [v if v is not None and math.isfinite(v) else None for _, v in found]
        if any(value is not None for value in y):
            x = {axis: [place_of(row, axis) for row, _ in found] for axis in axes}
            lines.append(Line(name, x, y, color + number, has_points=split == HELD_OUT))
    return lines


def _plot(
    title: str,
    lines: Sequence[Line],
    metric: str,
    marks: Sequence[Mark],
    levels: Sequence[Level] = (),
    is_log: bool = False,
) -> Iterable[Content]:
    if lines:
        yield line_plot(
            title, lines, levels=levels, marks=marks, percent=is_share(metric), is_log=is_log
        )
