"""Losses that are added to those of a task, against closed forms, and in parts of a batch."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.config.groups import DistillationConfig
from bert_jax.config.task import default_config
from bert_jax.devices import sharding
from bert_jax.files.errors import UserError
from bert_jax.tasks.auxiliary import Losses, add_losses
from bert_jax.tasks.class_loss import ClassLoss
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.distillation import Distilled
from bert_jax.tasks.losses import Sum, loss_names
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.training.state import init_params, init_state, parameter_rules
from bert_jax.training.step import train_step
from tests.tiny import make_batch, make_mesh, make_model, make_task

MODEL = make_model(num_layers=1, dropout_rate=0.0, attention_dropout_rate=0.0)
CAUSAL = dataclasses.replace(MODEL, attention_pattern="causal", pad_vocab_to_multiple_of=48)
MIX: Any = {"layers": "mix_with_embeddings", "pool": "mean", "lm_weight": 1.0}
NO_DROPOUT = {"num_layers": 1, "dropout_rate": 0.0, "attention_dropout_rate": 0.0}
PRETRAINING = make_task(**NO_DROPOUT)
TEACHER = dataclasses.replace(PRETRAINING.model, hidden_size=24)
COPYING = make_task(next_sentence=False, copy_head=True, **NO_DROPOUT)


def z_loss(outputs, batch):
    log_z = jax.nn.logsumexp(outputs.masked_lm_logits, axis=-1)
    weights = batch["masked_lm_weights"]
    return Sum(1e-2 * (log_z**2 * weights).sum(), weights.sum())


def make_choices() -> dict[str, np.ndarray]:
    """Eight rows of two choices of different lengths; a choice and a whole row are padding."""
    flat = make_batch(16, seed=3)
    flat["example_ids"][[5, 14, 15]] = 0
    names = ("input_ids", "token_type_ids", "position_ids", "example_ids", "cls_positions")
    batch = {name: flat[name].reshape(8, 2, -1) for name in names}
    weights = np.array([1, 1, 1, 1, 1, 1, 1, 0], np.float32)
    return batch | {"labels": np.array([0, 1, 0, 1, 1, 0, 1, 0], np.int32), "weights": weights}


def make_texts() -> dict[str, np.ndarray]:
    """Eight rows, the last of padding; rare labels are not spread evenly over microbatches."""
    labels, weights = np.array([2, 2, 0, 1, 0, 0, 0, 0], np.int32), np.ones(8, np.float32)
    weights[7] = 0
    return make_batch(8) | {"labels": labels, "weights": weights}


# Name -> task, batch. The masks of pre-training differ from row to row.
CASES = {
    "pretraining": (PRETRAINING, make_batch(8)),
    "copy_head": (COPYING, make_batch(8)),
    "own_loss": (add_losses(PRETRAINING, {"z_loss": z_loss}), make_batch(8)),
    "choices": (MultipleChoice(model=CAUSAL, **MIX), make_choices()),
    "head_losses": (
        Losses(lm_weight=0.25, mix_l2=0.1).add_to(MultipleChoice(model=CAUSAL, **MIX)),
        make_choices(),
    ),
    "class_weights": (
        Classification(
            model=MODEL, labels=("a", "b", "c"), class_loss=ClassLoss((0.2, 1.0, 9.0), 0.1)
        ),
        make_texts(),
    ),
    "distilled": (
        Distilled(
            PRETRAINING,
            dataclasses.replace(PRETRAINING, model=TEACHER),
            DistillationConfig(teacher="runs/teacher", temperature=2.0),
            model=PRETRAINING.model,
        ),
        make_batch(8),
    ),
}
# jax sorts the names.
DISTILLED = (
    *("weighted_masked_lm_distilled_loss", "weighted_masked_lm_loss"),
    *("weighted_next_sentence_distilled_loss", "weighted_next_sentence_loss"),
)


def random_params(task):
    shapes = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), shapes)


def gradient_of(task, batch, num_microbatches=1, mesh_shape=(1, 1, 1)):
    """(gradient, metrics) of the real training step, which keeps the parameters."""
    mesh, params, key = make_mesh(*mesh_shape), random_params(task), jax.random.key(0)
    constants = {}
    if isinstance(task, Distilled):
        where = sharding.parameter_shardings(
            mesh, parameter_rules(task.teacher), teacher := random_params(task.teacher)
        )
        constants = {"teacher": jax.device_put(teacher, where)}
    tx = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
    where = sharding.parameter_shardings(mesh, parameter_rules(task), params)
    state = init_state(task, tx, mesh, key, jax.device_put(params, where))
    step = functools.partial(train_step, task=task, tx=tx, num_microbatches=num_microbatches)
    step = jax.jit(functools.partial(sharding.on_mesh(mesh, step)))
    batch = sharding.shard_batch(mesh, batch, len(batch["example_ids"]), 0)
    state, metrics = step(state, batch, {"dropout": key, "masking": key}, constants)
    return jax.device_get(state.opt_state[0].trace), jax.device_get(metrics)


@functools.cache
def whole_gradient(name):
    return gradient_of(*CASES[name])


def outputs_of(task, params, batch):
    apply = functools.partial(task.make_model().apply, deterministic=True)
    return jax.jit(apply)({"params": params}, batch)


def assert_close(tree, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), tree, other)


# ------------------------------------------------------------------ gradients


@pytest.mark.parametrize(
    "name, names",
    [
        ("own_loss", ("masked_lm_loss", "next_sentence_loss", "z_loss")),
        ("copy_head", ("masked_lm_loss",)),
        ("head_losses", ("mix_l2_loss", "task_loss", "weighted_lm_loss")),
        ("class_weights", ("task_loss",)),
        ("distilled", DISTILLED),
    ],
)
def test_the_gradient_is_the_same_in_microbatches_on_a_mesh(name, names):
    whole, metrics = whole_gradient(name)
    assert loss_names(metrics.sums) == names
    assert metrics.finite.keys() == {*names, "gradient_norm"}
    parts, of_parts = gradient_of(*CASES[name], num_microbatches=4, mesh_shape=(1, 2, 2))
    assert_close(parts, whole, rtol=1e-4, atol=1e-5)
    assert_close(of_parts.sums, metrics.sums, rtol=1e-5)


def test_a_loss_of_ones_own_adds_its_own_gradient():
    (both, metrics), (without, _) = map(whole_gradient, ("own_loss", "pretraining"))
    task, batch = CASES["pretraining"]
    batch = jax.jit(task.transform)(jax.random.fold_in(jax.random.key(0), 0), batch)

    def mean(params):
        outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
        log_z = jax.nn.logsumexp(outputs.masked_lm_logits, axis=-1)
        return 1e-2 * jnp.average(log_z**2, weights=batch["masked_lm_weights"])

    value, expected = jax.jit(jax.value_and_grad(mean))(random_params(task))
    added = jax.tree.map(lambda a, b: a - b, both, without)
    assert_close(added, expected, rtol=1e-4, atol=1e-5)
    found = metrics.sums["z_loss"]
    np.testing.assert_allclose(found.numerator / found.denominator, value, rtol=1e-5)


def test_the_penalty_is_the_sum_of_the_squares_of_the_weights():
    (gradient, metrics), (other, _) = map(whole_gradient, ("head_losses", "choices"))
    weights = random_params(CASES["choices"][0])["scalar_mix"]["weights"]
    assert len(weights) == MODEL.num_layers + 1
    penalty = metrics.sums["mix_l2_loss"]
    np.testing.assert_allclose(
        penalty.numerator / penalty.denominator, 0.1 * (weights**2).sum(), rtol=1e-6
    )
    added = gradient["scalar_mix"]["weights"] - other["scalar_mix"]["weights"]
    np.testing.assert_allclose(added, 2 * 0.1 * weights, atol=1e-6)
    assert_close(gradient["classifier"], other["classifier"], atol=1e-6)


def by_sums(outputs, batch):
    probabilities = jax.nn.softmax(outputs.masked_lm_logits)
    return Sum(probabilities.max(), probabilities.sum())


def by_comparisons(outputs, batch):
    logits = outputs.masked_lm_logits
    return Sum(logits.sum(), (logits > 0).sum())


@pytest.mark.parametrize("wrong", [by_comparisons, pytest.param(by_sums, marks=pytest.mark.slow)])
def test_a_denominator_that_depends_on_outputs_is_not_finite_in_microbatches(wrong):
    task, batch = CASES["pretraining"]
    task = add_losses(task, {"wrong": wrong})
    _, metrics = gradient_of(task, batch, num_microbatches=2)
    assert not metrics.applied and not metrics.finite["gradient_norm"]


# ------------------------------------------------------------------ values


def test_the_loss_of_next_tokens_is_a_mean_of_means_and_changes_nothing_else():
    task, batch = CASES["head_losses"]
    params = random_params(task)
    outputs = outputs_of(task, params, batch)
    logits = np.asarray(outputs.reading.scores.logits(), np.float64)[..., : CAUSAL.vocab_size]
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    of_sequences = []
    for number, is_token in enumerate(batch["example_ids"].reshape(16, -1) > 0):
        ids = batch["input_ids"].reshape(16, -1)[number][is_token]
        if len(ids):
            of_sequences.append(
                -np.mean([logs[number, i, ids[i + 1]] for i in range(len(ids) - 1)])
            )
    assert len(of_sequences) == 13
    sums = task.all_losses(outputs, batch)
    np.testing.assert_allclose(sums["lm_loss"].numerator, sum(of_sequences), rtol=1e-5)
    assert sums["lm_loss"].denominator == sums["weighted_lm_loss"].denominator == 13
    weighted = sums["weighted_lm_loss"]
    np.testing.assert_allclose(weighted.numerator, 0.25 * sums["lm_loss"].numerator, rtol=1e-6)

    plain, _ = CASES["choices"]
    without_lm = dataclasses.replace(plain, lm_weight=0.0)
    others = outputs_of(without_lm, params, batch)
    assert_close(
        (task.answers(outputs, batch), sums["task_loss"]),
        (plain.answers(others, batch), plain.losses(others, batch)["task_loss"]),
        rtol=1e-6,
    )


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    "name, function, message",
    [
        ("loss", z_loss, "'loss' cannot be the name of a loss: take letters"),
        ("z-loss", z_loss, "'z-loss' cannot be the name of a loss: take letters"),
        ("masked_lm_loss", z_loss, "masked_lm_loss is a loss or a metric of the task itself"),
        ("z", lambda o, _: o.logits, "'z' reads outputs.logits, .* have masked_lm_logits, "),
        ("z", lambda *_: 1.0, "'z' returned float, and must return Sum\\(numerator, denominator"),
        ("z", lambda *_: Sum(jnp.ones(8), jnp.ones(())), r"'z' returned .* shapes \(8,\) and \(\)"),
    ],
)
def test_losses_of_ones_own_that_are_refused(name, function, message):
    task, batch = CASES["pretraining"]
    with pytest.raises(UserError, match=message):
        with_loss = add_losses(task, {name: function})
        batch = jax.jit(task.transform)(jax.random.key(0), batch)
        with_loss.all_losses(outputs_of(task, random_params(task), batch), batch)


def test_without_weights_the_task_is_the_task_itself():
    task = Classification(model=MODEL, labels=("a", "b"))
    assert Losses().add_to(task) is task


def test_losses_that_have_no_sense_are_refused():
    task = Classification(model=MODEL, labels=("a", "b"))
    with pytest.raises(ValueError, match="lm_weight=0.5 adds the loss of the next token, which th"):
        Losses(lm_weight=0.5).add_to(task)
    values = {"task.lm_weight": 0.5, "optimizer.frozen_layers": -1}
    with pytest.raises(ValueError, match="lm_weight=0.5 trains the encoder, which .*=-1 freezes"):
        default_config("classification").replace(values)
    causal = dataclasses.replace(task, model=CAUSAL)
    assert Losses(lm_weight=0.5).add_to(causal).further
