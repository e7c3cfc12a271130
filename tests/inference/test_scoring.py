"""Pseudo-log-likelihoods, compared with transformers on one text with one mask at a time."""

import math

import numpy as np
import pytest

from bert_jax.data.labelled.texts import Text
from bert_jax.inference.scoring import Scorer
from tests.inference.conftest import SCORED_TEXTS, open_model


@pytest.fixture(scope="module")
def scorer(workdir) -> Scorer:
    return Scorer(open_model(workdir, batch_tokens=128))


def slow_scores(model, tokenizer, text: Text) -> list[float]:
    """ln p(token | all others) of each token, by the definition."""
    torch = pytest.importorskip("torch")
    first = [tokenizer.cls_id, *tokenizer.encode(text.text_a), tokenizer.sep_id]
    second = [*tokenizer.encode(text.text_b), tokenizer.sep_id] if text.text_b else []
    ids, types = first + second, [0] * len(first) + [1] * len(second)
    found = []
    for place, token in enumerate(ids):
        if token in (tokenizer.cls_id, tokenizer.sep_id):
            continue
        masked = [tokenizer.mask_id if i == place else t for i, t in enumerate(ids)]
        with torch.no_grad():
            out = model(input_ids=torch.tensor([masked]), token_type_ids=torch.tensor([types]))
        logits = out.prediction_logits[0, place, : len(tokenizer.pieces)]
        found.append(float(logits.double().log_softmax(0)[token]))
    return found


def test_scores_are_those_of_a_slow_loop_over_another_implementation(scorer, torch_twin):
    tokenizer = scorer._model.tokenizer
    scores = list(scorer.score(map(scorer.row, SCORED_TEXTS)))
    assert len(scores) == len(SCORED_TEXTS)
    for text, score in zip(SCORED_TEXTS, scores, strict=True):
        want = slow_scores(torch_twin, tokenizer, text)
        each = [entry["log_probability"] for entry in score["log_probabilities"]]
        np.testing.assert_allclose(each, want, atol=1e-4, rtol=0)
        assert score["tokens"] == len(want)
        assert score["pseudo_log_likelihood"] == pytest.approx(sum(want), abs=1e-3)
        if want:
            assert score["per_token"] == pytest.approx(sum(want) / len(want), abs=1e-4)
            assert score["perplexity"] == pytest.approx(math.exp(-score["per_token"]))
        else:
            assert score["per_token"] is score["perplexity"] is None
            assert score["pseudo_log_likelihood"] == 0.0


def test_tokens_are_named_and_unknown_ones_counted(scorer):
    first, _, _, masked, *_ = scorer.score(map(scorer.row, SCORED_TEXTS))
    names = [entry["token"] for entry in first["log_probabilities"]]
    assert names == "the list is re ##turn ##ed .".split()
    assert first["unknown_tokens"] == 0
    # "[MASK]" is text here: a bracket, a word and a bracket that the vocabulary does not have.
    assert masked["tokens"] == 7
    assert masked["unknown_tokens"] == 3
