"""Short rows: what their blocks compute is what the model's own modules compute."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.data.labelled.texts import EncodedTexts, Text, encode_text
from bert_jax.devices import sharding
from bert_jax.inference import short_rows
from bert_jax.inference.attention import AttentionReader
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.loading import TrainedModel, load_model
from bert_jax.inference.predictor import Predictor, TaskPredictor
from tests import tiny
from tests.inference.conftest import SCORED_TEXTS

# A text, a pair, a text with a mask: each alone in a row.
TEXTS = [text for text in SCORED_TEXTS if text.text_a]


@pytest.fixture
def load(monkeypatch):
    """Returns a function that loads a workdir on one device: only there are rows short."""
    make = sharding.make_mesh
    monkeypatch.setattr(sharding, "make_mesh", lambda: make(devices=jax.devices()[:1]))
    return load_model


def both(model: TrainedModel, program, texts=TEXTS):
    """Yields the outputs of short rows, and those of the same rows computed as all others."""
    predictor, plain = Predictor(model), dataclasses.replace(program, short=None)
    for text in texts:
        rows = EncodedTexts([encode_text(text, model.tokenizer, None, masks=True)], model.tokenizer)
        ((numbers, length),) = predictor.batches(rows.lengths, packs=True)
        batch = rows.take(numbers, length)
        assert short_rows.is_short(batch)
        yield program(batch), plain(batch)


@pytest.mark.parametrize(
    ("dtype", "limit"), [("float32", 1e-5), ("bfloat16_products", 3e-2)], ids=str
)
def test_hidden_states_of_all_layers(make_workdir, load, dtype, limit):
    model = load(make_workdir(model__num_layers=3, dtype=dtype, model__positions="sinusoidal"))
    program = FeatureExtractor(Predictor(model), Choice(layers="all"))._forward
    for short, plain in both(model, program):
        for name, expected in plain.items():
            np.testing.assert_allclose(short[name], expected, atol=limit, rtol=limit, err_msg=name)


def test_predictions_of_masks_that_read_some_positions(make_workdir, load):
    model = load(make_workdir(model__num_layers=2, model__last_layer_predicted_only=True))
    for short, plain in both(model, TaskPredictor(Predictor(model))._forward):
        np.testing.assert_allclose(short["probabilities"], plain["probabilities"], atol=1e-5)
        np.testing.assert_array_equal(short["tokens"], plain["tokens"])


def test_attention_probabilities_come_from_the_model(make_workdir, load):
    model = load(make_workdir())
    reader = AttentionReader(Predictor(model), 5)
    expected = dataclasses.replace(reader._forward, short=None)
    row = reader.encode(Text("the list is returned."))
    found = reader.read(row)["attention"]
    reader._forward = expected
    np.testing.assert_allclose(found, reader.read(row)["attention"], atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm_place": "pre"},
        {"feed_forward": "gated"},
        {"positions": "rotary"},
        {"attention_pattern": "window", "attention_window": 4},
        {"norm": "rms_norm"},
        {"biases": False},
        {"dtype": "bfloat16"},
    ],
    ids=str,
)
def test_other_blocks_are_left_to_the_model(changes):
    assert short_rows.fits(tiny.make_model()) and not short_rows.fits(tiny.make_model(**changes))
