"""The report of a sweep as an HTML page: its tables, scores over seeds, and varied fields."""

import os
import statistics
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_jax.config.group import flatten
from bert_jax.files.atomic import write_text
from bert_jax.tools.pages.bars import Dots, dot_plot
from bert_jax.tools.pages.document import Section, columns, document, note
from bert_jax.tools.pages.markup import Content, Markup, tag
from bert_jax.tools.pages.plot import Line, line_plot
from bert_jax.tools.pages.tables import table
from bert_jax.tools.pages.titles import REPORT, title_of
from bert_jax.tools.sweep import record, report
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.plan import Column, Table
from bert_jax.tools.sweep.record import Plan
from bert_jax.tools.sweep.report import Results

_PRETRAINING = "pre-training steps"


def sweep_page(workdir: str) -> str:
    """Returns the page of the complete runs of a sweep.

    Raises:
      UserError: the folder holds no sweep.
    """
    plan = record.load_plan(workdir)
    found = record.collect(plan, workdir)
    sections = [Section(part.title, _table(part, plan, found)) for part in plan.tables]
    sections.append(Section("Runs", _runs(plan, found, workdir)))
    lead = [tag("p", report.progress(plan, found)), tag("p", plan.note) if plan.note else None]
    # The source is a line of Markdown, in which commands are code.
    parts = enumerate(plan.source.split("`"))
    source = [tag("code", part) if i % 2 else part for i, part in parts]
    return document(plan.title, sections, lead=lead, footer=source)


def write_page(workdir: str) -> str:
    """Writes report.html; returns a line that says where, or why not; raises nothing."""
    path = os.path.join(workdir, REPORT)
    try:
        write_text(path, sweep_page(workdir))
    except Exception as error:  # noqa: BLE001
        return f"report: not written: {type(error).__name__}: {error}"
    return f"report: {path}"


def _table(part: Table, plan: Plan, found: Results) -> Content:
    header, rows = report.scores_table(part, found)
    shown = [[_cell(cell) for cell in row] for row in rows]
    body: list[Content] = [
        table(["system", *header[1:]], shown, caption=part.title, copy=True),
        note("Means ± standard deviations over seeds, with their number."),
        note(part.note) if part.note else None,
        columns([*_dots(part, found), *_fields(part, plan, found)]),
    ]
    header, rows = compared = report.comparisons(part, found)
    if rows:
        names = [*header[:-1], "verdict"]
        body += [
            tag("h3", "Comparisons"),
            table(names, rows, caption="Comparisons", text_columns=2, copy=True),
            note(report.explain(part, found, compared)),
        ]
    return body


def _cell(text: str) -> Content:
    return tag("strong", text.strip("*")) if text.startswith("**") else text


def _dots(part: Table, found: Results) -> Iterable[Markup]:
    for column in part.columns:
        rows = [
            Dots(title, scores, paper=part.published(system, column))
            for system, title in part.rows.items()
            if (scores := report.scores_of(found, system, column))
        ]
        if rows:
            yield dot_plot(_title(column), rows)


def _title(column: Column) -> str:
    return f"{column.heading}: {title_of(column.metric)}"


# ---------------------------------------------------------------------------------- varied fields


def _fields(part: Table, plan: Plan, found: Results) -> Iterable[Markup]:
    """Yields a plot for each column and number that varies between runs with the same start."""
    scores = {item["name"]: item["metrics"] for item in found}
    for column in part.columns:
        groups: dict[tuple[str, str], list[tuple[dict[str, Any], float]]] = {}
        for job in plan.jobs:
            value = scores.get(job.name, {}).get(column.metric)
            if job.task == column.task and value is not None:
                numbers = _numbers_of(job)
                begun = job.snapshot[0] if job.snapshot else job.settings.get("init_from", "")
                same = groups.setdefault((job.config, str(begun) or "runs"), [])
                same.append((numbers, value * column.scale))
        names = sorted({n for items in groups.values() for n in _varied([x for x, _ in items])})
        for name in names:
            lines: list[Line] = []
            for color, ((_, begun), items) in enumerate(groups.items()):
                if name in _varied([numbers for numbers, _ in items]):
                    lines += _field_lines(name, items, os.path.basename(begun), color)
            small = "Points are runs; the line is their mean over all else that varies."
            yield line_plot(f"{_title(column)} by {name}", lines, few=True, note=small)


def _numbers_of(job: Job) -> dict[str, Any]:
    numbers = {
        name: value
        for name, value in flatten(job.settings)
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "seed"
    }
    return numbers | ({_PRETRAINING: job.snapshot[1]} if job.snapshot else {})


def _varied(items: Sequence[Mapping[str, Any]]) -> set[str]:
    return {name for name in items[0] if len({item.get(name) for item in items} - {None}) > 1}


def _field_lines(
    name: str, items: Sequence[tuple[Mapping[str, Any], float]], begun: str, color: int
) -> list[Line]:
    """Returns the runs as points, and the means of equal values as a line."""
    pairs = sorted((numbers[name], score) for numbers, score in items if name in numbers)
    places = sorted({x for x, _ in pairs})
    means = [statistics.fmean(score for x, score in pairs if x == place) for place in places]
    runs = Line(
        begun,
        {name: [x for x, _ in pairs]},
        [score for _, score in pairs],
        color,
        has_points=True,
        has_line=False,
    )
    return [runs, Line(f"{begun}, mean", {name: places}, means, color)]


# ------------------------------------------------------------------------------------------- runs


def _runs(plan: Plan, found: Results, workdir: str) -> Content:
    """Returns what the runs cost, and a link to the report of each that has one."""
    header, rows = report.runs_table(found)
    links = []
    for job in plan.jobs:
        if (record.folder_of(job.name, workdir) / REPORT).is_file():
            path = urllib.parse.quote(f"runs/{job.name}/{REPORT}")
            links.append(tag("li", tag("a", job.name, href=path)))
    return [
        table(header, rows, caption="Runs", text_columns=2, copy=True) if rows else None,
        [tag("h3", "Reports of the runs"), tag("ul.links", links)] if links else None,
        None if rows else note("No run is complete."),
    ]
