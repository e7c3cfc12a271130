"""Predictions beside the columns of their input, as .csv or .tsv."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bert_jax.data.labelled.examples import TaggedExample
from bert_jax.data.labelled.table_rows import csv_writer, read_rows
from bert_jax.data.labelled.tables import read_plain_texts
from bert_jax.files.atomic import whole_file
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.tasks.tagging import Tagging
from bert_jax.tools.outputs.inputs import Inputs


def has_tables(task: Any) -> bool:
    """Returns whether the predictions of a task are values of columns."""
    is_published = getattr(task, "published", None) is not None
    has_columns = isinstance(task, Classification | MultipleChoice) and not is_published
    return has_columns or isinstance(task, Tagging)


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
        rows = ((row, found) for row, prediction in pairs for found in _found(prediction))
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
            for found in _found(prediction):
                yield {str(name): value for name, value in row.items()} | found


def _rows(task: Any, inputs: Inputs) -> Iterator[dict[Any, Any]]:
    if isinstance(task, Tagging):
        for example in inputs.examples(task, TaggedExample, Counter()):
            yield {"id": example.id, "text": example.locate(task.between_words)[0]}
        return
    for source in inputs.sources:
        if source.path:
            yield from _input_rows(task, source.path)
        else:
            yield from ({"text": value} for value in source.values)


def _input_rows(task: Any, path: str) -> Iterator[dict[Any, Any]]:
    if isinstance(task, Classification) and task.is_plain(path):
        return ({"text": example.text_a} for example in read_plain_texts(path, Counter()))
    has_header = getattr(task.columns, "has_header", True)
    return (row for _, row in read_rows(path, Counter(), has_header))


def _found(prediction: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the columns that a prediction adds to its rows; empty cells if nothing was found."""
    if "tags" not in prediction:
        return [_columns(prediction)]
    if "entities" in prediction:
        names = ("type", "entity", "start", "end", "probability")
        entities = prediction["entities"]
        values = [(e["type"], e["text"], e["start"], e["end"], e["probability"]) for e in entities]
    else:
        names = ("word", "tag", "probability")
        of_words = (prediction[name] for name in ("words", "tags", "probabilities"))
        values = list(zip(*of_words, strict=True))
    return [dict(zip(names, row, strict=True)) for row in values] or [dict.fromkeys(names)]


def _columns(prediction: Mapping[str, Any]) -> dict[str, Any]:
    probabilities = prediction.get("probabilities", ())
    if "label" in prediction:
        label = prediction["label"]
        return {"predicted_label": label, "probability": probabilities[label]}
    if "labels" in prediction:
        return {"predicted_labels": ", ".join(prediction["labels"])}
    if "value" in prediction:
        return {"predicted_value": prediction["value"]}
    choice = prediction["choice"]
    names = {"predicted_choice": choice, "predicted_ending": prediction["ending"]}
    return names | {"probability": probabilities[choice]}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)
