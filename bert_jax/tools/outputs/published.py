"""Predictions in other forms than JSON lines, by the ending of the output's name.

.csv     the input's columns and the prediction's (`write_table`); .tsv too, except of
         published sets, whose scoring programs read:

.tsv     GLUE's submissions, by name (MRPC.tsv, STS-B.tsv, ...)
.json    SQuAD's: {"id": "answer"}; NAME.na_probs.json has the scores of "no answer"
.conll   one word and its tag per line, a blank line between sentences
.parquet a row for each prediction, with the input's columns if it is a table
"""

import csv
import functools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.data.labelled.published_sets import GLUE, TextTask
from bert_jax.data.labelled.table_rows import csv_writer
from bert_jax.files.atomic import whole_file, write_json
from bert_jax.files.errors import UserError
from bert_jax.tools.outputs.files import PREDICTIONS, check_output, write_parquet
from bert_jax.tools.outputs.inputs import Inputs

# Separates the tag from a word that has spaces or is empty.
_TAB = "\t"


def _read(lines_path: str) -> Iterator[dict[str, Any]]:
    with open(lines_path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _check_glue(task: Any, path: str) -> None:
    """Raises UserError if GLUE takes no file of that name for the task."""
    names = GLUE[task.published].submissions.values() if task.published in GLUE else ()
    if os.path.basename(path) not in names:
        known = f"those of this task are {', '.join(names)}" if names else "this run is none"
        raise UserError(f"--output={path}: .tsv is for what GLUE takes, and {known}; take .jsonl.")


def _write_glue(task: Any, lines_path: str, path: str) -> None:
    """Writes a header, then the id and the prediction of each row; GLUE takes no id twice.

    Numbers are clipped to the task's limits and have 3 decimals. Labels are those of the training
    files: numbers where these have numbers.
    """
    published: TextTask = GLUE[task.published]
    written = {label: label for label in published.labels}
    written |= {label: alias for alias, label in published.aliases.items()}
    seen = set()
    with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write("index\tprediction\n")
        for row in _read(lines_path):
            id, prediction = row["id"], row["label"] if published.limits is None else row["value"]
            if id in seen:
                name = os.path.basename(path)
                raise UserError(f"The id {id!r} has two predictions for {name}.")
            seen.add(id)
            if published.limits is not None:
                if not math.isfinite(prediction):
                    raise UserError(f"The id {id!r} has {prediction!r}, which is not a number.")
                low, high = published.limits
                shown = f"{min(max(prediction, low), high):.3f}"
            elif (shown := written.get(prediction)) is None:
                raise UserError(f"The id {id!r} has the unknown label {prediction!r}.")
            file.write(f"{id}\t{shown}\n")


def _write_squad(task: Any, lines_path: str, path: str) -> None:
    """{id: answer}; with `null_answers` also NAME.na_probs.json, {id: score of "no answer"}."""
    answers: dict[str, str] = {}
    for row in _read(lines_path):
        if row["id"] in answers:
            raise UserError(f"The id {row['id']!r} has two answers for {os.path.basename(path)}.")
        answers[row["id"]] = row["answer"]
    write_json(path, answers)
    if task.null_answers:
        # If no span can be an answer, "no answer" gets a very large finite number.
        odds = {
            row["id"]: 1e30 if row["null_odds"] is None else row["null_odds"]
            for row in _read(lines_path)
        }
        write_json(f"{path.removesuffix('.json')}.na_probs.json", odds)


def _write_conll(task: Any, lines_path: str, path: str) -> None:
    del task
    with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for row in _read(lines_path):
            words = (re.sub(r"[\t\n\r]", " ", word) for word in row["words"])
            pairs = zip(words, row["tags"], strict=True)
            lines = (f"{word}{' ' if word.split() == [word] else _TAB}{t}" for word, t in pairs)
            file.write("".join(f"{line}\n" for line in lines) + "\n")


# Ending -> the task, and the function that writes.
_FORMS: dict[str, tuple[str, Callable[[Any, str, str], None]]] = {
    ".tsv": ("classification", _write_glue),
    ".json": ("span", _write_squad),
    ".conll": ("tagging", _write_conll),
}


def make_writer(
    name: str, task: Any, inputs: Inputs, output_path: str
) -> Callable[[str, str], None] | None:
    """Returns the function (JSON lines' path, output's path) that writes another form.

    Args:
      name: name of the task.
      task: the task.
      inputs: the examples, whose columns a table keeps.
      output_path: its ending selects the form; None for others, which get JSON lines.

    Raises:
      UserError: the form is another task's, or the form cannot have that path.
    """
    ending = check_output(output_path, PREDICTIONS, inputs.paths)
    is_dataset = any(source.path.startswith("tfds:") for source in inputs.sources)
    has_table = task.has_tables and not is_dataset
    if ending in (".csv", ".tsv") and has_table:
        return functools.partial(write_table, task, inputs)
    if ending == ".parquet":
        rows = functools.partial(rows_with_predictions, task, inputs)
        return lambda lines, path: write_parquet(path, rows(lines) if has_table else _read(lines))
    if ending == ".csv":
        raise UserError(
            f"--output={output_path}: predictions of the task {name!r} for this input have no"
            " columns: take another ending, such as .jsonl."
        )
    if ending not in _FORMS:
        return None
    of_form, write = _FORMS[ending]
    if of_form != name:
        raise UserError(
            f"--output={output_path}: {ending} is for the task {of_form!r}, and this run's is"
            f" {name!r}: take another ending, such as .jsonl."
        )
    if ending == ".tsv":
        _check_glue(task, output_path)
    return functools.partial(write, task)


def write_table(task: Any, inputs: Inputs, lines_path: str, path: str) -> None:
    """Writes the rows of an input, in order, with columns of their predictions at the end.

    The new columns are `predicted_label` and `probability`; `predicted_labels` (multi-label,
    separated by commas); `predicted_value`; or `predicted_choice`, `predicted_ending` and
    `probability`. A table without a header stays without one.

    Taggers have a row for each entity, with `id`, `text` (the sentence), `type`, `entity`, `start`
    and `end` (characters of the text), `probability`; or for each word, with its `tag`.

    Args:
      task: task.
      inputs: tables, JSON lines, files with one text per line, and texts.
      lines_path: predictions as JSON lines.
      path: file to write, .csv or .tsv.
    """
    is_tsv = path.lower().endswith(".tsv")
    with (
        whole_file(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        # Objects of JSON lines may have different fields.
        names = list(dict.fromkeys(name for row in _rows(task, inputs) for name in row))
        pairs = zip(_rows(task, inputs), _read(lines_path), strict=True)
        rows = ((row, found) for row, prediction in pairs for found in task.cells(prediction))
        style = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if is_tsv else {}
        writer = csv_writer(file, **style)
        for number, (row, found) in enumerate(rows):
            if number == 0 and not any(isinstance(name, int) for name in names):
                writer.writerow([*names, *found])
            cells = [*(_cell(row.get(name), str) for name in names), *map(_cell, found.values())]
            # A TSV has no quotes: a cell has neither tabs nor line ends. Offsets stay right.
            writer.writerow(re.sub(r"\s", " ", cell) if is_tsv else cell for cell in cells)


def rows_with_predictions(task: Any, inputs: Inputs, lines_path: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of an input with the columns of their predictions; see `write_table`.

    A column of predictions whose name the input has gets "_" at the end of its name.
    """
    names = {str(name) for row in _rows(task, inputs) for name in row}
    for row, prediction in zip(_rows(task, inputs), _read(lines_path), strict=True):
        for found in task.cells(prediction):
            new = {name + "_" * (name in names): value for name, value in found.items()}
            yield {str(name): value for name, value in row.items()} | new


def _rows(task: Any, inputs: Inputs) -> Iterator[dict[Any, Any]]:
    if task.TABLES_OF_EXAMPLES:
        yield from map(task.example_row, inputs.examples(task, task.EXAMPLE, Counter()))
        return
    for source in inputs.sources:
        if source.path:
            yield from task.input_rows(source.path)
        else:
            yield from ({"text": value} for value in source.values)


def _cell(value: Any, show_float: Callable[[float], str] = "{:.6g}".format) -> str:
    if isinstance(value, float):
        return show_float(value)
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)
