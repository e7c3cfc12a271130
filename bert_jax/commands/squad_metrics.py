"""Scores a file of predictions as the official scripts of SQuAD 1.1, SQuAD 2.0 and CMRC 2018 do.

    $ python -m bert_jax.commands.squad_metrics dev-v2.0.json predictions.json --na_prob null_odds.json

DATA is the data set's own file. PREDICTIONS maps the id of each question to a text, "" for no
answer. The rules are 2.0's with --na_prob, and where DATA says version 2 or has a question without
an answer; otherwise 1.1's. One JSON object goes to standard output. Questions without a prediction
score 0, and are counted on standard error.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from bert_jax.scores import cmrc as cmrc_scores
from bert_jax.scores import squad as squad_scores


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help).")


def main(argv: Sequence[str]) -> None:
    """Prints the scores.

    Raises:
      ValueError: an argument or a file is not right.
      OSError: a file cannot be read.
    """
    parser = _Parser(
        prog="bert_jax.commands.squad_metrics",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", metavar="DATA")
    parser.add_argument("predictions", metavar="PREDICTIONS")
    parser.add_argument(
        "--na_prob",
        metavar="FILE",
        help="id -> how sure it is that there is no answer, a probability or a difference of"
        " scores; finds the best thresholds",
    )
    parser.add_argument(
        "--na_prob_thresh",
        type=float,
        default=1.0,
        metavar="NUMBER",
        help="answer nothing where na_prob is greater (default: 1.0)",
    )
    parser.add_argument("--cmrc", action="store_true", help="CMRC 2018's scores")
    flags = parser.parse_args(argv)
    if flags.cmrc and flags.na_prob:
        raise ValueError("--na_prob is for SQuAD 2.0: CMRC 2018 has an answer to every question.")
    version, gold = read_gold(flags.data)
    predictions = read_predictions(flags.predictions)
    na_probs = read_na_probs(flags.na_prob) if flags.na_prob else None
    _report_differences(gold, predictions, flags)
    if flags.cmrc:
        scores = cmrc_scores.cmrc2018(gold, predictions)
        texts = {name: f"{scores[name]:.3f}" for name in ("AVERAGE", "F1", "EM")}
        print(json.dumps(scores | texts | {"FILE": flags.predictions}))
    elif na_probs is not None or version.lstrip("vV").startswith("2") or not all(gold.values()):
        scores = squad_scores.squad_v2(gold, predictions, na_probs, flags.na_prob_thresh)
        print(json.dumps(scores, indent=2))
    else:
        print(json.dumps(squad_scores.squad_v1(gold, predictions)))


def _report_differences(
    gold: Mapping[str, Any], predictions: Mapping[str, Any], flags: argparse.Namespace
) -> None:
    if missing := [key for key in gold if key not in predictions]:
        print(
            f"{len(missing)} of {len(gold)} questions have no prediction and score 0, the first of"
            f" them {missing[0]!r}.",
            file=sys.stderr,
        )
    if unknown := [key for key in predictions if key not in gold]:
        print(
            f"{len(unknown)} of {len(predictions)} predictions are for no question of"
            f" {flags.data}, the first of them {unknown[0]!r}.",
            file=sys.stderr,
        )


def read_gold(path: str) -> tuple[str, dict[str, list[str]]]:
    """Reads the version and the answers of each question, by id; the rest of the file may lack.

    Raises:
      ValueError: the file is in none of SQuAD's and CMRC 2018's forms, or has an id twice.
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
            raise ValueError(
                f"{path}: a question lacks its id, or answers with a text:"
                f" {json.dumps(question, ensure_ascii=False)[:80]}"
            ) from error
        if key in gold:
            raise ValueError(f"{path}: the id {key!r} is there twice.")
        gold[key] = answers
    if not gold:
        raise ValueError(f"{path}: there are no questions.")
    return str(data.get("version", "")) if isinstance(data, dict) else "", gold


def _questions(data: Any, path: str) -> list[Any]:
    """Of SQuAD's form, data > paragraphs > qas, or of CMRC 2018's own, a list with qas."""
    try:
        paragraphs = (
            data
            if isinstance(data, list)
            else [paragraph for article in data["data"] for paragraph in article["paragraphs"]]
        )
        return [question for paragraph in paragraphs for question in paragraph["qas"]]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not in SQuAD's form, data > paragraphs > qas, nor in CMRC 2018's, a list of"
            f" contexts with qas."
        ) from error


def read_predictions(path: str) -> dict[str, str]:
    """Reads id -> text.

    Raises:
      ValueError: the file has another form.
    """
    return _read_mapping(path, "a text", lambda value: isinstance(value, str))


def read_na_probs(path: str) -> dict[str, float]:
    """Reads id -> number.

    Raises:
      ValueError: the file has another form, or a number is not finite.
    """
    largest = sys.float_info.max

    def is_right(value: Any) -> bool:
        return type(value) in (int, float) and -largest <= value <= largest

    return _read_mapping(path, "a finite number", is_right)


def _read_mapping(path: str, what: str, is_right: Callable[[Any], bool]) -> dict[str, Any]:
    found = _read(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path} must be a JSON object that maps ids to {what}.")
    for key, value in found.items():
        if not is_right(value):
            raise ValueError(f"{path}: {key!r} must have {what}, but has {json.dumps(value)[:60]}.")
    return found


def _read(path: str) -> Any:
    with open(path, encoding="utf-8-sig") as file:
        try:
            return json.load(file)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 (byte {error.start}).") from error


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
