"""An imported GPT reads a text as transformers does: without special tokens it has never seen."""

import numpy as np
import pytest

import bert_jax
from bert_jax.tools.convert.conversions import convert
from tests.tools.convert.hf_folders import SIZES, write_gpt_vocabulary

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("ftfy")
pytest.importorskip("spacy")

TEXTS = ["the cat sat", "a", "on the mat the cat sat on the hat"]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """transformers' model with random weights, and its folder with a vocabulary."""
    torch.manual_seed(0)
    network = transformers.OpenAIGPTModel(transformers.OpenAIGPTConfig(**SIZES["OpenAIGPT"])).eval()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    folder = tmp_path_factory.mktemp("gpt") / "theirs"
    network.save_pretrained(folder)
    write_gpt_vocabulary(folder, "vocab.json", "merges.txt")
    return network, folder


@pytest.fixture(scope="module", params=["folder", "workdir"])
def model(request, theirs, tmp_path_factory):
    if request.param == "folder":
        return bert_jax.load(theirs[1])
    workdir = str(tmp_path_factory.mktemp("imported") / "workdir")
    convert(str(theirs[1]), workdir, compare=False)
    return bert_jax.load(workdir)


def test_hidden_states_are_those_of_transformers(model, theirs):
    for text, found in zip(TEXTS, model.hidden_states(TEXTS, layers="all"), strict=True):
        ids = found["input_ids"]
        assert ids.tolist() == model.tokenizer.encode(text)
        with torch.no_grad():
            outputs = theirs[0](torch.tensor(ids[None].astype(np.int64)), output_hidden_states=True)
        expected = torch.cat(outputs.hidden_states).numpy()
        np.testing.assert_allclose(found["hidden_states"], expected, atol=1e-5)


def test_a_text_without_tokens_is_refused(model):
    with pytest.raises(ValueError, match="has no token that begins a text: give a word"):
        model.encode([""])
