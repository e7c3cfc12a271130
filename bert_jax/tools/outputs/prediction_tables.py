"""Predictions beside the columns of their input, as .csv or .tsv."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bert_jax.data.labelled.table_rows import csv_writer
from bert_jax.files.atomic import whole_file
from bert_jax.tools.outputs.inputs import Inputs


def write_table(task: Any, inputs: Inputs, lines_path: str, path: str) -> None:
    """Writes the rows of an input, in order, with columns of their predictions at the end.

    The new columns are `predicted_label` and `probability`; `predicted_labels` (multi-label,
    separated by commas); `predicted_value`; or `predicted_choice`, `predicted_ending` and
    `probability`. A table without a header stays without one.

    Taggers have a row for each entity, with `id`, `text` (the sentence), `type`, `entity`, `start`
    and `end` (characters of the text), `probability`; or for each word, with its `tag`.

    Args:
      task: task.
      inputs: tables, JSON lines, files with a text a line, and texts.
      lines_path: predictions as JSON lines.
      path: file to write, .csv or .tsv.
    """
    is_tsv = path.endswith(".tsv")
    with (
        open(lines_path, encoding="utf-8") as lines,
        whole_file(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        # Objects of JSON lines may have different fields.
        names = list(dict.fromkeys(name for row in _rows(task, inputs) for name in row))
        pairs = zip(_rows(task, inputs), map(json.loads, lines), strict=True)
        rows = ((row, found) for row, prediction in pairs for found in task.cells(prediction))
        style = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if is_tsv else {}
        writer = csv_writer(file, **style)
        for number, (row, found) in enumerate(rows):
            if number == 0 and not any(isinstance(name, int) for name in names):
                writer.writerow([*names, *found])
            cells = map(_cell, [*(row.get(name) for name in names), *found.values()])
            # A TSV has no quotes: a cell has neither tabs nor line ends. Offsets stay right.
            writer.writerow(re.sub(r"\s", " ", cell) if is_tsv else cell for cell in cells)


def rows_with_predictions(task: Any, inputs: Inputs, lines_path: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of an input with the columns of their predictions; see `write_table`."""
    with open(lines_path, encoding="utf-8") as lines:
        for row, prediction in zip(_rows(task, inputs), map(json.loads, lines), strict=True):
            for found in task.cells(prediction):
                yield {str(name): value for name, value in row.items()} | found


def _rows(task: Any, inputs: Inputs) -> Iterator[dict[Any, Any]]:
    if task.TABLES_OF_EXAMPLES:
        yield from map(task.example_row, inputs.examples(task, task.EXAMPLE, Counter()))
        return
    for source in inputs.sources:
        if source.path:
            yield from task.input_rows(source.path)
        else:
            yield from ({"text": value} for value in source.values)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)
