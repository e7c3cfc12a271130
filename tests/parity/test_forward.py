"""Every output of the models against transformers', with padding.

Other models and activations are compared where folders are imported (tests/tools/convert).
"""

import jax
import numpy as np
import pytest

from tests.parity.pairs import assert_same, make_pair, make_rows, our_outputs, their_outputs
from tests.twins import to_theirs

pytestmark = pytest.mark.usefixtures("as_users_run_it")

BASE = dict(hidden_size=768, num_layers=12, num_heads=12, intermediate_size=3072)
REAL = dict(vocab_size=30522, sequence_length=512)


@pytest.mark.parametrize(
    "sizes, lengths, tolerance",
    [
        pytest.param(
            dict(hidden_size=48, num_heads=3, num_layers=3, type_vocab_size=4, vocab_size=1001)
            | {"activation": "relu_squared"},
            (16, 15, 3, 1),
            1e-5,
            id="odd",
        ),
        pytest.param(BASE | REAL, (256, 99), 1e-4, id="BERT-Base", marks=pytest.mark.slow),
        pytest.param({"encoder": "modernbert"}, (40, 29, 7, 1), 1e-5, id="ModernBERT"),
    ],
)
def test_every_output(sizes, lengths, tolerance):
    task, params, model = make_pair(**sizes)
    batch = make_rows(task.model, lengths)
    mine = our_outputs(task)(params, batch)
    assert len(mine["hidden states"]) == task.model.num_layers + 1
    assert len(mine["attention"]) == task.model.num_layers
    assert_same(mine, their_outputs(model, batch), batch, tolerance)


@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_size": 32, "sequence_length": 512},
        {"encoder": "gpt", "max_position_embeddings": 512},
    ],
)
def test_lengths_up_to_512(sizes):
    """Ours padded, theirs one row at a time and without padding."""
    task, params, model = make_pair(**sizes)
    lengths = np.arange(512, 0, -37)
    batch = make_rows(task.model, lengths)
    padded = our_outputs(task)(params, batch)
    for i, length in enumerate(lengths):
        row = {
            name: array[i : i + 1, :length] if array.shape[1] == 512 else array[i : i + 1]
            for name, array in batch.items()
        }
        mine = jax.tree.map(lambda array, i=i: array[i : i + 1], padded)
        mine["hidden states"] = [x[:, :length] for x in mine["hidden states"]]
        mine["attention"] = [x[:, :, :length, :length] for x in mine["attention"]]
        if "next-word logits" in mine:
            mine["next-word logits"] = mine["next-word logits"][:, :length]
        assert_same(mine, their_outputs(model, row), row, 1e-5)


def test_gpt_s_initial_values_are_those_of_transformers():
    """N(0, 0.02) in kernels and tables, biases 0, scales 1: deviations agree within 6 %."""
    _, params, model = make_pair("gpt", initial=True)
    pytest.importorskip("torch").manual_seed(0)
    fresh = type(model)(model.config).state_dict()
    for name, array in to_theirs(params).items():
        other = fresh[name].numpy()
        # Means differ by a few standard errors at most.
        error = 4 * 0.02 * (2 / array.size) ** 0.5
        assert array.mean() == pytest.approx(other.mean(), abs=error), name
        if array.size > 2_000:
            assert array.std() == pytest.approx(other.std(), rel=0.06), name
        elif array.ndim == 1:
            np.testing.assert_array_equal(array, other)
