"""Every output of the models against transformers', with padding, at all lengths."""

import jax
import numpy as np
import pytest

from tests.parity.pairs import assert_same, make_pair, make_rows, our_outputs, their_outputs
from tests.twins import to_theirs

pytestmark = pytest.mark.usefixtures("as_users_run_it")

BASE = dict(hidden_size=768, num_layers=12, num_heads=12, intermediate_size=3072)
TINY = dict(hidden_size=128, num_layers=2, num_heads=2, intermediate_size=512)
REAL = dict(vocab_size=30522, sequence_length=512)


@pytest.mark.parametrize(
    "sizes, lengths, tolerance",
    [
        pytest.param({}, (16, 9, 2, 1), 1e-5, id="narrow"),
        pytest.param({"activation": "gelu_tanh"}, (16, 9, 2, 1), 1e-5, id="narrow, tanh"),
        pytest.param({"activation": "relu_squared"}, (16, 9), 1e-5, id="narrow, ReLU squared"),
        pytest.param({"layer_norm_epsilon": 1e-5}, (16, 9, 2, 1), 1e-5, id="narrow, epsilon"),
        pytest.param(
            dict(hidden_size=48, num_heads=3, num_layers=3, type_vocab_size=4, vocab_size=1001),
            (16, 15, 3),
            1e-5,
            id="odd",
        ),
        pytest.param(TINY | REAL, (512, 130, 77), 1e-5, id="BERT-Tiny"),
        pytest.param(
            dict(hidden_size=48, num_heads=4, num_layers=12), (16, 7), 1e-4, id="12 narrow layers"
        ),
        pytest.param(BASE | REAL, (256, 99), 1e-4, id="BERT-Base", marks=pytest.mark.slow),
        pytest.param({"encoder": "gpt"}, (40, 17, 2, 1), 1e-5, id="GPT"),
        pytest.param({"encoder": "modernbert"}, (40, 29, 7, 1), 1e-5, id="ModernBERT"),
        pytest.param({"encoder": "distilbert"}, (40, 17, 2, 1), 1e-5, id="DistilBERT"),
        pytest.param({"encoder": "electra"}, (40, 17, 2, 1), 1e-5, id="ELECTRA"),
        pytest.param({"encoder": "roberta"}, (40, 17, 2, 1), 1e-5, id="RoBERTa"),
    ],
)
def test_every_output(sizes, lengths, tolerance):
    task, params, model = make_pair(**sizes)
    batch = make_rows(task.model, lengths)
    mine = our_outputs(task)(params, batch)
    assert len(mine["hidden states"]) == task.model.num_layers + 1
    assert len(mine["attention"]) == task.model.num_layers
    assert_same(mine, their_outputs(model, batch), batch, tolerance)


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_size": 32, "sequence_length": 512},
        {"encoder": "gpt", "max_position_embeddings": 512},
    ],
)
def test_lengths_from_1_to_512(sizes, stride):
    """Ours padded to one of four widths, theirs one row at a time and without padding."""
    task, params, model = make_pair(**sizes)
    run = our_outputs(task)
    for width in (128, 256, 384, 512):
        lengths = np.arange(width, width - 128, -stride)
        batch = make_rows(task.model, lengths, width, seed=width)
        padded = run(params, batch)
        for i, length in enumerate(lengths):
            row = {
                name: array[i : i + 1, :length] if array.shape[1] == width else array[i : i + 1]
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
