"""Predictions of masked tokens, and models that cannot make them."""

import json
import math
import pathlib

import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.config import store
from bert_jax.data.labelled.texts import Text, spell_masks
from bert_jax.inference.predictor import TaskPredictor
from bert_jax.inference.scoring import Scorer
from bert_jax.training.evaluate import evaluate
from tests.inference.conftest import VOCABULARY, open_model, predict_file


def mark_as_untrained(workdir: str, *paths: str) -> pathlib.Path:
    """Writes the certificate of an import that did not find these parameters."""
    certificate = pathlib.Path(workdir, "certificate.json")
    certificate.write_text(json.dumps({"tensors": {"fresh": paths}}))
    return certificate


def test_spans_are_written_out():
    assert spell_masks("a [MASK:3].") == "a [MASK] [MASK] [MASK]."
    assert spell_masks("[MASK:0] [MASK:x] [MASK]") == "[MASK:0] [MASK:x] [MASK]"


def test_predictions_without_next_sentence_prediction(make_workdir, tmp_path):
    workdir = make_workdir(model__next_sentence=False)
    lines = ["the [MASK] is", json.dumps({"text_a": "the", "text_b": "[MASK] list [MASK]"})]
    source = tmp_path / "in.txt"
    source.write_text("\n".join(lines))
    config = store.load(workdir)
    assert predict_file(config, workdir, str(source), str(tmp_path / "out.jsonl"), top_k=2) == 2
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [answer["next_sentence"] for answer in answers] == [None, None]
    places = [[mask["position"] for mask in answer["masks"]] for answer in answers]
    assert places == [[2], [3, 5]]
    assert all(len(m["candidates"]) == 2 for answer in answers for m in answer["masks"])


def test_what_a_copy_head_fills_in_and_scores_is_one_distribution(make_workdir):
    """A workdir fills in masks from the probabilities of all words, and scores one at a time."""
    predictor = open_model(make_workdir(model__next_sentence=False, model__copy_head=True))
    texts = [Text("the [MASK] is the list"), Text("una [MASK] ##ble una"), Text("[MASK]")]
    (filled,) = TaskPredictor(predictor, top_k=len(VOCABULARY)).predict(texts)
    scorer = Scorer(predictor)
    for text, answer in zip(texts, filled, strict=True):
        (mask,) = answer["masks"]
        found = {entry["token"]: entry["probability"] for entry in mask["candidates"]}
        assert sum(found.values()) == pytest.approx(1, abs=1e-5)
        for word in ("the", "list", "naive"):
            (score,) = scorer.score([scorer.row(Text(text.text_a.replace("[MASK]", word)))])
            (scored,) = (
                entry["log_probability"]
                for place, entry in enumerate(score["log_probabilities"])
                if place == mask["position"] - 1
            )
            assert math.exp(scored) == pytest.approx(found[word], rel=1e-4)


def test_an_untrained_next_sentence_head_predicts_nothing(make_workdir):
    workdir = make_workdir()
    config = store.load(workdir)

    def pair():
        predictor = TaskPredictor(open_model(workdir, config=config), top_k=1)
        ((answer,),) = predictor.predict([Text("the", "list")])
        return answer["next_sentence"]

    assert pair().keys() == {"is_next", "random_next"}
    mark_as_untrained(workdir, "next_sentence/bias", "next_sentence/kernel")
    assert pair() is None


def test_a_text_that_is_too_long_is_named_before_the_first_prediction(workdir, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("is\n" + "is " * 39)
    with pytest.raises(ValueError, match="in.txt, line 2 has 41 tokens, .* begins 'is is is"):
        predict_file(store.load(workdir), workdir, str(source), str(tmp_path / "out.jsonl"))
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_model_without_a_trained_masked_lm_head_is_not_evaluated(make_workdir):
    workdir = make_workdir()
    mark_as_untrained(workdir, "masked_lm/bias")
    with pytest.raises(ValueError, match="but no predictions and no scores of texts before they"):
        evaluate(store.load(workdir), workdir)


@pytest.mark.parametrize("kind", [TaskPredictor, Scorer])
def test_a_model_without_a_trained_masked_lm_head_neither_predicts_nor_scores(kind, make_workdir):
    workdir = make_workdir()
    mark_as_untrained(workdir, "masked_lm/bias", "masked_lm/transform/kernel")
    with pytest.raises(ValueError, match="were imported without a masked-LM head"):
        kind(open_model(workdir))


@pytest.mark.parametrize(
    "use",
    [
        lambda config, workdir: Scorer(open_model(workdir, config=config)),
        lambda config, workdir: run_command(["fill_mask", f"--model={workdir}", "[MASK]"]),
    ],
    ids=["score", "fill_mask"],
)
def test_a_model_for_another_task_neither_scores_nor_fills_in(use, classifier):
    with pytest.raises(ValueError, match="for the task 'classification': it has no masked-LM"):
        use(*classifier)
