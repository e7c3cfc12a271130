"""Fifty updates of BERT's optimizer against a loop in torch, written out from its definition.

AdamW is compared with torch's own in test_finetuning.py.
"""

import numpy as np

from bert_jax.config.groups import OptimizerConfig
from bert_jax.optim.make import make_optimizer
from tests.parity.pairs import make_pair, make_rows, train
from tests.twins import to_theirs, torch

NUM_STEPS, WARMUP_STEPS = 50, 10
BETA1, BETA2, EPSILON, DECAY, CLIP_NORM = 0.9, 0.999, 1e-6, 0.01, 1.0
PEAK = 1e-3


def train_ours(task, params, batches):
    config = OptimizerConfig(
        name="bert_adam",
        learning_rate=PEAK,
        schedule="bert_linear",
        weight_decay=DECAY,
        beta1=BETA1,
        beta2=BETA2,
        epsilon=EPSILON,
        clip_norm=CLIP_NORM,
        no_decay=("layer_norm", "bias"),
        encoder="bert",
    )
    tx, _ = make_optimizer(config, NUM_STEPS, WARMUP_STEPS)
    losses, state = train(task, params, batches, tx)
    return [of_step["total"] for of_step in losses], state.params


def rate_of(step):
    """The released code's line, from step 0."""
    if step < WARMUP_STEPS:
        return PEAK * step / WARMUP_STEPS
    return PEAK * (NUM_STEPS - step) / NUM_STEPS


def train_theirs(model, batches):
    """Adam (Kingma & Ba) without its bias correction, with decoupled weight decay."""
    parameters = dict(model.named_parameters())
    first = {name: torch.zeros_like(p) for name, p in parameters.items()}
    second = {name: torch.zeros_like(p) for name, p in parameters.items()}
    losses = []
    for step, batch in enumerate(batches):
        loss = loss_of(model, {name: torch.tensor(array) for name, array in batch.items()})
        losses.append(loss.item())
        grads = dict(
            zip(parameters, torch.autograd.grad(loss, [*parameters.values()]), strict=True)
        )
        norm = sum((g.double() ** 2).sum() for g in grads.values()).sqrt().item()
        for name, parameter in parameters.items():
            grad = grads[name] * min(1.0, CLIP_NORM / norm)
            first[name] = BETA1 * first[name] + (1 - BETA1) * grad
            second[name] = BETA2 * second[name] + (1 - BETA2) * grad**2
            update = first[name] / (second[name].sqrt() + EPSILON)
            if not ("LayerNorm" in name or name.endswith("bias")):
                update = update + DECAY * parameter.detach()
            parameter.data -= rate_of(step) * update
    return losses, parameters


def loss_of(model, batch):
    """The mean cross-entropy of the masked tokens plus that of the pairs."""
    encoded = model.bert(
        input_ids=batch["input_ids"].long(),
        token_type_ids=batch["token_type_ids"].long(),
        attention_mask=batch["example_ids"].long(),
    )
    masked = encoded.last_hidden_state.take_along_dim(
        batch["masked_lm_positions"].long()[..., None], dim=1
    )
    words, pairs = model.cls(masked, encoded.pooler_output)
    words = -words.log_softmax(-1).take_along_dim(batch["masked_lm_ids"].long()[..., None], -1)
    weights = batch["masked_lm_weights"]
    pairs = -pairs.log_softmax(-1).take_along_dim(batch["next_sentence_labels"].long(), -1)
    return (words[..., 0] * weights).sum() / weights.sum() + pairs.mean()


def test_fifty_updates():
    sizes = dict(vocab_size=200, hidden_size=64, intermediate_size=256, sequence_length=48)
    task, params, model = make_pair(initial=True, **sizes)
    lengths = (48, 40, 31, 30, 22, 17, 12, 9)
    kinds = [make_rows(task.model, lengths, predictions=7, seed=seed) for seed in range(5)]
    batches = [kinds[step % len(kinds)] for step in range(NUM_STEPS)]
    losses, trained = train_ours(task, params, batches)
    expected, parameters = train_theirs(model, batches)
    assert losses[-1] < losses[0] - 1  # the loss falls
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-4)
    for theirs, array in to_theirs(trained).items():
        np.testing.assert_allclose(
            array, parameters[theirs].detach().numpy(), rtol=0, atol=1e-4, err_msg=theirs
        )
