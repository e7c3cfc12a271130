"""Predictions in other forms than JSON lines, by the ending of the output's name.

.csv     the input's columns, and the prediction's (`tables`); .tsv too, except of published sets,
         whose scoring programs read:

.tsv     GLUE's submissions, by name (MRPC.tsv, STS-B.tsv, ...)
.json    SQuAD's: {"id": "answer"}; NAME.na_probs.json has the scores of "no answer"
.conll   a word and its tag a line, a blank line between sentences
"""

import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bert_jax.data.labelled.published_sets import GLUE, TextTask, number_of
from bert_jax.files.atomic import whole_file, write_json
from bert_jax.files.errors import UserError
from bert_jax.tools.outputs import tables


def _read(lines_path: str) -> Iterator[dict[str, Any]]:
    with open(lines_path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _write_glue(data: Any, lines_path: str, path: str) -> None:
    predictions = (
        (row["id"], row["label"] if "label" in row else str(row["value"]))
        for row in _read(lines_path)
    )
    write_submission(os.path.dirname(path), data.published, _glue_split(data, path), predictions)


def _glue_split(data: Any, path: str) -> str:
    """Returns the split that a file name denotes.

    Raises:
      UserError: GLUE takes no file of that name for the task.
    """
    is_glue = data.published in GLUE.values()
    splits = {file: split for split, file in data.published.submissions.items()} if is_glue else {}
    if (name := os.path.basename(path)) not in splits:
        known = f"those of this task are {', '.join(splits)}" if splits else "this run is none"
        raise UserError(f"--output={path}: .tsv is for what GLUE takes, and {known}; take .jsonl.")
    return splits[name]


def write_submission(
    folder: str, task: TextTask, split: str, predictions: Iterable[tuple[str, str]]
) -> str:
    """Writes the file that the GLUE server takes: a header, then id and prediction of each row.

    Args:
      folder: for the file.
      task: the set.
      split: of it.
      predictions: (id, label or, for a regression, number as text) in the file's order. Numbers are
        clipped to the task's limits and written with 3 decimals.

    Returns:
      The path of the file.

    Raises:
      UserError: there is no submission for that split, an id is repeated, or a label is unknown.
    """
    if split not in task.submissions:
        raise UserError(
            f"There is no submission for {split!r}, only for"
            f" {', '.join(task.submissions) or 'no split'}."
        )
    # GLUE takes labels as its training files write them: by number where these have numbers.
    written = {label: alias for alias, label in task.aliases.items()}
    path, seen = os.path.join(folder, task.submissions[split]), set()
    with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write("index\tprediction\n")
        for id, prediction in predictions:
            if id in seen:
                raise UserError(f"The id {id!r} has two predictions for {task.submissions[split]}.")
            seen.add(id)
            if task.limits is not None:
                low, high = task.limits
                prediction = f"{min(max(_finite(prediction, id), low), high):.3f}"
            elif prediction not in task.labels:
                raise UserError(f"The id {id!r} has the unknown label {prediction!r}.")
            file.write(f"{id}\t{written.get(prediction, prediction)}\n")
    return path


def _finite(prediction: str, id: str) -> float:
    if not math.isfinite(number := number_of(prediction)):
        raise UserError(f"The id {id!r} has {prediction!r}, which is not a number.")
    return number


def _write_squad(data: Any, lines_path: str, path: str) -> None:
    """{id: answer}; with `null_answers` also NAME.na_probs.json, {id: score of "no answer"}."""
    write_json(path, {row["id"]: row["answer"] for row in _read(lines_path)})
    if data.null_answers:
        # If no span can be an answer, "no answer" gets a very large finite number.
        odds = {
            row["id"]: 1e30 if row["null_odds"] is None else row["null_odds"]
            for row in _read(lines_path)
        }
        write_json(f"{path.removesuffix('.json')}.na_probs.json", odds)


def _write_conll(data: Any, lines_path: str, path: str) -> None:
    """A word and its tag a line, a blank line between sentences."""
    del data
    with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for row in _read(lines_path):
            pairs = zip(row["words"], row["tags"], strict=True)
            file.write("".join(f"{word} {tag}\n" for word, tag in pairs) + "\n")


# Of each task: the ending, the function that checks (host side, path), and the one that writes.
_FORMS: dict[str, tuple[str, Callable[[Any, str], Any], Callable[[Any, str, str], None]]] = {
    "classification": (".tsv", _glue_split, _write_glue),
    "span": (".json", lambda data, path: None, _write_squad),
    "tagging": (".conll", lambda data, path: None, _write_conll),
}


def make_writer(
    task: str, data: Any, input_path: str, output_path: str
) -> Callable[[str, str], None] | None:
    """Returns the function (JSON lines' path, output's path) that writes another form.

    Args:
      task: name of the task.
      data: its host side.
      input_path: the examples, whose columns a table keeps.
      output_path: its ending selects the form; None for others, which get JSON lines.

    Raises:
      UserError: the form is another task's, or the form cannot have that path.
    """
    ending = os.path.splitext(output_path)[1]
    if ending in (".csv", ".tsv") and tables.has_tables(data) and os.path.isfile(input_path):
        return functools.partial(tables.write_table, data, input_path)
    if ending == ".csv":
        raise UserError(
            f"--output={output_path}: predictions of config.task={task!r} for this input have no"
            " columns: take another ending, such as .jsonl."
        )
    for name, (of_form, check, write) in _FORMS.items():
        if of_form != ending:
            continue
        if name != task:
            raise UserError(
                f"--output={output_path}: {ending} is for config.task={name!r}, and this run's is"
                f" {task!r}: take another ending, such as .jsonl."
            )
        check(data, output_path)
        return functools.partial(write, data)
    return None
