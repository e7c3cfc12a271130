"""SPLADE: weights of words by plain loops, also in parts; its losses; growth; messages."""

import functools

import jax
import numpy as np
import pytest

from bert_jax.config.encoders import BertConfig
from bert_jax.config.phases import Phase
from bert_jax.models.heads import WordScores
from bert_jax.scores import retrieval
from bert_jax.tasks.splade import Splade
from bert_jax.tasks.splade.model import word_weights
from bert_jax.training.gradient import compute_gradient
from bert_jax.training.state import TrainState, init_params
from tests.tasks.test_embedding import ROWS, Rows, make_texts, pairs
from tests.tiny import make_model

WORDS, FEATURES = 11, 5
PHASE = Phase(8, ROWS, 0, 1.0, 0, 4)


@pytest.fixture
def scores():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((3, 7, FEATURES)).astype(np.float32)
    table = rng.standard_normal((WORDS, FEATURES)).astype(np.float32)
    return WordScores(features, table, rng.standard_normal(WORDS).astype(np.float32))


def test_a_weight_is_the_maximum_over_the_tokens_of_a_text(scores):
    ids = np.array([[1, 1, 1, 2, 2, 0, 0], [1] * 7, [0] * 7], np.int32)
    batch = {"example_ids": ids, "cls_positions": np.array([[0, 3], [0, 0], [0, 0]], np.int32)}
    logits = scores.features.astype(float) @ scores.table.T.astype(float) + scores.bias
    expected = np.zeros((3, 2, WORDS))
    for row, text, word in np.ndindex(expected.shape):
        for place in np.flatnonzero(ids[row] == text + 1):
            weight = np.log(1 + max(0, logits[row, place, word]))
            expected[row, text, word] = max(expected[row, text, word], weight)

    def loss(scores, max_logits):
        weights = word_weights(scores, batch, max_logits)
        return (weights**2).sum(), weights

    compute = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    (_, at_once), gradient = compute(scores, 1 << 20)
    (_, in_parts), of_parts = compute(scores, 2 * 3 * WORDS)  # two positions at a time
    np.testing.assert_allclose(at_once, expected, atol=1e-5)
    np.testing.assert_allclose(in_parts, expected, atol=1e-5)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), gradient, of_parts)


def test_cached_gradients_are_those_of_the_whole_batch():
    """In the middle of the growth of the regularizers."""
    task = Splade(anchor_flops=0.3, positive_flops=0.2, flops_warmup=1.0)
    task = task.bind(make_model(num_layers=1, hidden_size=8, num_heads=2), None, PHASE)
    params = init_params(task, jax.random.key(0))
    assert set(params) == {"bert", "masked_lm"}
    state = TrainState(np.int32(2), params, (), np.int32(2), ())
    keys = {name: jax.random.key(0) for name in ("dropout", "masking")}
    compute = functools.partial(compute_gradient, state, make_texts(), keys, task=task, steps=4)
    grads, sums, _ = jax.jit(compute)()
    parts, found, _ = jax.jit(functools.partial(compute, num_microbatches=2))()
    for name in ("task_loss", "anchor_flops_loss", "positive_flops_loss", "anchor_words"):
        np.testing.assert_allclose(found[name].numerator, sums[name].numerator, rtol=1e-5)
        assert sums[name].numerator > 0 and sums[name].denominator == ROWS - 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), grads, parts)


def test_regularizers_grow_as_the_square_of_the_steps_in_training_only():
    task = Splade(flops_warmup=0.5)
    batch = {"weights": np.ones(3, np.float32)}
    training = task.bind(make_model(), None, PHASE)
    for progress, growth in ((0.0, 0), (0.25, 0.25), (0.5, 1), (0.9, 1)):
        assert training.transform(None, batch, progress)["flops_growth"].tolist() == [growth] * 3
    for other in (
        task.bind(make_model(), None),
        task.bind(make_model(), None, PHASE, evaluate=True),
        Splade(flops_warmup=0.0).bind(make_model(), None, PHASE),
    ):
        assert other.transform(None, batch).keys() == batch.keys()


def test_texts_match_by_the_product_of_their_vectors():
    vectors = np.random.default_rng(0).random((3, 2, 8)).astype(np.float32)
    vectors[vectors < 0.5] = 0
    values, predictions = Splade(metrics=("mrr_at_10",)).evaluate(
        Rows(pairs(("a", "b"), ("c", "d"), ("e", "f"))),
        [{"vectors": row} for row in vectors],
        {"loss": 1.5},
    )
    products = vectors[:, 0] @ vectors[:, 1].T
    ranks = (products >= products.diagonal()[:, None]).sum(1)
    assert [found["rank"] for found in predictions] == ranks.tolist()
    assert values == {"mrr_at_10": retrieval.METRICS["mrr_at_10"](ranks), "loss": 1.5}
    assert [p["similarity"] for p in predictions] == pytest.approx(products.diagonal().tolist())
    assert [p["words"] for p in predictions] == (vectors > 0).sum(-1).tolist()


def test_what_does_not_fit_is_refused():
    causal = BertConfig(attention_pattern="causal", next_sentence=False, lm_head="tied")
    with pytest.raises(ValueError, match="'splade' needs a masked-LM head, which a model of the"):
        Splade().bind(causal, None)
    for name in ("pool", "matryoshka", "label"):
        with pytest.raises(ValueError, match=f"{name} does not exist"):
            Splade.default_config().replace({f"task.{name}": ""})
