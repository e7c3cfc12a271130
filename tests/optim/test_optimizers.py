"""Traces of optimizers in double precision, and which parameters decay, train or are frozen."""

import math
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.config.groups import OptimizerConfig
from bert_jax.devices.trees import flatten, path_name, unflatten
from bert_jax.files.errors import UserError
from bert_jax.optim.make import make_optimizer
from bert_jax.optim.optimizers import OPTIMIZERS, decay_mask
from bert_jax.training.state import init_params
from tests.tiny import make_task

GOLDEN = pathlib.Path(__file__).parent / "goldens" / "decay_mask.txt"
NO_DECAY = ("layer_norm", "bias")
NUM_STEPS, WARMUP_STEPS, TRACED_STEPS = 25, 5, 28
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-2


def make_config(name="bert_adam", schedule="bert_linear", **changes):
    values: dict[str, Any] = dict(
        learning_rate=1e-2,
        weight_decay=0.01,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-6,
        clip_norm=1.0,
        no_decay=NO_DECAY,
        encoder="bert",
    )
    return OptimizerConfig(name=name, schedule=schedule, **values | changes)


@pytest.fixture
def params():
    rng = np.random.default_rng(0)
    return {
        "dense": {
            "kernel": rng.normal(size=(3, 4)).astype(np.float32),
            "bias": rng.normal(size=4).astype(np.float32),
        },
        "layer_norm": {"scale": rng.normal(size=4).astype(np.float32)},
    }


def make_gradients(params):
    """One tree a step; every other one is so large that it is clipped."""
    rng = np.random.default_rng(1)
    for step in range(TRACED_STEPS):
        scale = 3.0 if step % 2 else 0.1
        yield jax.tree.map(lambda p, s=scale: rng.normal(0, s, p.shape).astype(np.float32), params)


def adam(m, v, count):
    return m / (np.sqrt(v) + EPSILON)


def corrected_adam(m, v, count):
    return m / (1 - BETA1**count) / (np.sqrt(v / (1 - BETA2**count)) + EPSILON)


def gpts_adam(m, v, count):
    """`opt.py`: both corrections are a factor of the rate, and epsilon is not corrected."""
    return math.sqrt(1 - BETA2**count) / (1 - BETA1**count) * m / (np.sqrt(v) + EPSILON)


# Name -> direction of an update, from the papers and the released code.
DIRECTIONS = {"bert_adam": adam, "adamw": corrected_adam, "gpt_adam": gpts_adam}


@pytest.mark.parametrize("name", DIRECTIONS)
def test_a_trace_in_double_precision(name, params):
    """Through warm-up, decay and beyond the last step, every other gradient clipped.

    Decay and epsilon are large, so that where they act is seen.
    """
    config = make_config(name, weight_decay=0.5, epsilon=EPSILON)
    tx, rate = make_optimizer(config, NUM_STEPS, WARMUP_STEPS)
    update, got, state = jax.jit(tx.update), params, tx.init(params)
    expected = {path: leaf.astype(np.float64) for path, leaf in flatten(params).items()}
    m, v = dict.fromkeys(expected, 0.0), dict.fromkeys(expected, 0.0)
    for step, grads in enumerate(make_gradients(params)):
        updates, state = update(grads, state, got)
        before, got = got, optax.apply_updates(got, updates)
        exact = {path: leaf.astype(np.float64) for path, leaf in flatten(grads).items()}
        norm = np.sqrt(sum((leaf**2).sum() for leaf in exact.values()))
        for path, gradient in exact.items():
            gradient = gradient * min(1, 1 / norm)
            m[path] = BETA1 * m[path] + (1 - BETA1) * gradient
            v[path] = BETA2 * v[path] + (1 - BETA2) * gradient**2
            direction = DIRECTIONS[name](m[path], v[path], step + 1)
            decay = 0.5 * expected[path] if path == "dense/kernel" else 0.0
            if name == "gpt_adam":  # its factor multiplies the decay too
                decay = decay * math.sqrt(1 - BETA2 ** (step + 1)) / (1 - BETA1 ** (step + 1))
            expected[path] = expected[path] - float(rate(step)) * (direction + decay)
            np.testing.assert_allclose(flatten(got)[path], expected[path], 2e-5, 1e-6)
        if step == 0 or step >= NUM_STEPS:  # the rate is 0
            jax.tree.map(np.testing.assert_array_equal, got, before)


@pytest.mark.parametrize("initial", [1.0, 0.1])
def test_adagrad_divides_by_the_root_of_the_sum_of_squares(initial, params):
    """As torch.optim.Adagrad without its epsilon."""
    values = {"weight_decay": 0.0, "clip_norm": 0.0, "initial_accumulator": initial}
    tx, _ = make_optimizer(make_config("adagrad", "constant", **values), NUM_STEPS, 0)
    state, update, total = tx.init(params), jax.jit(tx.update), initial
    for grads in make_gradients(params):
        updates, state = update(grads, state, params)
        gradient = grads["dense"]["kernel"].astype(np.float64)
        total = total + gradient**2
        expected = -1e-2 * gradient / np.sqrt(total)
        np.testing.assert_allclose(updates["dense"]["kernel"], expected, rtol=1e-5)


def test_gpts_adam_leaves_matrices_that_a_pattern_names():
    zeros, ones = np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)
    tx = OPTIMIZERS["gpt_adam"](make_config(weight_decay=0.5, no_decay=("table",)))
    params = {"table": ones, "kernel": ones, "bias": ones[0]}
    grads = {"table": zeros, "kernel": zeros, "bias": zeros[0]}
    updates, _ = tx.update(grads, tx.init(params), params)
    factor = math.sqrt(1 - 0.999) / (1 - 0.9)
    np.testing.assert_allclose(updates["kernel"], 0.5 * factor * ones, rtol=2e-5)
    assert not updates["table"].any() and not updates["bias"].any()


def test_lambs_direction_has_the_norm_of_its_parameter(params):
    """And the direction of AdamW; parameters that do not decay keep its length too."""
    values = {"weight_decay": 0.5, "clip_norm": 0.0}
    grads = jax.tree.map(lambda p: np.cos(p), params)
    found, expected = (
        flatten(
            OPTIMIZERS[name](make_config(name, **values)).update(
                grads, OPTIMIZERS[name](make_config(name, **values)).init(params), params
            )[0]
        )
        for name in ("lamb", "adamw")
    )
    for name in ("dense/bias", "layer_norm/scale"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
    norm = np.linalg.norm(params["dense"]["kernel"])
    direction = expected["dense/kernel"] / np.linalg.norm(expected["dense/kernel"])
    np.testing.assert_allclose(found["dense/kernel"], norm * direction, rtol=1e-5)


def test_a_known_norm_is_not_computed_again(params):
    config = make_config("bert_adam", "constant", average_fraction=0.5)
    tx, _ = make_optimizer(config, 10, 0)
    grads = jax.tree.map(lambda p: np.full_like(p, 3.0), params)
    norm = optax.tree.norm(grads)
    states = [
        tx.update(grads, tx.init(params), params, **known)[1]
        for known in ({}, {"gradient_norm": norm}, {"gradient_norm": 2 * norm})
    ]
    for mu, factor in zip(
        (optax.tree.get(state, "mu") for state in states), (1, 1, 0.5), strict=True
    ):
        np.testing.assert_allclose(optax.tree.norm(mu), factor * (1 - BETA1), rtol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_makes_updates(name, params):
    tx, _ = make_optimizer(make_config(name), num_steps=10, warmup_steps=2)
    state = tx.init(params)
    for _ in range(2):  # the rate of the first update is 0
        updates, state = jax.jit(tx.update)(jax.tree.map(np.ones_like, params), state, params)
    moments = {"adagrad": ("sum_of_squares",), "adafactor": (), "muon": ()}.get(name, ("mu", "nu"))
    for moment in moments:
        shapes = jax.tree.map(jnp.shape, optax.tree_utils.tree_get(state, moment))
        assert shapes == jax.tree.map(jnp.shape, params)
    assert jax.tree.structure(updates) == jax.tree.structure(params)
    for update, param in zip(jax.tree.leaves(updates), jax.tree.leaves(params), strict=True):
        assert update.dtype == param.dtype and update.shape == param.shape
        assert np.isfinite(update).all() and (update < 0).all()


def test_decayed_parameters_are_those_of_the_golden_file():
    task = make_task(num_layers=1)
    params = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
    leaves, _ = jax.tree_util.tree_flatten_with_path(decay_mask(params, NO_DECAY))
    lines = [f"{path_name(path)}: {'decays' if d else 'does not'}\n" for path, d in leaves]
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.write_text("".join(lines))
    assert "".join(lines) == GOLDEN.read_text(), (
        "UPDATE_GOLDENS=1 pytest writes it, if that is right"
    )


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"name": "sgd"}, "Unknown optimizer 'sgd'. Available: bert_adam, "),
        ({"schedule": "noam"}, "Unknown schedule 'noam'. Available: bert_linear, "),
    ],
)
def test_unknown_names_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(make_config(**changes), num_steps=10, warmup_steps=1)


# ------------------------------------------------------------------ layer by layer


# Factors of the rate multiply the updates of any optimizer.
FACTORED = ("bert_adam", "muon")
# Depth of each parameter: the factor of its rate is decay ** (layers + 1 - depth).
DEPTHS = {
    "bert/embeddings/word_embeddings/embedding": 0,
    "bert/embeddings/layer_norm/scale": 0,
    "bert/encoder/layer_0/attention/query/kernel": 1,
    "bert/encoder/layer_1/output/bias": 2,
    "bert/encoder/layer_10/output/kernel": 11,
    "bert/encoder/layer_11/layer_norm/scale": 12,
    "bert/encoder/layer_norm/scale": 13,
    "bert/pooler/kernel": 13,
    "classifier/kernel": 13,
    "lstm_0_forward/hi/kernel": 13,
    "scalar_mix/weights": 13,
}


@pytest.fixture
def deep_params():
    rng = np.random.default_rng(2)
    return unflatten({name: rng.normal(size=3).astype(np.float32) for name in DEPTHS})


def updates_of(params, config, steps=3):
    """What each of a few updates adds, by path; gradients are the same for all settings."""
    tx, _ = make_optimizer(config, 10, 0)
    state, rng, found = tx.init(params), np.random.default_rng(3), []
    for _ in range(steps):
        grads = jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), params)
        updates, state = jax.jit(tx.update)(grads, state, params)
        found.append(flatten(updates))
    return found


@pytest.mark.parametrize("name", FACTORED)
def test_layer_decay_is_a_power_for_each_layer_above(name, deep_params):
    """Weight decay included; the gradient's norm is that of the whole model."""
    plain = updates_of(deep_params, make_config(name))
    decayed = updates_of(deep_params, make_config(name, layer_decay=0.8))
    for before, after in zip(plain, decayed, strict=True):
        for path, depth in DEPTHS.items():
            np.testing.assert_allclose(after[path], before[path] * 0.8 ** (13 - depth), rtol=1e-5)


@pytest.mark.parametrize("frozen_layers, trained_from", [(1, 2), (11, 12)])
def test_frozen_layers_are_the_embeddings_and_the_first_ones(
    frozen_layers, trained_from, deep_params
):
    config = make_config(frozen_layers=frozen_layers, weight_decay=0.5, clip_norm=0.0)
    open_config = make_config(weight_decay=0.5, clip_norm=0.0)
    plain, frozen = updates_of(deep_params, open_config), updates_of(deep_params, config)
    for before, after in zip(plain, frozen, strict=True):
        for path, depth in DEPTHS.items():
            kept = before[path] if depth >= trained_from else np.zeros(3)
            np.testing.assert_array_equal(after[path], kept, err_msg=path)


def test_minus_one_freezes_all_of_the_encoder_and_the_pooler(deep_params):
    for updates in updates_of(deep_params, make_config(frozen_layers=-1, weight_decay=0.5)):
        for path, update in updates.items():
            assert update.any() != path.startswith("bert/"), path


def test_frozen_parameters_do_not_count_in_the_norm_even_with_nan(deep_params):
    tx, _ = make_optimizer(make_config(frozen_layers=-1, clip_norm=1e-3), 10, 0)
    grads = jax.tree.map(np.ones_like, deep_params)
    calm, _ = tx.update(grads, tx.init(deep_params), deep_params)
    grads["bert"] = jax.tree.map(lambda g: np.nan * g, grads["bert"])
    known = {"gradient_norm": optax.tree.norm(grads)}
    wild, _ = tx.update(grads, tx.init(deep_params), deep_params, **known)
    jax.tree.map(np.testing.assert_array_equal, wild, calm)
    assert all(np.isfinite(update).all() for update in jax.tree.leaves(wild))


# ------------------------------------------------------------------ by patterns


@pytest.mark.parametrize("name", FACTORED)
def test_rates_are_those_of_the_first_pattern_and_multiply_those_of_the_layers(name, deep_params):
    plain = updates_of(deep_params, make_config(name, layer_decay=0.8))
    rates = (("layer_1/", 3), ("embedding$|^lstm", 0.5), ("bert", 2.0), ("scalar_mix", 0))
    scaled = updates_of(deep_params, make_config(name, layer_decay=0.8, rates=rates))
    factors = {
        "bert/embeddings/word_embeddings/embedding": 0.5,
        "bert/encoder/layer_1/output/bias": 3,
        "classifier/kernel": 1,
        "lstm_0_forward/hi/kernel": 0.5,
        "scalar_mix/weights": 0,
    }
    for before, after in zip(plain, scaled, strict=True):
        for path in DEPTHS:
            expected = before[path] * factors.get(path, 2)
            np.testing.assert_allclose(after[path], expected, rtol=1e-5, err_msg=path)


def test_a_rate_whose_pattern_matches_no_parameter_is_refused_before_the_first_step(deep_params):
    tx, _ = make_optimizer(make_config(rates=(("bert", 2.0), ("layer_12/", 3.0))), 10, 0)
    message = (
        r"'layer_12/' matches none of the model's 11 parameters, .* bert/encoder/\S+, \S+: cor"
    )
    with pytest.raises(UserError, match=message):
        jax.eval_shape(tx.init, deep_params)


@pytest.mark.parametrize(
    "rates, message",
    [
        (("bias", 2.0), r"are not pairs of a regular expression and a factor of at least 0"),
        ((("bias", -1.0),), r"\(\('bias', -1\.0\),\) are not pairs"),
        ((("bias", math.nan),), "are not pairs"),
        ((("bias", True),), "are not pairs"),
        (((2.0, "bias"),), "are not pairs"),
        ((("bias(", 1.0),), r"rates=\('bias\(',\) are not regular expressions: missing \)"),
    ],
)
def test_malformed_rates_are_refused(rates, message):
    with pytest.raises(UserError, match=message):
        make_config(rates=rates)
