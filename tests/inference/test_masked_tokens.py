"""Predictions of masked tokens, and models that cannot make them."""

import json
import math
import pathlib

import pytest

from bert_jax.config import store
from bert_jax.data.labelled.texts import Text, spell_masks
from bert_jax.inference.predictor import TaskPredictor
from bert_jax.inference.scoring import Scorer, check_fills_masks
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


def test_a_text_that_asks_nothing_is_refused(make_workdir):
    workdir = make_workdir()

    def check(*texts):
        TaskPredictor(open_model(workdir, config=store.load(workdir)), top_k=1).check(Text(*texts))

    check("the [MASK]")
    check("the", "list")
    with pytest.raises(ValueError, match=r"^in.txt, line 1 has no \[MASK\]: nothing to predict"):
        check("the list", None, "in.txt, line 1")
    mark_as_untrained(workdir, "next_sentence/bias", "next_sentence/kernel")
    with pytest.raises(ValueError, match=r"has no \[MASK\], and this model judges no pairs"):
        check("the", "list")


def test_a_text_that_is_too_long_is_named_before_the_first_prediction(workdir, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("[MASK]\n" + "is " * 39)
    with pytest.raises(ValueError, match="in.txt, line 2 has 41 tokens, .* begins 'is is is"):
        predict_file(store.load(workdir), workdir, str(source), str(tmp_path / "out.jsonl"))
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize("kind", [TaskPredictor, Scorer])
def test_a_model_without_a_trained_masked_lm_head_neither_predicts_nor_scores(kind, make_workdir):
    workdir = make_workdir()
    mark_as_untrained(workdir, "masked_lm/bias")
    with pytest.raises(ValueError, match="were imported without a masked-LM head"):
        kind(open_model(workdir))
    with pytest.raises(ValueError, match="but no predictions and no scores of texts before they"):
        evaluate(store.load(workdir), workdir)


def test_a_model_for_another_task_does_not_fill_in(classifier):
    with pytest.raises(ValueError, match="for the task 'classification': it has no masked-LM"):
        check_fills_masks(open_model(classifier[1]).model)
