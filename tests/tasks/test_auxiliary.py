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
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.distillation import apply_both, training_losses
from bert_jax.tasks.losses import Sum, loss_names
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.tasks.task import Taught
from bert_jax.training.state import init_params, init_state, parameter_rules
from bert_jax.training.step import train_step
from tests.tiny import make_batch, make_mesh, make_model, make_task

NO_DROPOUT = {"num_layers": 1, "dropout_rate": 0.0, "attention_dropout_rate": 0.0}
MODEL = make_model(**NO_DROPOUT)
CAUSAL = dataclasses.replace(MODEL, attention_pattern="causal", pad_vocab_to_multiple_of=48)
MIX: Any = {"layers": "mix_with_embeddings", "pool": "mean", "lm_weight": 1.0}
CHOICES = MultipleChoice(model=CAUSAL, **MIX)
HEAD_LOSSES = Losses(lm_weight=0.25, mix_l2=0.1).add_to(CHOICES)
PRETRAINING = make_task(**NO_DROPOUT)
TEACHER = dataclasses.replace(PRETRAINING.model, hidden_size=24)


def z_loss(outputs, batch):
    log_z = jax.nn.logsumexp(outputs.masked_lm_logits, axis=-1)
    weights = batch["masked_lm_weights"]
    return Sum(1e-2 * (log_z**2 * weights).sum(), weights.sum())


TAUGHT = Taught(
    dataclasses.replace(PRETRAINING, model=TEACHER),
    DistillationConfig(teacher="runs/teacher", temperature=2.0),
)
DISTILLED = dataclasses.replace(add_losses(PRETRAINING, {"z_loss": z_loss}), taught=TAUGHT)


def make_choices() -> dict[str, np.ndarray]:
    """Eight rows of two choices of different lengths; a choice and a whole row are padding."""
    flat = make_batch(16, seed=3)
    flat["example_ids"][[5, 14, 15]] = 0
    names = ("input_ids", "token_type_ids", "position_ids", "example_ids", "cls_positions")
    batch = {name: flat[name].reshape(8, 2, -1) for name in names}
    weights = np.array([1, 1, 1, 1, 1, 1, 1, 0], np.float32)
    return batch | {"labels": np.array([0, 1, 0, 1, 1, 0, 1, 0], np.int32), "weights": weights}


def random_params(task):
    shapes = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), shapes)


def gradient_of(task, batch, num_microbatches, mesh_shape=(1, 1, 1)):
    """(gradient, metrics) of the real training step, which keeps the parameters."""
    mesh, params, key = make_mesh(*mesh_shape), random_params(task), jax.random.key(0)
    constants = {}
    if task.taught:
        rules, teacher = parameter_rules(task.taught.teacher), random_params(task.taught.teacher)
        where = sharding.parameter_shardings(mesh, rules, teacher)
        constants = {"teacher": jax.device_put(teacher, where)}
    tx = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
    where = sharding.parameter_shardings(mesh, parameter_rules(task), params)
    state = init_state(task, tx, mesh, key, jax.device_put(params, where))
    step = functools.partial(train_step, task=task, tx=tx, num_microbatches=num_microbatches)
    step = jax.jit(functools.partial(sharding.on_mesh(mesh, step)))
    batch = sharding.shard_batch(mesh, batch, len(batch["example_ids"]), 0)
    state, metrics = step(state, batch, {"dropout": key, "masking": key}, constants)
    return jax.device_get(state.opt_state[0].trace), jax.device_get(metrics)


@functools.partial(jax.jit, static_argnums=0)
def outputs_of(task, params, batch):
    return task.make_model().apply({"params": params}, batch, deterministic=True)


def assert_close(tree, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), tree, other)


# ------------------------------------------------------------------ gradients


@pytest.mark.parametrize(
    "task, batch, names",
    [
        (HEAD_LOSSES, make_choices(), ("mix_l2_loss", "task_loss", "weighted_lm_loss")),
        (
            DISTILLED,  # with a loss of one's own; the masks differ from row to row
            make_batch(8),
            (
                *("weighted_masked_lm_distilled_loss", "weighted_masked_lm_loss"),
                *("weighted_next_sentence_distilled_loss", "weighted_next_sentence_loss"),
                "z_loss",
            ),
        ),
    ],
    ids=["losses of heads", "distilled"],
)
def test_in_microbatches_on_a_mesh_the_gradient_is_that_of_the_sum_of_the_means(task, batch, names):
    found, metrics = gradient_of(task, batch, num_microbatches=4, mesh_shape=(1, 2, 2))
    assert loss_names(metrics.sums) == names  # jax sorts them
    assert metrics.finite.keys() == {*names, "gradient_norm"}
    teacher = random_params(task.taught.teacher) if task.taught else {}

    def loss(params):
        masked = task.transform(jax.random.fold_in(jax.random.key(0), 0), batch)
        outputs = task.make_model().apply({"params": params}, masked)
        outputs = apply_both(task, outputs, teacher, masked) if teacher else outputs
        sums = training_losses(task, outputs, masked)
        return sum(sums[name].numerator / sums[name].denominator for name in names), sums

    (_, sums), expected = jax.jit(jax.value_and_grad(loss, has_aux=True))(random_params(task))
    assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert_close(metrics.sums, sums, rtol=1e-5)


def test_a_denominator_that_depends_on_outputs_is_not_finite_in_microbatches():
    def by_comparisons(outputs, batch):
        logits = outputs.masked_lm_logits
        return Sum(logits.sum(), (logits > 0).sum())

    task = add_losses(PRETRAINING, {"wrong": by_comparisons})
    _, metrics = gradient_of(task, make_batch(8), num_microbatches=2)
    assert not metrics.applied and not metrics.finite["gradient_norm"]


# ------------------------------------------------------------------ values


def test_the_loss_of_next_tokens_is_a_mean_of_means_and_the_penalty_a_sum_of_squares():
    """And they change nothing else."""
    params, batch = random_params(HEAD_LOSSES), make_choices()
    outputs = outputs_of(HEAD_LOSSES, params, batch)
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
    sums = HEAD_LOSSES.all_losses(outputs, batch)
    np.testing.assert_allclose(sums["lm_loss"].numerator, sum(of_sequences), rtol=1e-5)
    assert sums["lm_loss"].denominator == sums["weighted_lm_loss"].denominator == 13
    weighted = sums["weighted_lm_loss"]
    np.testing.assert_allclose(weighted.numerator, 0.25 * sums["lm_loss"].numerator, rtol=1e-6)
    weights, penalty = params["scalar_mix"]["weights"], sums["mix_l2_loss"]
    assert len(weights) == MODEL.num_layers + 1
    mean = penalty.numerator / penalty.denominator
    np.testing.assert_allclose(mean, 0.1 * (weights**2).sum(), rtol=1e-6)

    others = outputs_of(dataclasses.replace(CHOICES, lm_weight=0.0), params, batch)
    assert_close(
        (HEAD_LOSSES.answers(outputs, batch), sums["task_loss"]),
        (CHOICES.answers(others, batch), CHOICES.losses(others, batch)["task_loss"]),
        rtol=1e-6,
    )


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    "name, function, message",
    [
        ("loss", z_loss, "'loss' cannot be the name of a loss"),
        ("z-loss", z_loss, "'z-loss' cannot be the name of a loss"),
        ("masked_lm_loss", z_loss, "masked_lm_loss is a loss or a metric of the task itself"),
        ("z", lambda o, _: o.logits, "'z' reads outputs.logits, .* have masked_lm_logits, "),
        ("z", lambda *_: 1.0, "'z' returned float, and must return Sum"),
        ("z", lambda *_: Sum(jnp.ones(8), jnp.ones(())), r"'z' returned .* shapes \(8,\) and \(\)"),
    ],
)
def test_losses_of_ones_own_that_are_refused(name, function, message):
    def run(batch):
        task = add_losses(PRETRAINING, {name: function})
        batch = task.transform(jax.random.key(0), batch)
        outputs = task.make_model().apply({"params": random_params(task)}, batch)
        return task.all_losses(outputs, batch)

    with pytest.raises(UserError, match=message):
        jax.eval_shape(run, make_batch(8))


def test_losses_that_have_no_sense_are_refused():
    task = Classification(model=MODEL, labels=("a", "b"))
    assert Losses().add_to(task) is task
    with pytest.raises(ValueError, match="lm_weight=0.5 adds the loss of the next token, which th"):
        Losses(lm_weight=0.5).add_to(task)
    values = {"task.lm_weight": 0.5, "optimizer.frozen_layers": -1}
    with pytest.raises(ValueError, match="lm_weight=0.5 trains the encoder, which .*=-1 freezes"):
        default_config("classification").replace(values)
