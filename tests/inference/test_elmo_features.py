"""Features of an imported ELMo: all 2L + 1 layers against bilm-tf, and what is refused."""

import numpy as np
import pytest

from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.tools.convert.conversions import convert
from bert_jax.tools.outputs.features import extract
from bert_jax.tools.outputs.inputs import find_inputs
from tests.inference.conftest import open_model
from tests.models import elmo_numpy
from tests.tools.convert.bilm_folder import make_weights, write_folder
from tests.tools.convert.test_import_bilm import sentence_of

TEXTS = ("Words by characters", "né", "U.S. cats don't sleep .")


@pytest.fixture(scope="module")
def model(tmp_path_factory):

    folder = tmp_path_factory.mktemp("elmo")
    convert(str(write_folder(folder / "bilm")), str(folder / "run"))
    return open_model(str(folder / "run"), batch_tokens=64)


@pytest.fixture(scope="module")
def expected():
    """The layers of each text, [words, 8] each, markers included, from zero states."""
    weights = make_weights()
    sentences = ([elmo_numpy.word_vector(weights, ids) for ids in sentence_of(t)] for t in TEXTS)
    return [elmo_numpy.encode(weights, np.array(words), 2)[0] for words in sentences]


def extracted(model, tmp_path, choice):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    texts = find_inputs([f"{tmp_path}/in.txt"])
    extract(FeatureExtractor(model, choice), texts, str(tmp_path / "out.npz"))
    return np.load(tmp_path / "out.npz")


def test_all_layers_and_both_directions_of_each(model, tmp_path, expected):
    both = extracted(model, tmp_path, Choice(layers="all"))["hidden_states"]
    found = extracted(model, tmp_path, Choice(layers="directions"))["hidden_states"]
    assert both.shape == (3, 3, 7, 8) and found.shape == (5, 3, 7, 4)
    for number, layers in enumerate(expected):
        words = len(layers[0])
        np.testing.assert_allclose(both[:, number, :words], np.stack(layers), atol=2e-5)
        first, *others = layers
        halves = [first[:, :4], *(half for x in others for half in np.split(x, 2, axis=1))]
        np.testing.assert_allclose(found[:, number, :words], np.stack(halves), atol=2e-5)


def test_words_are_as_the_text_has_them_without_markers(model, tmp_path, expected):
    features = extracted(model, tmp_path, Choice(level="word"))
    last = features["hidden_states"][0]
    for number, (text, layers) in enumerate(zip(TEXTS, expected, strict=True)):
        words = text.split()
        np.testing.assert_allclose(last[number, : len(words)], layers[-1][1:-1], atol=2e-5)
        spans = features["word_characters"][number, : len(words)]
        assert [text[start:stop] for _, start, stop in spans] == words
