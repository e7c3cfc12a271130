"""Predictions in the forms in which published sets are scored."""

import json
import os
from collections.abc import Callable, Iterator

from ml_collections import ConfigDict

from bert_jax.examples.text_tasks import GLUE
from bert_jax.files.atomic import whole_file, write_json
from bert_jax.inference.submission import write_submission
from bert_jax.tasks.task import Prediction


def check_official(config: ConfigDict, output_path: str) -> None:
    """Refuses an output whose form the task does not have, before anything is computed.

    Raises:
      ValueError: it is such.
    """
    ending = os.path.splitext(output_path)[1]
    if ending not in _ENDINGS:
        return  # JSON lines
    task, _ = _ENDINGS[ending]
    if config.task != task:
        raise ValueError(
            f"--output={output_path}: {ending} is for config.task={task!r}, and this run's is"
            f" {config.task!r}: take another ending, such as .jsonl."
        )
    if ending == ".tsv":
        _glue_split(config, output_path)


def write_official(config: ConfigDict, lines_path: str, output_path: str) -> None:
    """Brings predictions, a JSON object a line, into the form that the output's name asks for."""
    ending = os.path.splitext(output_path)[1]
    if ending not in _ENDINGS:
        os.replace(lines_path, output_path)
        return
    _ENDINGS[ending][1](config, lines_path, output_path)
    os.remove(lines_path)


def _read(lines_path: str) -> Iterator[Prediction]:
    with open(lines_path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _write_glue(config: ConfigDict, lines_path: str, output_path: str) -> None:
    predictions = (
        (row["id"], row["label"] if "label" in row else str(row["value"]))
        for row in _read(lines_path)
    )
    split = _glue_split(config, output_path)
    write_submission(os.path.dirname(output_path), GLUE[config.data.published], split, predictions)


def _glue_split(config: ConfigDict, output_path: str) -> str:
    task, name = GLUE.get(config.data.published), os.path.basename(output_path)
    splits = {file: split for split, file in task.submissions.items()} if task else {}
    if name not in splits:
        known = f"those of this task are {', '.join(splits)}" if splits else "this run is none"
        raise ValueError(
            f"--output={output_path}: .tsv is for what GLUE takes, and {known}; take .jsonl."
        )
    return splits[name]


def _write_squad(config: ConfigDict, lines_path: str, output_path: str) -> None:
    write_json(output_path, {row["id"]: row["answer"] for row in _read(lines_path)})
    if config.head.null_answers:
        # Where nothing can be an answer "no answer" is as sure as a number can say.
        odds = {
            row["id"]: 1e30 if row["null_odds"] is None else row["null_odds"]
            for row in _read(lines_path)
        }
        write_json(f"{output_path.removesuffix('.json')}.na_probs.json", odds)


def _write_conll(config: ConfigDict, lines_path: str, output_path: str) -> None:
    with whole_file(output_path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for row in _read(lines_path):
            pairs = zip(row["words"], row["tags"], strict=True)
            file.write("".join(f"{word} {tag}\n" for word, tag in pairs) + "\n")


_ENDINGS: dict[str, tuple[str, Callable[[ConfigDict, str, str], None]]] = {
    ".tsv": ("classification", _write_glue),
    ".json": ("span", _write_squad),
    ".conll": ("tagging", _write_conll),
}
