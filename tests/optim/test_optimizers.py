"""Schedules in closed form, optimizer traces in double precision, and the decay mask."""

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
from bert_jax.config.store import parse
from bert_jax.devices.trees import flatten, path_name, unflatten
from bert_jax.optim.make import make_optimizer
from bert_jax.optim.optimizers import OPTIMIZERS, decay_mask
from bert_jax.optim.schedules import SCHEDULES
from bert_jax.training.state import init_params
from configs import large_batch
from tests.tiny import make_task

GOLDEN = pathlib.Path(__file__).parent / "goldens" / "decay_mask.txt"
NO_DECAY = ("layer_norm", "bias")
NUM_STEPS, WARMUP_STEPS, TRACED_STEPS = 45, 10, 50


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


@pytest.mark.parametrize(
    "name, step, rate",
    [
        ("bert_linear", 0, 0),
        ("bert_linear", 5_000, 5e-5),
        ("bert_linear", 9_999, 9.999e-5),
        ("bert_linear", 10_000, 9.9e-5),  # the line started at step 0: the rate drops here
        ("bert_linear", 500_000, 5e-5),
        ("bert_linear", 999_999, 1e-10),
        ("bert_linear", 1_000_000, 0),
        ("bert_linear", 1_100_000, 0),
        ("linear", 0, 0),
        ("linear", 9_999, 9.999e-5),
        ("linear", 10_000, 1e-4),
        ("linear", 505_000, 5e-5),
        ("linear", 999_999, 1e-4 / 990_000),
        ("linear", 1_000_000, 0),
        ("linear", 1_100_000, 0),
        ("trapezoid", 9_999, 9.999e-5),
        ("trapezoid", 10_000, 1e-4),
        ("trapezoid", 800_000, 1e-4),
        ("trapezoid", 900_000, 5e-5),  # the tail is the last fifth
        ("trapezoid", 999_999, 5e-10),
        ("trapezoid", 1_000_000, 0),
        ("trapezoid", 1_100_000, 0),
        ("constant", 0, 0),
        ("constant", 9_999, 9.999e-5),
        ("constant", 10_000, 1e-4),
        ("constant", 1_100_000, 1e-4),
        ("cosine", 0, 0),
        ("cosine", 9_999, 9.999e-5),
        ("cosine", 10_000, 1e-4),
        ("cosine", 340_000, 0.75e-4),  # a third of the way down: cos(pi / 3) = 1 / 2
        ("cosine", 505_000, 0.5e-4),
        ("cosine", 1_000_000, 0),
        ("cosine", 1_100_000, 0),
        ("root", 9_999, 9.999e-5),
        ("root", 10_000, 1e-4 * math.sqrt(0.99)),
        ("root", 750_000, 0.5e-4),
        ("root", 1_000_000, 0),
        ("root", 1_100_000, 0),
        ("gpt_cosine", 5_000, 5e-5),
        ("gpt_cosine", 10_000, 0.5e-4 * (1 + math.cos(0.01 * math.pi))),
        ("gpt_cosine", 500_000, 0.5e-4),
        ("gpt_cosine", 750_000, 0.5e-4 * (1 - math.sqrt(0.5))),
        ("gpt_cosine", 1_100_000, 0),
        ("gpt_linear", 5_000, 5e-5 * 0.995),  # the decay multiplies the warm-up too
        ("gpt_linear", 9_999, 9.999e-5 * 0.990_001),
        ("gpt_linear", 10_000, 9.9e-5),
        ("gpt_linear", 500_000, 5e-5),
        ("gpt_linear", 1_100_000, 0),
    ],
)
def test_rates_of_the_million_steps_of_the_paper(name, step, rate):
    config = make_config(schedule=name, learning_rate=1e-4, decay_fraction=0.2)
    schedule = SCHEDULES[name](config, 1_000_000, 10_000)
    np.testing.assert_allclose(schedule(step), rate, rtol=1e-6, atol=1e-11)
    np.testing.assert_allclose(jax.jit(schedule)(step), rate, rtol=1e-6, atol=1e-11)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_warmup_the_first_rate_is_the_peak(name):
    assert SCHEDULES[name](make_config(learning_rate=1e-4), 100, 0)(0) == np.float32(1e-4)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_may_be_all_warmup(name):
    schedule = SCHEDULES[name](make_config(learning_rate=1e-4, decay_fraction=1e-6), 10, 10)
    rates = jax.vmap(schedule)(jnp.arange(10))
    decay = 1 - np.arange(10) / 10 if name == "gpt_linear" else 1
    np.testing.assert_allclose(rates, 1e-5 * np.arange(10) * decay, rtol=1e-6)


def test_a_schedule_that_begins_anew_in_each_phase():
    """Of configs/large_batch.py: 7,038 and 1,563 updates, each as if it were a run by itself."""
    config = parse(large_batch.get_config()).optimizer
    _, rate = make_optimizer(config, 8601, 10_000)
    for first, steps, peak, warmup in ((0, 7038, 6e-3, 0.2843), (7038, 1563, 4e-3, 0.128)):
        risen = round(warmup * steps)
        for step in (0, 1, risen - 1, risen, steps // 2, steps - 1):
            expected = peak * (step / risen if step < risen else math.sqrt(1 - step / steps))
            np.testing.assert_allclose(rate(first + step), expected, rtol=1e-5)


def make_gradients(params):
    """One tree a step; every other one is so large that it is clipped."""
    rng = np.random.default_rng(1)
    for step in range(TRACED_STEPS):
        scale = 3.0 if step % 2 else 0.1
        yield jax.tree.map(lambda p, s=scale: rng.normal(0, s, p.shape).astype(np.float32), params)


def rate_of(schedule, step, peak):
    """`bert_linear`: `optimization.py`'s polynomial decay of power 1 from step 0, and instead of it
    the warm-up. `linear`: the same from the end of the warm-up. `cosine`: the same with a cosine.
    `trapezoid`: the peak, but for the second half of the steps. The others: as GPT's `opt.py`
    writes them."""
    if schedule.startswith("gpt_"):
        x, warmup = min(step / NUM_STEPS, 1), WARMUP_STEPS / NUM_STEPS
        s = float(step < WARMUP_STEPS)
        if schedule == "gpt_linear":
            return peak * (s * x / warmup + (1 - s)) * (1 - x)
        return peak * (s * x / warmup + (1 - s) * 0.5 * (1 + math.cos(math.pi * x)))
    if step < WARMUP_STEPS:
        return peak * step / WARMUP_STEPS
    if schedule == "constant":
        return peak
    if schedule == "root":
        return peak * math.sqrt(max(0, 1 - step / NUM_STEPS))
    if schedule == "trapezoid":
        half = round(NUM_STEPS / 2)
        return peak * min(1, max(0, NUM_STEPS - step) / half)
    if schedule == "cosine":
        x = min(1, (step - WARMUP_STEPS) / (NUM_STEPS - WARMUP_STEPS))
        return peak * (1 + math.cos(math.pi * x)) / 2
    start = {"bert_linear": 0, "linear": WARMUP_STEPS}[schedule]
    return peak * max(0, NUM_STEPS - step) / (NUM_STEPS - start)


def trace(params, config, corrects_bias):
    """The parameters after each step, from the formulas, in double precision."""
    params, tree = jax.tree.flatten(params)
    params = [p.astype(np.float64) for p in params]
    decays = jax.tree.leaves({"dense": {"kernel": 1, "bias": 0}, "layer_norm": {"scale": 0}})
    m, v = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    for step, grads in enumerate(make_gradients(tree.unflatten(params))):
        grads = [g.astype(np.float64) for g in jax.tree.leaves(grads)]
        norm = np.sqrt(sum((g**2).sum() for g in grads))
        rate = rate_of(config.schedule, step, config.learning_rate)
        for i, g in enumerate(grads):
            g = g * min(1, config.clip_norm / norm)
            m[i] = config.beta1 * m[i] + (1 - config.beta1) * g
            v[i] = config.beta2 * v[i] + (1 - config.beta2) * g**2
            m_scale = 1 / (1 - config.beta1 ** (step + 1)) if corrects_bias else 1
            v_scale = 1 / (1 - config.beta2 ** (step + 1)) if corrects_bias else 1
            direction = m[i] * m_scale / (np.sqrt(v[i] * v_scale) + config.epsilon)
            params[i] = params[i] - rate * (direction + config.weight_decay * decays[i] * params[i])
        yield tree.unflatten(params)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name, corrects_bias", [("bert_adam", False), ("adamw", True)])
def test_a_trace_through_warmup_decay_and_beyond_the_last_step(
    name, corrects_bias, schedule, params
):
    # A large decay and epsilon, so that where they act is seen.
    config = make_config(name, schedule, weight_decay=0.5, epsilon=1e-2)
    tx, _ = make_optimizer(config, NUM_STEPS, WARMUP_STEPS)
    update = jax.jit(tx.update)
    got, state, before = params, tx.init(params), params
    for step, (grads, expected) in enumerate(
        zip(make_gradients(params), trace(params, config, corrects_bias), strict=True)
    ):
        updates, state = update(grads, state, got)
        before, got = got, optax.apply_updates(got, updates)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), got, expected)
        if step == 0 or (step >= NUM_STEPS and schedule != "constant"):  # the rate is 0
            jax.tree.map(np.testing.assert_array_equal, got, before)


@pytest.mark.parametrize("name, corrects_bias", [("bert_adam", False), ("adamw", True)])
def test_the_direction_under_a_constant_gradient_in_closed_form(name, corrects_bias):
    """The averages are then 1 - beta^t times g and g^2; correction of the bias cancels that."""
    tx = OPTIMIZERS[name](make_config(weight_decay=0.0, epsilon=1e-3))
    grads = {"kernel": jnp.array([-3.0, 0.02, 1e-3])}
    state, g = tx.init(grads), np.array([-3.0, 0.02, 1e-3])
    for step in range(1, 21):
        direction, state = tx.update(grads, state, grads)
        m, v = (1.0, 1.0) if corrects_bias else (1 - 0.9**step, 1 - 0.999**step)
        expected = m * g / (np.sqrt(v) * np.abs(g) + 1e-3)
        np.testing.assert_allclose(direction["kernel"], expected, rtol=2e-5)


@pytest.mark.parametrize(
    "schedule, last_of_warmup, first_after, last, beyond",
    [
        ("bert_linear", 0.81, 0.7, 0.02, 0.0),
        ("linear", 0.81, 0.9, 0.9 / 35, 0.0),
        ("constant", 0.81, 0.9, 0.9, 0.9),
        ("cosine", 0.81, 0.9, 0.45 * (1 - math.cos(math.pi / 35)), 0.0),
        ("gpt_linear", 0.81 * 36 / 45, 0.7, 0.02, 0.0),
    ],
)
def test_where_the_warmup_ends_at_the_last_step_and_beyond_it(
    schedule, last_of_warmup, first_after, last, beyond
):
    """Under a gradient of 1 what an update takes away is the rate, over the root of v."""
    tx, rate = make_optimizer(
        make_config(schedule=schedule, learning_rate=0.9, beta1=0.0, epsilon=1e-30, clip_norm=0.0),
        NUM_STEPS,
        WARMUP_STEPS,
    )
    steps = [WARMUP_STEPS - 1, WARMUP_STEPS, NUM_STEPS - 1, NUM_STEPS, NUM_STEPS + 1]
    expected = [last_of_warmup, first_after, last, beyond, beyond]
    np.testing.assert_allclose([rate(step) for step in steps], expected, rtol=1e-6, atol=1e-9)
    bias = {"bias": jnp.ones(1)}
    state, taken = tx.init(bias), []
    for step in range(NUM_STEPS + 2):
        updates, state = tx.update(bias, state, bias)
        root = np.sqrt(1 - 0.999 ** (step + 1))  # of the average of the squares, not corrected
        taken.append(-float(updates["bias"][0]) * root)
    np.testing.assert_allclose([taken[step] for step in steps], expected, rtol=2e-5, atol=1e-9)


def test_a_trace_of_gpts_adam(params):
    """Against `opt.py`'s formulas in double precision; decay, epsilon and rate are large."""
    config = make_config(
        "gpt_adam", "gpt_linear", weight_decay=0.5, epsilon=1e-2, no_decay=(), clip_norm=0.0
    )
    tx, _ = make_optimizer(config, NUM_STEPS, WARMUP_STEPS)
    update, state, got = jax.jit(tx.update), tx.init(params), params
    expected, tree = jax.tree.flatten(params)
    expected = [p.astype(np.float64) for p in expected]
    m, v = [np.zeros_like(p) for p in expected], [np.zeros_like(p) for p in expected]
    for step, grads in enumerate(make_gradients(params)):
        updates, state = update(grads, state, got)
        got = optax.apply_updates(got, updates)
        rate = rate_of("gpt_linear", step, config.learning_rate)
        rate *= math.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        for i, g in enumerate(jax.tree.leaves(grads)):
            g = g.astype(np.float64)
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g**2
            decay = 0.5 * expected[i] if g.ndim > 1 else 0.0
            expected[i] = expected[i] - rate * (m[i] / (np.sqrt(v[i]) + 1e-2) + decay)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, 2e-5, 1e-6), got, tree.unflatten(expected)
        )


def test_gpts_adam_leaves_matrices_that_a_pattern_names():
    zeros, ones = np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)
    tx = OPTIMIZERS["gpt_adam"](make_config(weight_decay=0.5, no_decay=("table",)))
    params = {"table": ones, "kernel": ones, "bias": ones[0]}
    grads = {"table": zeros, "kernel": zeros, "bias": zeros[0]}
    updates, _ = tx.update(grads, tx.init(params), params)
    factor = math.sqrt(1 - 0.999) / (1 - 0.9)
    np.testing.assert_allclose(updates["kernel"], 0.5 * factor * ones, rtol=2e-5)
    assert not updates["table"].any() and not updates["bias"].any()


@pytest.mark.parametrize("initial", [1.0, 0.1])
def test_adagrad_is_torchs_without_its_epsilon(initial, params):
    torch = pytest.importorskip("torch")
    config = make_config(
        "adagrad", "constant", weight_decay=0.0, clip_norm=0.0, initial_accumulator=initial
    )
    tx, _ = make_optimizer(config, NUM_STEPS, 0)
    got, state, update = params, tx.init(params), jax.jit(tx.update)
    theirs = [torch.nn.Parameter(torch.tensor(p)) for p in jax.tree.leaves(params)]
    adagrad = torch.optim.Adagrad(
        theirs, lr=config.learning_rate, initial_accumulator_value=initial, eps=0.0
    )
    for grads in make_gradients(params):
        updates, state = update(grads, state, got)
        got = optax.apply_updates(got, updates)
        for parameter, grad in zip(theirs, jax.tree.leaves(grads), strict=True):
            parameter.grad = torch.tensor(grad)
        adagrad.step()
    for ours, parameter in zip(jax.tree.leaves(got), theirs, strict=True):
        np.testing.assert_allclose(ours, parameter.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_the_first_step_of_adagrad_in_closed_form():
    tx, _ = make_optimizer(
        make_config("adagrad", "constant", learning_rate=0.2, weight_decay=0.0, clip_norm=0.0), 9, 0
    )
    grads = {"kernel": jnp.array([3.0, -0.75, 0.0])}
    updates, _ = tx.update(grads, tx.init(grads), grads)
    expected = [-0.2 * 3 / math.sqrt(10), 0.2 * 0.75 / 1.25, 0.0]
    np.testing.assert_allclose(updates["kernel"], expected, rtol=1e-6)


LAYER_MATRIX = "bert/encoder/layer_0/output/kernel"


@pytest.fixture
def layer_params():
    shapes = {
        LAYER_MATRIX: (24, 16),
        "bert/encoder/layer_0/output/bias": (16,),
        "bert/embeddings/word_embeddings/embedding": (40, 16),
        "classifier/kernel": (16, 3),
    }
    rng = np.random.default_rng(4)
    return unflatten({n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()})


def test_muon_makes_the_momentum_of_matrices_orthogonal_and_leaves_the_rest_to_adam(layer_params):
    """The singular vectors are those of the momentum, the singular values near 1."""
    values = {"learning_rate": 0.02, "weight_decay": 0.0, "clip_norm": 0.0, "no_decay": ()}
    muon, adam = (
        make_optimizer(make_config(name, "constant", **values), NUM_STEPS, 0)[0]
        for name in ("muon", "adamw")
    )
    rng, momentum = np.random.default_rng(5), 0.0
    state, adam_state = muon.init(layer_params), adam.init(layer_params)
    for step in range(1, 6):
        grads = jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), layer_params)
        updates, state = jax.jit(muon.update)(grads, state, layer_params)
        others, adam_state = jax.jit(adam.update)(grads, adam_state, layer_params)
        found, others = flatten(updates), flatten(others)
        for name in found.keys() - {LAYER_MATRIX}:
            np.testing.assert_allclose(found[name], others[name], rtol=1e-6, err_msg=name)
        gradient = flatten(grads)[LAYER_MATRIX].astype(np.float64)
        momentum = 0.95 * momentum + 0.05 * gradient
        looked_ahead = 0.95 * momentum / (1 - 0.95 ** (step + 1))
        looked_ahead += 0.05 * gradient / (1 - 0.95**step)
        left, _, right = np.linalg.svd(looked_ahead, full_matrices=False)
        direction = found[LAYER_MATRIX] / (-0.02 * 0.2 * math.sqrt(24))
        in_their_basis = left.T @ direction @ right.T
        singular = np.diag(in_their_basis)
        np.testing.assert_allclose(in_their_basis, np.diag(singular), atol=1e-3)
        assert (0.6 < singular).all() and (singular < 1.3).all()


def test_the_first_step_of_muon_is_torchs(layer_params):
    """Later ones differ: torch does not correct the bias of the momentum."""
    torch = pytest.importorskip("torch")
    values = {"learning_rate": 0.02, "weight_decay": 0.1, "clip_norm": 0.0, "no_decay": ()}
    tx, _ = make_optimizer(make_config("muon", "constant", **values), NUM_STEPS, 0)
    before, grads = flatten(layer_params)[LAYER_MATRIX], jax.tree.map(np.cos, layer_params)
    updates, _ = tx.update(grads, tx.init(layer_params), layer_params)
    theirs = torch.nn.Parameter(torch.tensor(before))
    theirs.grad = torch.tensor(flatten(grads)[LAYER_MATRIX])
    options = {"lr": 0.02, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}
    torch.optim.Muon([theirs], **options).step()
    moved, expected = flatten(updates)[LAYER_MATRIX], theirs.detach().numpy() - before
    # torch iterates in bfloat16.
    assert np.linalg.norm(moved - expected) < 0.02 * np.linalg.norm(expected)


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


def test_the_released_epsilon_is_outside_the_root():
    tx = OPTIMIZERS["bert_adam"](make_config(weight_decay=0.0))
    grads = jnp.float32(1e-5)
    direction, _ = tx.update(grads, tx.init(grads), grads)
    m, root = 0.1 * 1e-5, np.sqrt(0.001) * 1e-5
    np.testing.assert_allclose(np.asarray(direction), m / (root + 1e-6), rtol=1e-5)


def test_a_clip_norm_of_0_does_not_clip(params):
    config = make_config("adamw", "constant", clip_norm=0.0)
    tx, _ = make_optimizer(config, 10, 0)
    grads = jax.tree.map(lambda p: 100 * p, params)
    _, state = tx.update(grads, tx.init(params), params)
    moments = optax.tree_utils.tree_get(state, "mu")
    jax.tree.map(lambda m, g: np.testing.assert_allclose(m, 0.1 * g, 1e-5), moments, grads)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_with_every_schedule_makes_updates(name, schedule, params):
    tx, rate = make_optimizer(make_config(name, schedule), num_steps=10, warmup_steps=2)
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
    np.testing.assert_allclose(rate(1), 5e-3 * (0.9 if schedule == "gpt_linear" else 1), rtol=1e-6)


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


def test_patterns_are_searched_anywhere_in_the_path_and_none_means_that_all_decay(params):
    flat = lambda *patterns: jax.tree.leaves(decay_mask(params, patterns))  # noqa: E731
    assert [path_name(p) for p, _ in jax.tree_util.tree_flatten_with_path(params)[0]] == [
        "dense/bias",
        "dense/kernel",
        "layer_norm/scale",
    ]
    assert flat() == [True, True, True]
    assert flat("^dense/") == [False, False, True]
    assert flat("bias$", "norm") == [False, True, False]


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"name": "sgd"},
            r"Unknown optimizer 'sgd'\. Available: bert_adam, adamw, gpt_adam, adagrad,"
            r" adafactor, lamb, muon\.",
        ),
        (
            {"schedule": "noam"},
            r"Unknown schedule 'noam'\. Available: bert_linear, linear, trapezoid, constant,"
            r" cosine, root, gpt_linear, gpt_cosine\.",
        ),
    ],
)
def test_unknown_names_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(make_config(**changes), num_steps=10, warmup_steps=1)


# ------------------------------------------------------------------ layer by layer


# Depth of each parameter: the factor of its rate is decay ** (layers + 1 - depth).
DEPTHS = {
    "bert/embeddings/word_embeddings/embedding": 0,
    "bert/embeddings/layer_norm/scale": 0,
    "bert/encoder/layer_0/attention/query/kernel": 1,
    "bert/encoder/layer_1/output/bias": 2,
    "bert/encoder/layer_10/output/kernel": 11,
    "bert/encoder/layer_11/layer_norm/scale": 12,
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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_layer_decay_is_a_power_for_each_layer_above(name, deep_params):
    """Weight decay included; the gradient's norm is that of the whole model."""
    plain = updates_of(deep_params, make_config(name))
    decayed = updates_of(deep_params, make_config(name, layer_decay=0.8))
    for before, after in zip(plain, decayed, strict=True):
        for path, depth in DEPTHS.items():
            np.testing.assert_allclose(after[path], before[path] * 0.8 ** (13 - depth), rtol=1e-5)


@pytest.mark.parametrize("frozen_layers, trained_from", [(1, 2), (2, 3), (11, 12), (12, 13)])
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
    wild, _ = tx.update(grads, tx.init(deep_params), deep_params)
    jax.tree.map(np.testing.assert_array_equal, wild, calm)
    assert all(np.isfinite(update).all() for update in jax.tree.leaves(wild))
