"""Reads the files that question answering is scored on: questions, predictions, probabilities."""

import json
import sys
from collections.abc import Callable
from typing import Any

from bert_jax.files.errors import UserError


def read_gold(path: str) -> tuple[str, dict[str, list[str]]]:
    """Returns the version, and the answers of each question by its id; ignores everything else.

    Raises:
      UserError: the file has neither SQuAD's nor CMRC 2018's format, or an id twice.
    """
    data = _read(path)
    gold: dict[str, list[str]] = {}
    for question in _questions(data, path):
        try:
            key = str(question["id"] if "id" in question else question["query_id"])
            answers = [a if isinstance(a, str) else a["text"] for a in question["answers"]]
            if not all(isinstance(answer, str) for answer in answers):
                raise TypeError
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{path}: a question without an id, or without answers that have a text:"
                f" {json.dumps(question, ensure_ascii=False)[:80]}"
            ) from error
        if key in gold:
            raise UserError(f"{path}: the id {key!r} occurs twice.")
        gold[key] = answers
    if not gold:
        raise UserError(f"{path} has no questions.")
    return str(data.get("version", "")) if isinstance(data, dict) else "", gold


def _questions(data: Any, path: str) -> list[Any]:
    """Returns all questions of SQuAD's format (data > paragraphs > qas) or CMRC 2018's."""
    try:
        paragraphs = (
            data
            if isinstance(data, list)
            else [paragraph for article in data["data"] for paragraph in article["paragraphs"]]
        )
        return [question for paragraph in paragraphs for question in paragraph["qas"]]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not in SQuAD's format (data > paragraphs > qas), nor in CMRC 2018's (a list"
            " of contexts with qas)."
        ) from error


def read_predictions(path: str) -> dict[str, str]:
    """Returns the predicted text of each id.

    Raises:
      UserError: the file is malformed.
    """
    return _read_mapping(path, "a text", lambda value: isinstance(value, str))


def read_na_probs(path: str) -> dict[str, float]:
    """Returns the number of each id.

    Raises:
      UserError: the file is malformed, or a number is not finite.
    """
    largest = sys.float_info.max

    def is_valid(value: Any) -> bool:
        return type(value) in (int, float) and -largest <= value <= largest

    return _read_mapping(path, "a finite number", is_valid)


def _read_mapping(path: str, what: str, is_valid: Callable[[Any], bool]) -> dict[str, Any]:
    values = _read(path)
    if not isinstance(values, dict):
        raise UserError(f"{path} must be a JSON object that maps ids to {what}.")
    for key, value in values.items():
        if not is_valid(value):
            raise UserError(f"{path}: {key!r} must have {what}, but has {json.dumps(value)[:60]}.")
    return values


def _read(path: str) -> Any:
    with open(path, encoding="utf-8-sig") as file:
        try:
            return json.load(file)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8 (byte {error.start}).") from error
