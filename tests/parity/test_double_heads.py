"""GPT fine-tuned on multiple choice with its auxiliary loss, against OpenAIGPTDoubleHeadsModel."""

from typing import Any

import numpy as np
import pytest

from bert_jax.models.gpt import GptConfig
from bert_jax.tasks.auxiliary import Losses
from bert_jax.tasks.multiple_choice import MultipleChoice
from tests.parity.pairs import assert_same_gradients, loss_and_gradient, random_params
from tests.twins import make_twin, to_theirs, torch

LM_WEIGHT, CHOICES = 0.5, 2
MODEL = GptConfig(
    vocab_size=89,
    hidden_size=32,
    num_layers=3,
    num_heads=4,
    intermediate_size=128,
    max_position_embeddings=48,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)
HEAD: Any = {"pool": "last", "pooler": False, "share_dropout": True, "lm_weight": 1.0}


def make_batch(lengths):
    """int32[examples, CHOICES, seq] rows of these lengths, and labels."""
    rng, lengths = np.random.default_rng(0), np.asarray(lengths).reshape(-1, CHOICES, 1)
    place = np.broadcast_to(np.arange(lengths.max()), (*lengths.shape[:2], lengths.max()))
    real = place < lengths
    arrays = {
        "input_ids": np.where(real, rng.integers(1, MODEL.vocab_size, real.shape), 0),
        "token_type_ids": np.zeros(real.shape),
        "position_ids": place,
        "example_ids": real,
        "cls_positions": np.zeros((*lengths.shape[:2], 1)),
        "labels": rng.integers(0, CHOICES, len(lengths)),
    }
    batch = {name: array.astype(np.int32) for name, array in arrays.items()}
    return batch | {"weights": np.ones(len(lengths), np.float32)}


def their_losses(model, batch):
    """(LM logits, choice logits, LM loss, choice loss), with the LM loss of the released code.

    It is a mean over the tokens of each sequence, then over sequences; their own is a mean over all
    tokens, which is the same where all sequences are equally long.
    """
    tensors = {name: torch.tensor(array).long() for name, array in batch.items()}
    lengths = tensors["example_ids"].sum(-1)
    labels = tensors["input_ids"].masked_fill(tensors["example_ids"] == 0, -100)
    outputs = model(
        input_ids=tensors["input_ids"],
        mc_token_ids=lengths - 1,
        labels=labels,
        mc_labels=tensors["labels"],
    )
    logs = outputs.logits[..., :-1, :].log_softmax(-1)
    of_next = logs.gather(-1, tensors["input_ids"][..., 1:, None])[..., 0]
    mask = tensors["example_ids"][..., 1:]
    lm_loss = -(of_next * mask).sum(-1) / mask.sum(-1)
    return outputs.logits, outputs.mc_logits, lm_loss.mean(), outputs.mc_loss


def test_logits_losses_and_gradients_are_the_same():
    task = Losses(lm_weight=LM_WEIGHT).add_to(MultipleChoice(model=MODEL, **HEAD))
    params = random_params(task)
    theirs = make_twin("OpenAIGPTDoubleHeadsModel", MODEL, params, num_labels=1)
    batch = make_batch((48, 17, 5, 31, 2, 9))
    lm_logits, choice_logits, lm_loss, choice_loss = their_losses(theirs, batch)
    outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
    is_token = batch["example_ids"].reshape(-1, batch["example_ids"].shape[-1]) > 0
    logits = np.asarray(outputs.reading.scores.logits())
    expected = lm_logits.detach().numpy().reshape(logits.shape)
    np.testing.assert_allclose(logits[is_token], expected[is_token], atol=1e-5)
    np.testing.assert_allclose(outputs.logits, choice_logits.detach().numpy(), atol=1e-5)

    found, gradient = loss_and_gradient(task, params, batch)
    assert found["lm_loss"] == pytest.approx(lm_loss.item(), abs=1e-5)
    assert found["weighted_lm_loss"] == pytest.approx(LM_WEIGHT * lm_loss.item(), abs=1e-5)
    assert found["task_loss"] == pytest.approx(choice_loss.item(), abs=1e-5)
    (choice_loss + LM_WEIGHT * lm_loss).backward()
    assert_same_gradients(to_theirs(gradient), theirs)
