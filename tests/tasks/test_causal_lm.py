"""Next-token prediction: losses in closed form and in parts, probabilities of texts, errors."""

import functools
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.encoders import ENCODERS
from bert_jax.config.task import default_config
from bert_jax.data.labelled.texts import Text
from bert_jax.models import MODELS
from bert_jax.models.heads import WordScores
from bert_jax.tasks import losses
from bert_jax.tasks.causal_lm import CausalLM
from bert_jax.tasks.causal_lm.model import CausalLMModel
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.task import add_answers, in_order
from bert_jax.text.wordpiece import WordPieceTokenizer
from bert_jax.training.state import init_params, make_key
from tests import tiny
from tests.extension import toy_configs, toy_encoder
from tests.tiny import make_batch, make_model

PIECES = (*tiny.SPECIAL, "moon", "river", "stone", "##s", ".")
TOKENIZER = WordPieceTokenizer("\n".join(PIECES).encode(), lowercase=True)


@pytest.fixture
def make_data():
    """Returns a function that makes the task; `changes` are fields of the configuration."""

    def make(**changes: Any):
        values = tiny.make_overrides(**{"phases": ((16, 1.0),)} | changes)
        return default_config("causal_lm").replace(values).task

    return make


@functools.partial(jax.jit, static_argnums=0)
def apply(model, params, batch) -> Any:
    return model.apply({"params": params}, batch, deterministic=True)


def shapes_of(task):
    return jax.eval_shape(lambda: init_params(task, make_key(0, "init")))


@functools.cache
def random_params(task):
    return jax.jit(functools.partial(init_params, task))(make_key(0, "init"))


def test_a_phase_of_a_masked_language_model_reads_forward_with_its_parameters():
    """With convolutions too, no position depends on later ones."""
    sizes = {"num_layers": 2, "lm_head": "transform", "convolution": 3, "next_sentence": False}
    model = make_model(**sizes)
    task, batch = CausalLM.as_phase(model), make_batch(3)
    params = random_params(task)
    assert shapes_of(task) == shapes_of(Pretraining(model=model, next_sentence=False))
    later = {**batch, "input_ids": batch["input_ids"].copy()}
    later["input_ids"][:, 5:] = 7
    params = jax.tree.map(lambda x: x + 0.1, params)  # taps of neighbours are 0 at first
    one, other = (apply(task.make_model(), params, each).features for each in (batch, later))
    np.testing.assert_array_equal(one[:, :5], other[:, :5])
    assert not np.allclose(one[:, 5:], other[:, 5:])


def test_the_loss_of_equal_logits_is_the_entropy_of_the_words_that_exist():
    """Rows that pad the table have no probability."""
    model = make_model(
        attention_pattern="causal", vocab_size=61, pad_vocab_to_multiple_of=8, lm_head="tied"
    )
    task = CausalLM(model=model)
    params = jax.tree.map(lambda x: jnp.zeros(x.shape), shapes_of(task))
    batch = make_batch(3)
    batch["input_ids"] = np.minimum(batch["input_ids"], 60)
    outputs = apply(task.make_model(), params, batch)
    sums = task.losses(outputs, batch)  # pyright: ignore[reportArgumentType]
    total = float((batch["example_ids"] > 0).sum() - 3)
    assert sums["causal_lm_loss"].denominator == total
    assert sums["causal_lm_loss"].numerator == pytest.approx(total * math.log(61), rel=1e-6)
    scores = apply(CausalLMModel(model), params, batch)
    assert not np.asarray(jax.nn.softmax(scores.logits()))[..., 61:].any()


@pytest.fixture
def scores():
    """Features, a table and a bias of 3 rows of 7 positions and 11 words, and labels."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)  # noqa: E731
    labels = jnp.asarray(rng.integers(0, 11, (3, 7)), jnp.int32)
    return WordScores(draw(3, 7, 5), draw(11, 5), draw(11)), labels


@pytest.mark.parametrize("positions", [3, 100])
def test_a_loss_in_parts_is_the_loss_with_its_gradients(positions, scores):
    """Also with a number of positions that the parts do not divide."""
    scores, labels = scores
    weights = jnp.asarray(np.random.default_rng(1).random((3, 7)), jnp.float32)

    def in_parts(scores):
        values, hits = losses.cross_entropy_of_scores(scores, labels, positions * 3 * 11)
        return (values * weights).sum(), hits

    def plain(scores):
        logits = jnp.einsum("bsd,vd->bsv", scores.features, scores.table) + scores.bias[None, None]
        log_probs = jax.nn.log_softmax(logits)
        losses = -jnp.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
        return (losses * weights).sum(), (logits.argmax(-1) == labels).astype(jnp.float32)

    (loss, hits), gradients = jax.jit(jax.value_and_grad(in_parts, has_aux=True))(scores)
    (want, right), expected = jax.value_and_grad(plain, has_aux=True)(scores)
    np.testing.assert_allclose(loss, want, rtol=1e-6)
    np.testing.assert_array_equal(hits, right)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), gradients, expected)


def largest_array(jaxpr) -> int:
    """The number of elements of the largest array that a program makes."""
    sizes = [math.prod(v.aval.shape) for equation in jaxpr.eqns for v in equation.outvars]
    inner = [v for equation in jaxpr.eqns for v in equation.params.values()]
    programs = [getattr(v, "jaxpr", v) for v in inner if hasattr(getattr(v, "jaxpr", v), "eqns")]
    return max([*sizes, *map(largest_array, programs)], default=0)


@pytest.mark.parametrize("most, largest", [(1 << 30, 4 * 32 * 999), (4 * 8 * 999, 4 * 8 * 999)])
def test_neither_pass_holds_more_logits_than_allowed(most, largest):
    scores = WordScores(jnp.zeros((4, 32, 3)), jnp.zeros((999, 3)), jnp.zeros(999))
    labels = jnp.zeros((4, 32), jnp.int32)

    def loss(scores):
        return losses.cross_entropy_of_scores(scores, labels, most)[0].sum()

    assert largest_array(jax.make_jaxpr(jax.grad(loss))(scores).jaxpr) == largest


@pytest.mark.parametrize("lm_head, extra", [("transform", {"masked_lm"}), ("tied", set())])
def test_parameters_and_flops_of_the_heads(lm_head, extra):
    model = make_model(attention_pattern="causal", lm_head=lm_head)
    task = CausalLM(model=model)
    assert shapes_of(task).keys() == {"bert"} | extra
    product = 2 * 16 * 64
    assert task.head_flops_per_token() == product + (2 * 16 * 16 if extra else 0)


@pytest.mark.parametrize("segments, first", [("pairs", "[CLS]"), ("running_text", "[SEP]")])
def test_the_probability_of_a_text_is_the_product_over_its_tokens(segments, first, make_data):
    """Against logits in full; the marker in front is the one that rows of training begin with."""
    data = make_data(model__vocab_size=16, data__segments=segments, metrics=("perplexity",))
    model = make_model(attention_pattern="causal", vocab_size=16)
    params = random_params(CausalLM(model=model))
    params = jax.tree.map(lambda x: 20 * x, params)  # so that words differ
    texts = [Text("Moons moon."), Text(""), Text("stone", "river moon")]
    rows = data.encode(texts, TOKENIZER, Counter())
    task = data.bind(model, TOKENIZER)
    answers = {}
    numbers = np.arange(len(texts))[None]  # all of them in one row
    fields = rows.take(numbers, 32)
    outputs = apply(task.make_model(), params, fields)
    each, found = rows.unpack(numbers, jax.device_get(task.answers(outputs, fields)))
    add_answers(answers, each, found)
    predictions = data.collect(texts, rows, in_order(answers))

    sequences = [
        [first, "moon", "##s", "moon", ".", "[SEP]"],
        [first, "[SEP]"],
        [first, "stone", "[SEP]", "river", "moon", "[SEP]"],
    ]
    types = [[0] * 6, [0] * 2, [0, 0, 0, 1, 1, 1]]
    for pieces, kinds, prediction in zip(sequences, types, predictions, strict=True):
        place, padding = np.arange(8)[None], [0] * (8 - len(pieces))
        ids = np.array([[PIECES.index(piece) for piece in pieces] + padding], np.int32)
        is_token = (place < len(pieces)).astype(np.int32)
        batch = {
            "input_ids": ids,
            "token_type_ids": np.array([kinds + padding], np.int32),
            "position_ids": (place * is_token).astype(np.int32),
            "example_ids": is_token,
        }
        logits = apply(CausalLMModel(model), params, batch).logits()
        # 16 rows of the table, 10 pieces.
        log_probs = np.asarray(jax.nn.log_softmax(logits[0, :, : len(PIECES)]), np.float64)
        counted = [i for i, piece in enumerate(pieces) if not piece.startswith("[")]
        total = sum(log_probs[i - 1, ids[0, i]] for i in counted)
        assert prediction["tokens"] == len(counted)
        assert prediction["log_probability"] == pytest.approx(total, rel=1e-4, abs=1e-6)
        if counted:
            expected = math.exp(-total / len(counted))
            assert prediction["perplexity"] == pytest.approx(expected, rel=1e-3)
        else:
            assert prediction["perplexity"] is None


def test_metrics_of_running_text_are_the_nats_of_the_text_by_its_words_and_characters(make_data):
    """In closed form: 600 tokens of ln 2 nats are 600 bits, of 100 words and 400 characters."""
    names = ("word_perplexity", "bits_per_character", "perplexity")
    data = make_data(data__segments="running_text", metrics=names)
    rows: Any = SimpleNamespace(
        text_counts={"words": 100, "characters": 400, "predicted_tokens": 600}
    )
    loss = math.log(2)
    means = {"loss": loss, "causal_lm_loss": loss, "causal_lm_accuracy": 0.3}
    values, _ = data.evaluate(rows, [], means)
    assert list(values) == ["loss", *names]
    assert values["perplexity"] == pytest.approx(2)
    assert values["word_perplexity"] == pytest.approx(2**6)
    assert values["bits_per_character"] == pytest.approx(1.5)
    tokens_only = ("causal_lm_loss", "causal_lm_accuracy", "perplexity")
    assert make_data(metrics=()).metrics == tokens_only
    of_text = make_data(metrics=(), data__segments="running_text").metrics
    assert of_text == (*tokens_only, "word_perplexity", "bits_per_character")
    without, _ = make_data().evaluate(None, [], means)
    assert without.keys() == {*means, "perplexity"}
    diverged, _ = data.evaluate(rows, [], means | {"causal_lm_loss": 1e4})
    assert all(map(math.isfinite, diverged.values()))


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"model__attention_pattern": "bidirectional"},
            "needs config.model.attention_pattern='caus",
        ),
        ({"model__next_sentence": True}, "predicts next tokens only"),
        ({"metrics": ("bits_per_character",)}, "needs config.data.segments='running_text'"),
        ({"metrics": ("f1",)}, "'f1' is none of causal_lm_loss, causal_lm_accuracy"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(changes, message, make_data):
    with pytest.raises(ValueError, match=message):
        make_data(**changes)


def test_models_that_do_not_fit_are_refused(make_data, monkeypatch):
    """Without masks, and weights without a head."""
    monkeypatch.setitem(MODELS, "bag", toy_encoder.BAG)
    monkeypatch.setitem(ENCODERS, "bag", toy_encoder.BAG.config)
    with pytest.raises(ValueError, match="'causal', which config.model.name='bag' lacks"):
        toy_configs.use_bag(default_config("causal_lm"), 16)
    make_data().check_trained(["bert/pooler/kernel"], "DIR")
    with pytest.raises(ValueError, match="imported without a head that predicts tokens"):
        make_data().check_trained(["masked_lm/bias"], "DIR")
