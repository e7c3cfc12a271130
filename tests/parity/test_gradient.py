"""The gradient that the optimizer gets, for every parameter, against torch's.

That of GPT is compared in test_double_heads.py; what optimizers make of gradients, in tests/optim.
"""

import pytest

from tests.parity.pairs import (
    assert_same_gradients,
    loss_and_gradient,
    make_pair,
    make_rows,
    their_inputs,
)
from tests.twins import to_theirs, torch


def make_labels(model, batch):
    """Returns the labels of their classes: -100 where there is none."""
    tensors = {name: torch.tensor(array).long() for name, array in batch.items()}
    masked = tensors["masked_lm_weights"] > 0
    labels = torch.full_like(tensors["input_ids"], -100)
    rows = torch.nonzero(masked)[:, 0]
    labels[rows, tensors["masked_lm_positions"][masked]] = tensors["masked_lm_ids"][masked]
    if model.config.model_type != "bert":
        return {"labels": labels}
    return {"labels": labels, "next_sentence_label": tensors["next_sentence_labels"][:, 0]}


@pytest.mark.parametrize(
    "sizes, lengths",
    [
        pytest.param(
            dict(hidden_size=128, intermediate_size=512, sequence_length=128, vocab_size=30522),
            (128, 77, 5, 1),
            id="BERT-Tiny",
        ),
        pytest.param({"encoder": "modernbert"}, (40, 29, 7, 1), id="ModernBERT"),
        pytest.param({"encoder": "electra", "num_layers": 1}, (40, 7), id="ELECTRA"),
    ],
)
def test_gradient_of_the_loss_for_every_parameter(sizes, lengths, request):
    if "encoder" not in sizes:
        # BERT's with XLA's optimizations, with which ModernBERT's would compile for 50 seconds.
        request.getfixturevalue("as_users_run_it")
    task, params, model = make_pair(**sizes)
    batch = make_rows(task.model, lengths)
    losses, grads = loss_and_gradient(task, params, batch)
    outputs = model(**their_inputs(model, batch), **make_labels(model, batch))
    outputs.loss.backward()
    assert losses["total"] == pytest.approx(outputs.loss.item(), rel=1e-5)
    assert_same_gradients(to_theirs(grads), model)
