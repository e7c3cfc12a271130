"""Scores predictions exactly like the official scripts of SQuAD 1.1, SQuAD 2.0 and CMRC 2018.

    bert_jax squad_metrics dev-v2.0.json predictions.json --na_prob=null_odds.json
    bert_jax squad_metrics cmrc2018_dev.json predictions.json --cmrc

DATA is the data set's own file. PREDICTIONS maps the id of each question to a text, "" for no
answer. The rules are those of version 2.0 with --na_prob, if DATA states version 2, or if it has a
question without an answer; otherwise those of version 1.1. Prints one JSON object. Questions
without a prediction score 0, and their number is reported on standard error.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.scores.cmrc import cmrc2018
from bert_jax.scores.squad import squad_v1, squad_v2
from bert_jax.tools.cli.command_line import Flag

FLAGS = (
    Flag("DATA", "", "questions and their answers"),
    Flag("PREDICTIONS", "", "id -> text"),
    Flag(
        "na_prob",
        "",
        "id -> probability, or difference of scores, of no answer; finds the best thresholds",
    ),
    Flag("na_prob_thresh", 1.0, "answer nothing if na_prob is greater"),
    Flag("cmrc", False, "CMRC 2018's scores"),
)


def run(flags: argparse.Namespace) -> None:
    if flags.cmrc and flags.na_prob:
        raise UserError("--na_prob is for SQuAD 2.0: in CMRC 2018 every question has an answer.")
    version, gold = read_gold(flags.data)
    predictions = _read_mapping(flags.predictions, "a text", lambda value: isinstance(value, str))
    na_probs = None
    if flags.na_prob:
        na_probs = _read_mapping(flags.na_prob, "a finite number", _is_finite)
    for what, of, others in (
        ("questions have no prediction and score 0", gold, predictions),
        (f"predictions are for no question of {flags.data}", predictions, gold),
    ):
        if found := [key for key in of if key not in others]:
            line = f"{len(found)} of {len(of)} {what}, the first of them {found[0]!r}."
            print(line, file=sys.stderr)
    if flags.cmrc:
        scores = cmrc2018(gold, predictions)
        texts = {name: f"{scores[name]:.3f}" for name in ("AVERAGE", "F1", "EM")}
        print(json.dumps(scores | texts | {"FILE": flags.predictions}))
    elif na_probs is not None or version.lstrip("vV").startswith("2") or not all(gold.values()):
        scores = squad_v2(gold, predictions, na_probs, flags.na_prob_thresh)
        print(json.dumps(scores, indent=2))
    else:
        print(json.dumps(squad_v1(gold, predictions)))


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
        if isinstance(data, list):
            paragraphs = data
        else:
            paragraphs = [each for article in data["data"] for each in article["paragraphs"]]
        return [question for paragraph in paragraphs for question in paragraph["qas"]]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not in SQuAD's format (data > paragraphs > qas), nor in CMRC 2018's (a list"
            " of contexts with qas)."
        ) from error


def _is_finite(value: Any) -> bool:
    largest = sys.float_info.max
    return type(value) in (int, float) and -largest <= value <= largest


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
