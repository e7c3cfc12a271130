"""GPT fine-tuned on multiple choice with its auxiliary loss, against OpenAIGPTDoubleHeadsModel."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.config.groups import HeadConfig
from bert_jax.models.gpt import GptConfig
from bert_jax.tasks.auxiliary import Losses
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.training.state import TrainState
from bert_jax.training.step import train_step
from tests.parity.conftest import random_params
from tests.parity.test_gpt import to_theirs

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

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
HEAD = HeadConfig(pool="last", pooler=False, share_dropout=True, lm_weight=1.0)


def their_arrays(tree):
    """{their name: array} of our parameters or gradients."""
    arrays = to_theirs({"gpt": tree["gpt"]})
    arrays["multiple_choice_head.summary.weight"] = np.array(tree["classifier"]["kernel"].T)
    arrays["multiple_choice_head.summary.bias"] = np.array(tree["classifier"]["bias"])
    assert sum(array.size for array in arrays.values()) == sum(
        a.size for a in jax.tree.leaves(tree)
    )
    return arrays


@pytest.fixture(scope="module")
def both():
    """Our task, its random parameters, and their model with the same."""
    task = Losses(lm_weight=LM_WEIGHT).add_to(MultipleChoice(MODEL, HEAD))
    params = random_params(task)
    theirs = transformers.OpenAIGPTDoubleHeadsModel(
        transformers.OpenAIGPTConfig(
            vocab_size=MODEL.vocab_size,
            n_positions=MODEL.max_position_embeddings,
            n_embd=MODEL.hidden_size,
            n_layer=MODEL.num_layers,
            n_head=MODEL.num_heads,
            layer_norm_epsilon=MODEL.layer_norm_epsilon,
            num_labels=1,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            summary_first_dropout=0.0,
        )
    ).eval()
    state = {name: torch.tensor(array) for name, array in their_arrays(params).items()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}  # tied
    return task, params, theirs


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
    if len(lengths.unique()) == 1:
        assert torch.isclose(lm_loss.mean(), outputs.loss, atol=1e-5)
    return outputs.logits, outputs.mc_logits, lm_loss.mean(), outputs.mc_loss


@pytest.mark.parametrize(
    "lengths",
    [
        (48, 17, 5, 31, 2, 9),
        pytest.param((48,) * 4, marks=pytest.mark.slow),
        pytest.param((11,) * 6, marks=pytest.mark.slow),
    ],
)
def test_logits_losses_and_gradients_are_the_same(both, lengths):
    task, params, theirs = both
    batch = make_batch(lengths)
    lm_logits, choice_logits, lm_loss, choice_loss = their_losses(theirs, batch)
    outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
    is_token = batch["example_ids"].reshape(-1, batch["example_ids"].shape[-1]) > 0
    logits = np.asarray(outputs.reading.scores.logits())
    expected = lm_logits.detach().numpy().reshape(logits.shape)
    np.testing.assert_allclose(logits[is_token], expected[is_token], atol=1e-5)
    np.testing.assert_allclose(outputs.logits, choice_logits.detach().numpy(), atol=1e-5)

    tx = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))  # keeps the gradient
    key, zero = jax.random.key(0), jnp.zeros((), jnp.int32)
    step = jax.jit(functools.partial(train_step, task=task, tx=tx))
    state = TrainState(zero, params, tx.init(params), zero)
    state, metrics = step(state, batch, {"dropout": key, "masking": key})
    found = {name: float(s.numerator / s.denominator) for name, s in metrics.sums.items()}
    assert found["lm_loss"] == pytest.approx(lm_loss.item(), abs=1e-5)
    assert found["weighted_lm_loss"] == pytest.approx(LM_WEIGHT * lm_loss.item(), abs=1e-5)
    assert found["task_loss"] == pytest.approx(choice_loss.item(), abs=1e-5)

    theirs.zero_grad()
    (choice_loss + LM_WEIGHT * lm_loss).backward()
    gradients = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    for name, array in their_arrays(state.opt_state[0].trace).items():
        np.testing.assert_allclose(array, gradients[name], atol=1e-5, err_msg=name)
