"""Scores predictions exactly like the official scripts of SQuAD 1.1, SQuAD 2.0 and CMRC 2018.

    python -m bert_jax squad_metrics dev-v2.0.json predictions.json --na_prob=null_odds.json
    python -m bert_jax squad_metrics cmrc2018_dev.json predictions.json --cmrc

DATA is the data set's own file. PREDICTIONS maps the id of each question to a text, "" for no
answer. The rules are those of version 2.0 with --na_prob, if DATA states version 2, or if it has a
question without an answer; otherwise those of version 1.1. Prints one JSON object. Questions
without a prediction score 0, and their number is reported on standard error.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.scores import cmrc as cmrc_scores
from bert_jax.scores import squad as squad_scores
from bert_jax.scores.answer_files import read_gold, read_na_probs, read_predictions
from bert_jax.tools.cli.flags.command_line import Parser


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax squad_metrics", __doc__)
    parser.words("DATA", "questions and their answers")
    parser.words("PREDICTIONS", "id -> text")
    parser.flag(
        "na_prob",
        "",
        "id -> probability, or difference of scores, of no answer; finds the best thresholds",
        metavar="FILE",
    )
    parser.flag("na_prob_thresh", 1.0, "answer nothing if na_prob is greater", metavar="NUMBER")
    parser.switch("cmrc", "CMRC 2018's scores")
    flags = parser.parse(argv)
    if flags.cmrc and flags.na_prob:
        raise UserError("--na_prob is for SQuAD 2.0: in CMRC 2018 every question has an answer.")
    version, gold = read_gold(flags.data)
    predictions = read_predictions(flags.predictions)
    na_probs = read_na_probs(flags.na_prob) if flags.na_prob else None
    _report_differences(gold, predictions, flags.data)
    if flags.cmrc:
        scores = cmrc_scores.cmrc2018(gold, predictions)
        texts = {name: f"{scores[name]:.3f}" for name in ("AVERAGE", "F1", "EM")}
        print(json.dumps(scores | texts | {"FILE": flags.predictions}))
    elif na_probs is not None or version.lstrip("vV").startswith("2") or not all(gold.values()):
        scores = squad_scores.squad_v2(gold, predictions, na_probs, flags.na_prob_thresh)
        print(json.dumps(scores, indent=2))
    else:
        print(json.dumps(squad_scores.squad_v1(gold, predictions)))


def _report_differences(gold: Mapping[str, Any], predictions: Mapping[str, Any], path: str) -> None:
    if missing := [key for key in gold if key not in predictions]:
        print(
            f"{len(missing)} of {len(gold)} questions have no prediction and score 0, the first of"
            f" them {missing[0]!r}.",
            file=sys.stderr,
        )
    if unknown := [key for key in predictions if key not in gold]:
        print(
            f"{len(unknown)} of {len(predictions)} predictions are for no question of {path}, the"
            f" first of them {unknown[0]!r}.",
            file=sys.stderr,
        )
