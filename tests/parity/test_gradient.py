"""The gradient that the optimizer gets, for every parameter, against torch's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.tasks.losses import loss_names
from bert_jax.training.state import TrainState
from bert_jax.training.step import train_step

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("as_users_run_it")


def loss_and_gradient(task, params, batch):
    """Of the real training step: an optimizer that keeps the gradient and changes nothing."""
    tx = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
    key = jax.random.key(0)
    keys = {"dropout": key, "masking": key}
    step = jax.jit(functools.partial(train_step, task=task, tx=tx))
    zero = jnp.zeros((), jnp.int32)
    state, metrics = step(TrainState(zero, params, tx.init(params), zero), batch, keys)
    sums = (metrics.sums[name] for name in loss_names(metrics.sums))
    return sum(float(s.numerator / s.denominator) for s in sums), state.opt_state[0].trace


@pytest.mark.parametrize(
    "sizes, lengths",
    [
        pytest.param({}, (16, 9, 5, 1), id="narrow"),
        pytest.param({"activation": "gelu_tanh", "num_layers": 1}, (16, 9), id="narrow, tanh"),
        pytest.param(
            dict(hidden_size=128, intermediate_size=512, sequence_length=128, vocab_size=30522),
            (128, 77),
            id="BERT-Tiny",
        ),
        pytest.param(
            dict(hidden_size=48, num_heads=4, num_layers=12),
            (16, 7, 12),
            id="12 narrow layers",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_gradient_of_the_loss_for_every_parameter(make_model, make_rows, to_theirs, sizes, lengths):
    task, params, model = make_model(**sizes)
    batch = make_rows(task.model, lengths)
    loss, grads = loss_and_gradient(task, params, batch)

    tensors = {name: torch.tensor(array).long() for name, array in batch.items()}
    masked = tensors["masked_lm_weights"] > 0
    labels = torch.full_like(tensors["input_ids"], -100)
    rows = torch.nonzero(masked)[:, 0]
    labels[rows, tensors["masked_lm_positions"][masked]] = tensors["masked_lm_ids"][masked]
    outputs = model(
        input_ids=tensors["input_ids"],
        token_type_ids=tensors["token_type_ids"],
        attention_mask=tensors["example_ids"],
        labels=labels,
        next_sentence_label=tensors["next_sentence_labels"][:, 0],
    )
    outputs.loss.backward()
    assert loss == pytest.approx(outputs.loss.item(), rel=1e-5)

    mine = to_theirs(grads)
    other = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    assert mine.keys() == other.keys()
    for name in mine:
        # A bias of the keys shifts all scores alike: its gradient is 0 but for the rounding of what
        # the gradient of the keys' kernel is a sum of too.
        scale = np.abs(other[name.replace("key.bias", "key.weight")]).max()
        assert scale > 0, name
        np.testing.assert_allclose(mine[name], other[name], atol=1e-4 * scale, rtol=0, err_msg=name)
