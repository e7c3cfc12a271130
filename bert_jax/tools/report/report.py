"""The report of a run, or of several beside each other, as one HTML file."""

import os
from collections.abc import Sequence
from typing import Any

from bert_jax.files.atomic import write_text
from bert_jax.tools.pages.document import Section, columns, document, note, tiles
from bert_jax.tools.pages.markup import Content, tag
from bert_jax.tools.pages.scales import duration
from bert_jax.tools.pages.tables import opened, table
from bert_jax.tools.pages.titles import REPORT, title_of
from bert_jax.tools.report import curves, evaluated
from bert_jax.tools.report.corpus import corpus
from bert_jax.tools.report.settings import differences, settings
from bert_jax.tools.report.workdir import HELD_OUT, Workdir, load, metrics_of, names_of


def report(workdirs: Sequence[str], more: Sequence[Section] = ()) -> str:
    """Returns the page of the runs in these folders.

    Args:
      more: sections of a single run, after its curves.

    Raises:
      UserError: a folder holds no run.
    """
    runs = [load(path) for path in workdirs]
    return _one(runs[0], more) if len(runs) == 1 else _several(runs)


def write_report(workdir: str) -> str:
    """Writes report.html of a complete run; returns a line that says where, or why not.

    A page is worth less than the run that it shows: no error leaves this function.
    """
    path = os.path.join(workdir, REPORT)
    try:
        write_text(path, report([workdir]))
    except Exception as error:  # noqa: BLE001
        return f"report     not written: {type(error).__name__}: {error}"
    return f"report     {path}"


def _one(run: Workdir, more: Sequence[Section]) -> str:
    sections = [Section("Scores", evaluated.scores([run], [run.name]) if run.seeds else None)]
    sections += [*_curve_sections([run]), *more]
    if run.manifest:
        sections.append(Section("Data", corpus(run.manifest)))
    elif run.config.has_corpus:
        sections.append(Section("Data", note("The folder of the prepared data is missing.")))
    sections.append(Section("Predictions", evaluated.review(run)))
    sections.append(Section("What the layers know", evaluated.probes(run)))
    sections.append(Section("Time", _time(run)))
    sections.append(Section("Parameters", _parameters(run.members[0])))
    sections.append(Section("Settings", settings(run)))
    model = run.config.model
    sizes = f"{model.num_layers} layers, hidden size {model.hidden_size}"
    about = f"{run.config.task.name}; {model.name}, {sizes}; {model.vocab_size:,} tokens"
    lead = [
        tag("p.quiet", about),
        evaluated.verdict(run) or note(_NO_VERDICT),
        _newest(run) if run.config.has_corpus else None,
        tiles(_facts(run)),
    ]
    return document(run.name, [s for s in sections if s.body], lead=lead, footer=_FOOTER)


def _time(run: Workdir) -> Content:
    """Returns where the wall time of a run went, or that of each seed."""
    runs = [each for each in run.members if each.goodput]
    if not runs:
        return None
    names = list(runs[0].goodput["seconds"])
    rows = []
    for each in runs:
        wall, seconds = each.goodput["wall_seconds"], each.goodput["seconds"]
        shares = [f"{seconds[name] / wall:.1%}" for name in names]
        starts, stopped = each.goodput["starts"], each.goodput["stopped_seconds"]
        rows.append([each.name, *shares, duration(wall), str(starts), duration(stopped)])
    header = ["run", *names, "wall time", "starts", "stopped"]
    return [
        note(
            "Shares of the wall time of all starts; that of training is the goodput. Lost is what"
            " was done again after an interruption. The time between starts is not a part of it."
        ),
        table(header, rows, caption="Time", copy=True),
    ]


def _parameters(run: Workdir) -> Content:
    if not run.parameters:
        return None
    header = ["parameter", "shape", "dtype", "sharding", "size"]
    rows = [(*row[:-1], f"{row[-1]:,}") for row in run.parameters]
    shown = table(header, rows, caption="Parameters", text_columns=4, copy=True)
    return opened(f"{sum(row[-1] for row in run.parameters):,} parameters", shown)


def _several(runs: Sequence[Workdir]) -> str:
    names = names_of(runs)
    sections = [
        Section("Results", [_results(runs, names), evaluated.scores(runs, names)]),
        Section("Settings that differ", differences(runs)),
        *_curve_sections(runs),
    ]
    lead = tag("p.quiet", ", ".join(names))
    return document(f"{len(runs)} runs", sections, lead=lead, footer=_FOOTER)


_NO_VERDICT = (
    "There is no evaluation of this run with a verdict: bert_jax evaluate --workdir=DIR makes one."
)
_FOOTER = (
    "Point at a plot, or tap it, for values; the arrow keys move from point to point. A triangle"
    " above a plot is an event."
)


def _curve_sections(runs: Sequence[Workdir]) -> list[Section]:
    runs = [each for run in runs for each in run.members if each.rows]
    if not runs:
        return []
    return [
        Section("Curves", [curves.axis_switch(runs), columns(curves.learning(runs))]),
        Section("Optimization and speed", columns(curves.optimization(runs))),
    ]


def _newest(run: Workdir) -> Content:
    """Returns the metrics of the newest evaluation of a corpus."""
    rows = run.split(HELD_OUT)
    if not rows:
        return None
    found = {k: v for k, v in metrics_of(rows[-1]).items() if isinstance(v, float)}
    before = metrics_of(rows[0]) if rows[0]["step"] == 0 < rows[-1]["step"] else {}
    values = {
        title_of(name): _shown(name, value)
        + (f" (before: {_shown(name, before[name])})" if before.get(name) is not None else "")
        for name, value in found.items()
        if not curves.is_repeated(name, list(found), rows)
    }
    return [note(f"On held-out text, after step {rows[-1]['step']:,}:"), tiles(values)]


def _shown(name: str, value: float) -> str:
    return f"{value:.1%}" if curves.is_share(name) else f"{value:.4g}"


def _facts(run: Workdir) -> dict[str, str]:
    """Returns name -> value of the facts to show first."""
    facts: dict[str, str] = {}
    if not run.config.has_corpus:
        for metric in run.config.metrics:
            if spread := evaluated.spread_of(run, metric):
                facts[title_of(metric)] = spread
    done, planned = run.members[-1].steps, run.members[-1].all_steps
    facts["steps"] = f"{done:,}" if done == planned else f"{done:,} of {planned:,}"
    if run.seeds:
        facts["seeds"] = str(len(run.seeds))
    costs = [each.cost for each in run.members]
    seconds, tokens = (sum(cost.get(key, 0) for cost in costs) for key in ("seconds", "tokens"))
    if seconds:
        facts["tokens"] = f"{tokens:,.0f}"
        facts["training time"] = duration(seconds)
        facts["tokens per second"] = f"{tokens / seconds:,.0f}"
    if found := [each.goodput for each in run.members if each.goodput]:
        trained = sum(goodput["seconds"]["training"] for goodput in found)
        facts["goodput"] = f"{trained / sum(goodput['wall_seconds'] for goodput in found):.0%}"
    return facts


def _results(runs: Sequence[Workdir], names: Sequence[str]) -> Content:
    values: list[dict[str, Any]] = []
    for run in runs:
        held_out = run.split(HELD_OUT)
        if run.results.get("eval") and not run.config.has_corpus:
            names_of_metrics = (*run.config.metrics, "loss")
            values.append({name: run.results["eval"].get(name) for name in names_of_metrics})
        else:
            values.append(metrics_of(held_out[-1]) if held_out else {})
    metrics = {name: None for found in values for name, x in found.items() if isinstance(x, float)}
    header = ["run", *map(title_of, metrics), "steps", "tokens", "time"]
    rows = []
    for run, name, found in zip(runs, names, values, strict=True):
        shown = [f"{found[m]:.4g}" if found.get(m) is not None else "" for m in metrics]
        cost = run.cost
        spent = [f"{cost['tokens']:,}", duration(cost["seconds"])] if cost else ["", ""]
        rows.append([name, *shown, str(run.steps), *spent])
    return table(header, rows, caption="Results", copy=True)
