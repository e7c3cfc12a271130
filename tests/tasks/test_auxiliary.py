"""Losses that are added to those of a task, against closed forms, and in parts of a batch."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.models.reading import HeadConfig
from bert_jax.tasks.auxiliary import Losses, WithLosses
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.losses import loss_names
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.tasks.task import TaskSettings
from bert_jax.training.state import TrainState, init_params
from bert_jax.training.step import train_step
from tests.tiny import make_batch, make_model

LAST = HeadConfig(pool="last", pooler=False)
MIX = HeadConfig(layers="mix_with_embeddings", pool="mean")
NO_DROPOUT = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}


def choices_batch() -> dict[str, np.ndarray]:
    """Eight rows of two choices of different lengths; a choice and a whole row are padding."""
    flat = make_batch(16, seed=3)
    flat["example_ids"][[5, 14, 15]] = 0
    names = ("input_ids", "token_type_ids", "position_ids", "example_ids", "cls_positions")
    batch = {name: flat[name].reshape(8, 2, -1) for name in names}
    weights = np.array([1, 1, 1, 1, 1, 1, 1, 0], np.float32)
    return batch | {"labels": np.array([0, 1, 0, 1, 1, 0, 1, 0], np.int32), "weights": weights}


def random_params(task, seed=0):
    shapes = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), shapes)


def gradient_of(task, params, batch, num_microbatches=1):
    """(gradient, metrics) of the real training step, which keeps the parameters."""
    tx = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
    key, zero = jax.random.key(0), jnp.zeros((), jnp.int32)
    step = functools.partial(train_step, task=task, tx=tx, num_microbatches=num_microbatches)
    state = TrainState(zero, params, tx.init(params), zero)
    state, metrics = jax.jit(step)(state, batch, {"dropout": key, "masking": key})
    return jax.device_get(state.opt_state[0].trace), jax.device_get(metrics)


def test_the_loss_of_next_tokens_is_a_mean_of_means():
    model = make_model(num_layers=1, attention_pattern="causal", pad_vocab_to_multiple_of=48)
    task = Losses(lm_weight=0.25).add_to(MultipleChoice(model, LAST))
    params, batch = random_params(task), choices_batch()
    outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
    logits = np.asarray(outputs.scores.logits(), np.float64)[..., : model.vocab_size]
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    of_sequences = []
    for number, is_token in enumerate(batch["example_ids"].reshape(16, -1) > 0):
        ids = batch["input_ids"].reshape(16, -1)[number][is_token]
        if len(ids):
            of_sequences.append(
                -np.mean([logs[number, i, ids[i + 1]] for i in range(len(ids) - 1)])
            )
    assert len(of_sequences) == 13
    sums = task.losses(outputs, batch)
    np.testing.assert_allclose(sums["lm_loss"].numerator, sum(of_sequences), rtol=1e-5)
    assert sums["lm_loss"].denominator == sums["weighted_lm_loss"].denominator == 13
    weighted = sums["weighted_lm_loss"]
    np.testing.assert_allclose(weighted.numerator, 0.25 * sums["lm_loss"].numerator, rtol=1e-6)
    assert loss_names(sums) == ("task_loss", "weighted_lm_loss")


def test_the_answers_and_the_loss_of_the_task_stay_the_same():
    plain = MultipleChoice(make_model(num_layers=1, attention_pattern="causal"), LAST)
    task = Losses(lm_weight=0.25).add_to(plain)
    params, batch = random_params(task), choices_batch()
    outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
    others = plain.make_model().apply({"params": params}, batch, deterministic=True)
    jax.tree.map(
        np.testing.assert_array_equal,
        (task.answers(outputs, batch), task.losses(outputs, batch)["task_loss"]),
        (plain.answers(others, batch), plain.losses(others, batch)["task_loss"]),
    )


def test_gradients_of_microbatches_add_up_to_that_of_the_batch():
    model = make_model(num_layers=1, attention_pattern="causal", **NO_DROPOUT)
    task = Losses(lm_weight=0.5, mix_l2=0.1).add_to(MultipleChoice(model, MIX))
    params, batch = random_params(task), choices_batch()
    whole, metrics = gradient_of(task, params, batch)
    assert loss_names(metrics.sums) == ("mix_l2_loss", "task_loss", "weighted_lm_loss")
    parts, of_parts = gradient_of(task, params, batch, num_microbatches=4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), parts, whole)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), of_parts.sums, metrics.sums
    )


def test_the_penalty_is_the_sum_of_the_squares_of_the_weights():
    model, batch = make_model(num_layers=1, **NO_DROPOUT), choices_batch()
    plain = MultipleChoice(model, MIX)
    task = Losses(mix_l2=0.1).add_to(plain)
    params = random_params(task)
    weights = params["scalar_mix"]["weights"]
    assert len(weights) == model.num_layers + 1
    gradient, metrics = gradient_of(task, params, batch)
    other, _ = gradient_of(plain, params, batch)
    penalty = metrics.sums["mix_l2_loss"]
    np.testing.assert_allclose(
        penalty.numerator / penalty.denominator, 0.1 * (weights**2).sum(), rtol=1e-6
    )
    added = gradient["scalar_mix"]["weights"] - other["scalar_mix"]["weights"]
    np.testing.assert_allclose(added, 2 * 0.1 * weights, atol=1e-6)
    np.testing.assert_array_equal(gradient["classifier"]["kernel"], other["classifier"]["kernel"])


def test_without_weights_the_task_is_the_task_itself():
    task = Classification(make_model(), "single", 2)
    assert Losses().add_to(task) is task
    assert Losses().describe() == ()
    (line,) = Losses(0.5, 0.001).describe()
    assert line.endswith(
        "0.5 x the loss of the next token + 0.001 x the squares of the mix's weights"
    )


def test_losses_that_have_no_sense_are_refused():
    task = Classification(make_model(), "single", 2)
    with pytest.raises(ValueError, match="lm_weight=0.5 adds the loss of the next token, which th"):
        Losses(lm_weight=0.5).add_to(task)
    settings = TaskSettings({}, {}, {"lm_weight": 0.5}, (), 16, frozen_encoder=True)
    with pytest.raises(ValueError, match="lm_weight=0.5 trains the encoder, which .*=-1 freezes"):
        Losses.make(settings)
    causal = dataclasses.replace(task, model=make_model(attention_pattern="causal"))
    assert isinstance(Losses(lm_weight=0.5).add_to(causal), WithLosses)
