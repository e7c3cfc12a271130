"""The tables of a sweep in Markdown: our scores beside the published ones.

A cell is the mean over seeds, the standard deviation (with n - 1) and the number of seeds. Below a
table, each row is compared with its reference by Welch's test.
"""

import statistics
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from bert_jax.scores.significance import welch
from bert_jax.tools.pages.scales import duration
from bert_jax.tools.sweep.plan import Column, Table
from bert_jax.tools.sweep.record import Plan

# Objects of `record.collect`.
Results = Sequence[dict[str, Any]]
# Header and rows of a table.
Grid = tuple[list[str], list[list[str]]]
_LEVEL = 0.05
_FEW_SEEDS = 5


def markdown(plan: Plan, results: Results) -> str:
    """Returns the report, which can be read on a terminal as it is."""
    parts = [f"# {plan.title}", f"{progress(plan, results)} {plan.source}", plan.note]
    for table in plan.tables:
        parts += [f"## {table.title}", _grid(scores_table(table, results)), table.note]
        parts += [_unknown_score(column, results) for column in table.columns]
        compared = comparisons(table, results)
        if compared[1]:
            parts += [_grid(compared), explain(table, results, compared)]
    parts += ["## Runs", _grid(runs_table(results))]
    wrapper = textwrap.TextWrapper(100, break_on_hyphens=False, break_long_words=False)
    wrapped = (p if p.startswith(("|", "#")) else wrapper.fill(p) for p in filter(None, parts))
    return "\n\n".join(wrapped) + "\n"


def progress(plan: Plan, results: Results) -> str:
    return f"{len(results)} of {len(plan.trainings)} runs are complete."


def scores_of(results: Results, system: str, column: Column) -> dict[str, float]:
    """Returns the scores of a cell in the units of the table: name of the run -> score."""
    found = {
        item["name"]: item["metrics"].get(column.metric)
        for item in results
        if item["system"] == system and item["task"] == column.task
    }
    return {name: value * column.scale for name, value in found.items() if value is not None}


def _unknown_score(column: Column, results: Results) -> str:
    """Returns a line if no run of the column's task has its score."""
    found = {name for item in results if item["task"] == column.task for name in item["metrics"]}
    if not found or column.metric in found:
        return ""
    names = ", ".join(sorted(found))
    return f"No run of {column.task} has the score {column.metric!r}; there are: {names}."


def scores_table(table: Table, results: Results) -> Grid:
    """Returns the cells of a table, the best of a column in bold if it is marked."""
    columns = [[system] for system in table.rows.values()]
    header = [""]
    for column in table.columns:
        scores = {s: [*scores_of(results, s, column).values()] for s in table.rows}
        means = {system: statistics.fmean(x) for system, x in scores.items() if x}
        choose = min if column.lower_is_better else max
        best = choose(means, key=means.__getitem__) if table.mark_best and means else None
        paper = {system: table.published(system, column) for system in table.rows}
        has_paper = any(value is not None for value in paper.values())
        header += [column.heading, *(["paper"] if has_paper else [])]
        for cells, system in zip(columns, table.rows, strict=True):
            cell = _shown(scores[system])
            cells.append(f"**{cell}**" if system == best else cell)
            if has_paper:
                value = paper[system]
                cells.append("" if value is None else f"{value:g}")
    return header, columns


def _shown(scores: Sequence[float]) -> str:
    """Returns "84.30 ± 0.25 (3)": mean, standard deviation, number of seeds."""
    if not scores:
        return "-"
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{statistics.fmean(scores):.2f}{spread} ({len(scores)})"


def comparisons(table: Table, results: Results) -> Grid:
    """Returns a row for each comparison of a system with its reference that has scores."""
    rows = []
    for system, title in table.rows.items():
        reference = table.reference_of(system)
        for column in table.columns if reference else ():
            ours, theirs = (
                [*scores_of(results, name, column).values()] for name in (system, reference)
            )
            if not (ours and theirs):
                continue
            difference = statistics.fmean(ours) - statistics.fmean(theirs)
            p, verdict = "", "not testable"
            if test := welch(ours, theirs):
                p = f"{test.p_value:.3f}" if test.p_value >= 0.001 else "< 0.001"
                is_beyond = test.p_value < _LEVEL
                verdict = "* exceeds the spread" if is_beyond else "within the spread"
            name = f"{title} - {table.rows.get(reference, reference)}"
            rows.append([name, column.heading, f"{difference:+.2f}", p, verdict])
    return ["compared", "task", "difference", "p", ""], rows


def explain(table: Table, results: Results, compared: Grid) -> str:
    """Returns what the comparisons of a table can show, and what they cannot."""
    parts = []
    if tested := sum(row[3] != "" for row in compared[1]):
        parts.append(
            f"p is that of Welch's test, two-sided, over seeds. If no system differed, about"
            f" {tested * _LEVEL:.1f} of the {tested} tests would have p < {_LEVEL} by chance."
        )
    counts = (len(scores_of(results, s, c)) for s in table.rows for c in table.columns)
    fewest = min(filter(None, counts))
    if fewest < 2:
        parts.append("With one seed there is no spread to compare a difference with.")
    if tested and fewest < _FEW_SEEDS:
        parts.append(
            f"With fewer than {_FEW_SEEDS} seeds the test finds large differences only:"
            " 'within the spread' does not mean that two systems are equal."
        )
    parts.append(
        "Seeds of fine-tuning that start from the same pre-trained model do not show how much"
        " another pre-training would differ."
    )
    return " ".join(parts)


def runs_table(results: Results) -> Grid:
    """Returns the table of what the runs of each system and task cost."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for item in results:
        groups.setdefault((item["system"] or item["name"], item["task"]), []).append(item)
    rows = [
        [
            system,
            task,
            str(len(items)),
            _range(item["parameters"] for item in items),
            _range(item["steps"] for item in items),
            f"{statistics.fmean(item['tokens'] for item in items):,.0f}",
            duration(statistics.fmean(item["seconds"] for item in items)),
        ]
        for (system, task), items in groups.items()
    ]
    return ["system", "task", "runs", "parameters", "steps", "tokens a run", "time a run"], rows


def _range(values: Iterable[int | None]) -> str:
    known = sorted({value for value in values if value is not None})
    if not known:
        return "-"
    return f"{known[0]:,}" + (f" to {known[-1]:,}" if len(known) > 1 else "")


def _grid(grid: Grid) -> str:
    """Returns a table in Markdown, its columns aligned for a terminal."""
    header, rows = grid
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)
