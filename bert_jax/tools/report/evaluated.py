"""What an evaluation found: verdict, scores over seeds, confusions, calibration, errors."""

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.scores.classification import Counts
from bert_jax.tools.pages.bars import Dots, bar_chart, dot_plot, heat_map, spread
from bert_jax.tools.pages.document import columns, note
from bert_jax.tools.pages.markup import Content, Markup, tag
from bert_jax.tools.pages.plot import Level, Line, line_plot
from bert_jax.tools.pages.tables import opened, table
from bert_jax.tools.pages.titles import title_of
from bert_jax.tools.report.workdir import Workdir

_GOOD = ("health: good", "health: fair")
_OPEN_ERRORS = 5
_MAX_CLASSES = 12  # of the bars, the most frequent
_MARKS = {"gold": "gold", "predicted": "wrong"}  # what is in both has no class


def verdict(run: Workdir) -> Markup | None:
    """Returns the health verdict of the newest evaluation that wrote one."""
    found = [lines for each in run.members if (lines := each.evaluation.get("verdict"))]
    if not found:
        return None
    bad = [last for *_, last in found if not last.startswith(_GOOD)]
    text, rows = (bad or found[0][-1:])[0].removeprefix("health: "), []
    if len(found) > 1:
        good, text = len(found) - len(bad), text.removeprefix("good, ")
        text = f"{good} of {len(found)} seeds have learned. {text[:1].upper()}{text[1:]}"
    else:
        text = text[:1].upper() + text[1:]
        cells = [re.split(r"\s{2,}", line.strip()) for line in found[0][:-1]]
        rows = [tag("tr", [tag("td", cell) for cell in line]) for line in cells]
    return tag(
        "div.verdict.bad" if bad else "div.verdict",
        tag("p", tag("strong", "Health: "), text),
        tag("div.scroll", tag("table", tag("caption", "Verdict"), rows)) if rows else None,
    )


def scores(runs: Sequence[Workdir], names: Sequence[str]) -> Content:
    """Returns the scores of one or several runs, with a point for each seed."""
    metrics: dict[str, None] = {}
    for run in runs:
        values = run.results.get("eval", {})
        metrics |= dict.fromkeys(m for m in run.config.get("metrics", ()) if m in values)
    sources = {run.config.get("published_in", "") for run in runs} - {""}
    plots = []
    for i, metric in enumerate(metrics):
        rows = []
        for run, name in zip(runs, names, strict=True):
            found = [s.results["baseline"] for s in (run, *run.seeds) if "baseline" in s.results]
            # The published value and the baseline are for the first metric.
            paper = run.config.get("published_score") or None if i == 0 else None
            baseline = found[0] if found and i == 0 else None
            if values := _scores_of(run, metric):
                rows.append(Dots(name, values, paper, baseline))
        small = [f"Paper: {source}. " for source in sorted(sources) if i == 0]
        if rows:
            plots.append(dot_plot(title_of(metric), rows, note=small))
    return columns(plots) if plots else None


def spread_of(run: Workdir, metric: str) -> str:
    """Returns "0.8123 ± 0.0121" over the seeds of a run; "" without scores."""
    values = _scores_of(run, metric)
    return spread(values.values()) if values else ""


def _scores_of(run: Workdir, metric: str) -> dict[str, float]:
    """Returns name of the seed -> score."""
    found = {each.name: each.results.get("eval", {}).get(metric) for each in run.members}
    return {name: score for name, score in found.items() if score is not None}


def probes(run: Workdir) -> list[Content]:
    """Returns a plot for each probed file: accuracy by layer."""
    plots: list[Content] = []
    for probe in run.probes:
        layers = {"layer": list(range(len(probe["layers"])))}
        line = Line("frozen vectors", layers, probe["layers"], has_points=True)
        levels = [
            Level("TF-IDF", probe["bag_of_words"]),
            Level("most frequent class", probe["constant"]),
        ]
        title = f"{probe['name']}: {probe['test']:,} texts, {probe['classes']} classes"
        plots.append(line_plot(title, [line], levels=levels, percent=True, few=True))
    return plots


def review(run: Workdir) -> list[Content]:
    """Returns what evaluation.json keeps of the predictions, of the first seed that has it."""
    seed = next((each for each in run.members if each.evaluation), None)
    if seed is None:
        return []
    found = seed.evaluation
    classes = {name: Counts(*numbers) for name, numbers in found.get("classes", {}).items()}
    plots: list[Content] = []
    if "confusion" in found:
        plots.append(heat_map("Confusion matrix", list(classes), found["confusion"]))
    if found.get("calibration"):
        plots.append(_calibration(found["calibration"]))
    if "values" in found:
        plots.append(_values(found["values"]))
    if found.get("layer_weights"):
        plots.append(_layers(run))
    if "classes" in found:
        often = sorted(classes, key=lambda name: -classes[name].gold)[:_MAX_CLASSES]
        f1 = {name: classes[name].f1 for name in often}
        plots.append(bar_chart("F1 by class", f1, percent=True))
    if not plots and not found.get("errors"):
        return []
    which = f" of {seed.name}" if run.seeds else ""
    about = f"The evaluation{which} after step {found['step']}, {found['examples']:,} examples."
    return [note(about), _fitted(found), columns(plots), _classes(classes), _errors(found)]


def _fitted(found: Mapping[str, Any]) -> Content:
    """Returns the thresholds and the temperature that were fitted on the evaluated file."""
    fitted, parts = found.get("fitted", {}), []
    if "temperature" in fitted:
        parts.append(f"Logits are divided by the temperature {fitted['temperature']:.3f}.")
    if thresholds := fitted.get("thresholds"):
        shown = sorted(thresholds.items(), key=lambda item: -item[1])[:_MAX_CLASSES]
        names = ", ".join(f"{name} {value:.3f}" for name, value in shown)
        parts.append(f"Thresholds: {names}{', ...' if len(thresholds) > len(shown) else ''}.")
    if not parts:
        return None
    return note(" ".join(["Fitted on this file, whose scores are therefore favorable.", *parts]))


def _calibration(bins: Sequence[Sequence[float]]) -> Markup:
    sure = [confidence for confidence, _, _ in bins]
    ideal = Line("as sure as right", {"probability": [0.0, 1.0]}, [0, 1], 1, is_reference=True)
    line = Line("answers", {"probability": sure}, [right for _, right, _ in bins], has_points=True)
    total = sum(count for *_, count in bins)
    gap = sum(count * abs(sure - right) for sure, right, count in bins) / total
    small = f"Share of correct answers against their probability; mean difference {gap:.1%}."
    header = ["mean probability", "correct", "answers"]
    counts = table(header, bins, caption="Answers by probability", text_columns=0)
    plot = line_plot("Calibration", [line, ideal], percent=True, note=small)
    return tag("div", plot, opened("Number of answers", counts))


def _values(pairs: Sequence[Sequence[float]]) -> Markup:
    pairs = sorted(map(tuple, pairs))
    low, high = min(map(min, pairs)), max(map(max, pairs))
    ideal = Line("equal", {"gold": [low, high]}, [low, high], 1, is_reference=True)
    gold, found = (list(side) for side in zip(*pairs, strict=True))
    points = Line("examples", {"gold": gold}, found, has_points=True, has_line=False)
    return line_plot("Predicted values", [points, ideal])


def _layers(run: Workdir) -> Markup:
    found = [weights for s in run.members if (weights := s.evaluation.get("layer_weights"))]
    layers = [f"layer {1 + i}" for i in range(run.config.model.num_layers)]
    names = ["embeddings", *layers][-len(found[0]) :]  # a mix always reads the last ones
    means = dict(zip(names, map(statistics.fmean, zip(*found, strict=True)), strict=True))
    small = "The learned weights of the scalar mix"
    small += f"; means over {len(found)} seeds." if len(found) > 1 else "."
    return bar_chart("Layer weights", means, percent=True, note=small)


def _classes(classes: Mapping[str, Counts]) -> Content:
    if not classes:
        return None
    rows = [
        [name, *(f"{share:.3f}" for share in (c.precision, c.recall, c.f1)), c.gold]
        for name, c in classes.items()
    ]
    header = ["class", "precision", "recall", "F1", "gold"]
    return [tag("h3", "Classes"), table(header, rows, caption="Scores of classes", copy=True)]


# ----------------------------------------------------------------------------------------- errors


def _errors(found: Mapping[str, Any]) -> Content:
    if not found.get("errors"):
        return None
    items = [_error(error) for error in found["errors"]]
    more = items[_OPEN_ERRORS:]
    has_spans = any(t["spans"] for error in found["errors"] for t in error["texts"])
    legend = [
        [tag("mark", "correct"), " · ", tag("mark.gold", "gold"), " · "],
        [tag("mark.wrong", "predicted"), " · ", tag("mark.gold.wrong", "both, but different")],
        "; a label after → is the predicted one",
    ]
    return [
        tag("h3", "Worst errors"),
        note(f"{found['wrong']:,} of {found['examples']:,} examples have an error."),
        note(legend) if has_spans else None,
        items[:_OPEN_ERRORS],
        opened(f"{len(more)} more", more) if more else None,
    ]


def _error(error: Mapping[str, Any]) -> Markup:
    sure = f" ({error['probability']:.1%})" if "probability" in error else ""
    gold, predicted = tag("strong", error["gold"]), tag("strong", error["predicted"])
    head = f"Example {error['id']}: ", "gold ", gold, ", predicted ", predicted, sure
    texts = [
        tag("div", tag("span.quiet", f"{t['name']}: ") if t["name"] else None, _marked(t))
        for t in error["texts"]
    ]
    return tag("div.text", tag("div.quiet", *head), texts)


def _marked(text: Mapping[str, Any]) -> list[Content]:
    """Returns a text with its spans, which may overlap, cut at the ends of all of them."""
    content, spans = text["text"], text["spans"]
    cuts = sorted({0, len(content), *(edge for start, stop, *_ in spans for edge in (start, stop))})
    parts: list[Content] = []
    for start, stop in zip(cuts, cuts[1:], strict=False):
        over = [span for span in spans if span[0] <= start and stop <= span[1]]
        piece = content[start:stop]
        if not over:
            parts.append(piece)
            continue
        sides = {what for _, _, what, _ in over}
        labels = [
            f"→ {label}" if what == "predicted" else label
            for _, end, what, label in sorted(over, key=lambda span: span[2] == "predicted")
            if end == stop and label
        ]
        classes = [name for side, name in _MARKS.items() if side in sides]
        small = tag("small", " ".join(labels)) if labels else None
        parts.append(tag(".".join(["mark", *classes]), piece, small))
    return parts
