"""What heads read: mixes of layers against bilm-tf's formula, and the parts of a head composed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.bert import Bert
from bert_jax.models.reading import PooledHeadConfig, ScalarMix
from bert_jax.models.task_heads import ClassificationModel, MultipleChoiceModel, SpanModel
from tests.models.small import apply, make_batch, make_config, random_params
from tests.models.test_bilstm import Module, run

CLASSES = 3


# ------------------------------------------------------------------ mixes


def mixed(weights, gamma, states, is_token, layer_norm):
    """The weighting of bilm-tf, in float64: softmax(w + 1 / n) is softmax(w)."""
    weights = np.asarray(weights, np.float64) + 1 / len(weights)
    shares = np.exp(weights) / np.exp(weights).sum()
    total = 0.0
    for share, state in zip(shares, np.asarray(states, np.float64), strict=True):
        if layer_norm:
            real = state[is_token]  # one mean and one variance for all numbers of all real tokens
            state = (state - real.mean()) / np.sqrt(real.var() + 1e-12)
        total = total + share * state
    return gamma * total


@pytest.mark.parametrize(
    ("layers", "layer_norm"),
    [("scalar_mix", True), ("mix_last_4", False), ("mix_with_embeddings", True)],
)
def test_a_mix_is_that_of_bilm_tf(layers, layer_norm):
    rng = np.random.default_rng(0)
    scales = 10.0 ** np.array([0, 2, -1, 1, 0.5, 3])[:, None, None, None]
    states = (scales * (rng.normal(size=(6, 3, 7, 4)) + 0.3)).astype(np.float32)
    is_token = np.arange(7) < np.array([7, 2, 5])[:, None]
    read = {"scalar_mix": states[1:], "mix_last_4": states[2:], "mix_with_embeddings": states}
    weights = rng.normal(size=len(read[layers])).astype(np.float32)
    params = {"weights": weights, "gamma": np.float32(1.7)}
    module = ScalarMix(layers, layer_norm)
    mix = jax.jit(lambda states: module.apply({"params": params}, tuple(states), is_token))
    found, returned = jax.device_get(mix(states))
    np.testing.assert_array_equal(returned, weights)
    expected = mixed(weights, 1.7, read[layers], is_token, layer_norm)
    np.testing.assert_allclose(found[is_token], expected[is_token], rtol=2e-5, atol=2e-5)
    # What is at padding has no effect on tokens.
    states[:, ~is_token] = 1e4
    other, _ = jax.device_get(mix(states))
    np.testing.assert_allclose(other[is_token], found[is_token], rtol=1e-5, atol=1e-5)
    # It starts with equal weights, and is finite without tokens.
    new = module.init_with_output(jax.random.key(0), tuple(states), 0 * is_token > 0)
    (found, weights), variables = new
    assert np.isfinite(found).all() and not weights.any() and variables["params"]["gamma"] == 1


# ------------------------------------------------------------------ the parts of a head, composed


def both_directions(x, params):
    """float[words, features] -> float[words, 2 * size]; test_bilstm compares it with torch's."""
    gates = {name: params[name] for name in ("lstm_0_forward", "lstm_0_backward")}
    return np.asarray(run(Module(layers=1), gates, np.float32(x)[None], np.array([len(x)])))[0]


POOL = {
    "cls": lambda x: x[0],
    "last": lambda x: x[-1],
    "mean": lambda x: x.mean(0),
    "max": lambda x: x.max(0),
}


@pytest.mark.parametrize(
    "head",
    [
        PooledHeadConfig(pool="mean"),
        PooledHeadConfig(pool="cls", layers="concat_last_4", frozen=True),
        PooledHeadConfig(pool="last", layers="sum_last_4", pooler=False),
        PooledHeadConfig(
            pool="max", head="bilstm", layers="mix_last_4", lstm_size=5, lstm_layers=1, frozen=True
        ),
    ],
    ids=lambda head: f"{head.pool} {head.layers} {head.head}",
)
def test_a_classifier_is_its_parts_one_after_the_other(head):
    config = make_config(num_layers=4, attention_pattern="causal")
    model, batch = ClassificationModel(config, CLASSES, head), make_batch(config)
    params = random_params(model, batch, spread=0.3)
    assert ("pooler" in params["bert"]) == head.has_pooler
    body = {name: part for name, part in params["bert"].items() if name != "pooler"}
    states = apply(Bert(config), body, batch, keep_all=True).all_hidden
    found = apply(model, params, batch).logits
    for row, length in enumerate((batch["example_ids"] > 0).sum(1)):
        of_row = [np.float64(state[row, :length]) for state in states]
        mix = params.get("scalar_mix")
        x = {
            "last": lambda of_row=of_row: of_row[-1],
            "sum_last_4": lambda of_row=of_row: sum(of_row[-4:]),
            "concat_last_4": lambda of_row=of_row: np.concatenate(of_row[-4:], -1),
            "mix_last_4": lambda of_row=of_row, mix=mix: mixed(
                mix["weights"], mix["gamma"], of_row[-4:], None, False
            ),
        }[head.layers]()
        if head.has_bilstm:
            x = both_directions(x, params)
        x = POOL[head.pool](x)
        if head.has_pooler:
            pooler = params["bert"]["pooler"]
            x = np.tanh(x @ pooler["kernel"] + pooler["bias"])
        expected = x @ params["classifier"]["kernel"] + params["classifier"]["bias"]
        np.testing.assert_allclose(found[row], expected, atol=5e-5)


def test_the_vectors_of_both_orders_are_added():
    config = make_config(num_layers=1)
    one = PooledHeadConfig(pool="last", pooler=False)
    batch = make_batch(config, batch=6)
    model = ClassificationModel(config, CLASSES, one, both_orders=True)
    orders = {name: array.reshape(3, 2, -1) for name, array in batch.items()}
    params = random_params(model, orders, spread=0.3)
    each = apply(ClassificationModel(config, CLASSES, one), params, batch).logits
    # The layer is linear: its bias counts once.
    expected = each.reshape(3, 2, CLASSES).sum(1) - params["classifier"]["bias"]
    np.testing.assert_allclose(apply(model, params, orders).logits, expected, atol=1e-5)
    swapped = {name: array[:, ::-1] for name, array in orders.items()}
    np.testing.assert_allclose(apply(model, params, swapped).logits, expected, atol=1e-5)


# ------------------------------------------------------------------ dropout


def test_the_head_has_its_own_rate_of_dropout():
    """The encoder has none here, so that the share of zeros in the gradient is the head's rate."""
    config = make_config(
        num_layers=1, dropout_rate=0.0, attention_dropout_rate=0.0, hidden_size=200
    )
    batch = make_batch(config, batch=1)
    model = ClassificationModel(config, 1, PooledHeadConfig(dropout_rate=0.5, pooler=False))
    params = random_params(model, batch)

    def loss(classifier):
        variables = {"params": params | {"classifier": classifier}}
        rngs = {"dropout": jax.random.key(0)}
        return model.apply(variables, batch, deterministic=False, rngs=rngs).logits.sum()

    gradient = jax.jit(jax.grad(loss))(params["classifier"])["kernel"]
    assert (np.asarray(gradient) == 0).mean() == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("shared", [False, True])
def test_choices_share_a_mask_if_asked_to(shared):
    """Equal choices have equal logits only under the same mask."""
    config = make_config(num_layers=1, dropout_rate=0.0, attention_dropout_rate=0.0)
    row = {name: array[:, None].repeat(4, 1) for name, array in make_batch(config).items()}
    head = PooledHeadConfig(dropout_rate=0.5, pooler=False)
    model = MultipleChoiceModel(config, head, share_dropout=shared)
    params = random_params(model, row, spread=0.3)
    logits = apply(model, params, row, seed=1).logits
    assert np.allclose(logits, logits[:, :1], atol=1e-5) == shared
    assert not np.allclose(logits[0], logits[1], atol=1e-3)


def test_a_frozen_encoder_has_neither_dropout_nor_gradient():
    config = make_config(num_layers=1, dropout_rate=0.5, attention_dropout_rate=0.5)
    batch = make_batch(config)
    head = PooledHeadConfig(
        layers="mix_with_embeddings", pool="mean", frozen=True, dropout_rate=0.0
    )
    for model in (ClassificationModel(config, CLASSES, head), SpanModel(config, head)):
        params = random_params(model, batch, spread=0.3)

        def loss(params, deterministic, model=model):
            rngs = {"dropout": jax.random.key(0)}
            options = {"deterministic": deterministic, "rngs": rngs}
            outputs = model.apply({"params": params}, batch, **options).replace(reading=None)
            return sum(jnp.tanh(leaf).sum() for leaf in jax.tree.leaves(outputs))

        run = jax.jit(jax.value_and_grad(loss), static_argnums=1)
        value, gradient = jax.device_get(run(params, False))
        np.testing.assert_allclose(value, jax.jit(loss, static_argnums=1)(params, True), rtol=1e-5)
        assert not any(leaf.any() for leaf in jax.tree.leaves(gradient["bert"]))
        assert all(leaf.any() for leaf in jax.tree.leaves(gradient["scalar_mix"]))
