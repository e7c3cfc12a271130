"""The tables of a sweep, in Markdown and for a terminal: our scores beside the published ones.

A cell is the mean over seeds, the standard deviation (with n - 1) and the number of seeds. Below a
table, each row is compared with its reference by Welch's test.
"""

import re
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from bert_jax.config.durations import duration
from bert_jax.scores.significance import Welch, welch
from bert_jax.tools.sweep.plan import Column, Table
from bert_jax.tools.sweep.record import Plan

# Results of one kind: an object of results.jsonl each.
Results = Sequence[dict[str, Any]]
_LEVEL = 0.05
_FEW_SEEDS = 5


def markdown(plan: Plan, results: Results) -> str:
    """Returns the report."""
    total = sum(job.kind == "train" for job in plan.jobs)
    lines = [f"# {plan.title}", ""]
    lines += [f"{len(results)} of {total} runs are complete. {plan.source}", ""]
    lines += [plan.note, ""] if plan.note else []
    for table in plan.tables:
        lines += _section(table, results)
    lines += ["## Runs", "", *_grid(*runs_table(results)), ""]
    return "\n".join(lines)


def terminal(plan: Plan, results: Results) -> str:
    """Returns the report with aligned columns and without the marks of Markdown."""
    lines, block = [], []
    for line in [*markdown(plan, results).splitlines(), ""]:
        if line.startswith("|"):
            block.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        lines += _aligned(block)
        block = []
        text = re.sub(r"^#+ ", "", line)
        lines += textwrap.wrap(text, 100, break_on_hyphens=False) or [""]
    return "\n".join(lines).rstrip() + "\n"


def scores_of(results: Results, system: str, column: Column) -> list[float]:
    """Returns the scores of a cell, one for each seed, in the units of the table."""
    found = (
        item["metrics"].get(column.metric)
        for item in results
        if item["system"] == system and item["task"] == column.task
    )
    return [value * column.scale for value in found if value is not None]


def _section(table: Table, results: Results) -> list[str]:
    lines = [f"## {table.title}", "", *_grid(*scores_table(table, results)), ""]
    lines += [table.note, ""] if table.note else []
    for column in table.columns:
        lines += _unknown_score(column, results)
    compared = list(comparisons(table, results))
    if compared:
        header = ["compared", "task", "difference", "p", ""]
        lines += [*_grid(header, compared), "", explain(table, results, compared), ""]
    return lines


def _unknown_score(column: Column, results: Results) -> list[str]:
    """Returns a line if no run of the column's task has its score."""
    found = {name for item in results if item["task"] == column.task for name in item["metrics"]}
    if not found or column.metric in found:
        return []
    names = ", ".join(sorted(found))
    return [f"No run of {column.task} has the score {column.metric!r}; there are: {names}.", ""]


def scores_table(table: Table, results: Results) -> tuple[list[str], list[list[str]]]:
    has_paper = [any((row, c.heading) in table.paper for row in table.rows) for c in table.columns]
    header = [""]
    for column, paper in zip(table.columns, has_paper, strict=True):
        header += [column.heading, *(["paper"] if paper else [])]
    best = [_best(table, results, c) if table.mark_best else None for c in table.columns]
    rows = []
    for system, title in table.rows.items():
        cells = [title]
        for column, paper, best_system in zip(table.columns, has_paper, best, strict=True):
            cell = show(scores_of(results, system, column))
            cells.append(f"**{cell}**" if system == best_system else cell)
            if paper:
                value = table.paper.get((system, column.heading))
                cells.append("" if value is None else f"{value:g}")
        rows.append(cells)
    return header, rows


def show(scores: Sequence[float]) -> str:
    """Returns "84.30 ± 0.25 (3)": mean, standard deviation, number of seeds."""
    if not scores:
        return "-"
    mean = f"{statistics.fmean(scores):.2f}"
    if len(scores) == 1:
        return f"{mean} (1)"
    return f"{mean} ± {statistics.stdev(scores):.2f} ({len(scores)})"


def _best(table: Table, results: Results, column: Column) -> str | None:
    means = {
        system: statistics.fmean(scores)
        for system in table.rows
        if (scores := scores_of(results, system, column))
    }
    if not means:
        return None
    choose = min if column.lower_is_better else max
    return choose(means, key=means.__getitem__)


def comparisons(table: Table, results: Results) -> Iterable[list[str]]:
    """Yields a row for each comparison of a system with its reference that has scores."""
    for system, title in table.rows.items():
        if not (reference := table.reference_of(system)):
            continue
        for column in table.columns:
            ours = scores_of(results, system, column)
            theirs = scores_of(results, reference, column)
            if ours and theirs:
                difference = statistics.fmean(ours) - statistics.fmean(theirs)
                name = f"{title} - {table.rows.get(reference, reference)}"
                yield [name, column.heading, f"{difference:+.2f}", *verdict(welch(ours, theirs))]


def verdict(test: Welch | None) -> tuple[str, str]:
    """Returns the p-value and the mark of a comparison."""
    if test is None:
        return "", "not testable"
    p = f"{test.p_value:.3f}" if test.p_value >= 0.001 else "< 0.001"
    return p, "* exceeds the spread" if test.p_value < _LEVEL else "within the spread"


def explain(table: Table, results: Results, comparisons: Sequence[Sequence[str]]) -> str:
    parts = []
    if tested := sum(row[3] != "" for row in comparisons):
        parts.append(
            f"p is that of Welch's test, two-sided, over seeds. If no system differed, about"
            f" {tested * _LEVEL:.1f} of the {tested} tests would have p < {_LEVEL} by chance."
        )
    counts = [
        len(scores)
        for system in table.rows
        for column in table.columns
        if (scores := scores_of(results, system, column))
    ]
    if min(counts) < 2:
        parts.append("With one seed there is no spread to compare a difference with.")
    if tested and min(counts) < _FEW_SEEDS:
        parts.append(
            f"With fewer than {_FEW_SEEDS} seeds the test finds large differences only:"
            " 'within the spread' does not mean that two systems are equal."
        )
    parts.append(
        "Seeds of fine-tuning that start from the same pre-trained model do not show how much"
        " another pre-training would differ."
    )
    return " ".join(parts)


def runs_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Returns the table of what the runs of each system and task cost."""
    header = ["system", "task", "runs", "parameters", "steps", "tokens a run", "time a run"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for item in results:
        groups.setdefault((item["system"] or item["name"], item["task"]), []).append(item)
    rows = []
    for (system, task), items in groups.items():
        rows.append(
            [
                system,
                task,
                str(len(items)),
                _range(item["parameters"] for item in items),
                _range(item["steps"] for item in items),
                f"{statistics.fmean(item['tokens'] for item in items):,.0f}",
                duration(statistics.fmean(item["seconds"] for item in items)),
            ]
        )
    return header, rows


def _range(values: Iterable[int | None]) -> str:
    known = sorted({value for value in values if value is not None})
    if not known:
        return "-"
    return f"{known[0]:,}" + (f" to {known[-1]:,}" if len(known) > 1 else "")


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _aligned(block: list[list[str]]) -> list[str]:
    """Returns the lines of a table for a terminal."""
    if not block:
        return []
    header, _, *rows = block
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    padded = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    )
    first, *rest = (line.replace("**", "") for line in padded)
    return [first, "-" * (sum(widths) + 2 * len(widths) - 2), *rest]
