"""Settings of continued pre-training that follow from the model and the text."""

import dataclasses

import pytest

from bert_jax.config.encoders import BertConfig, GptConfig
from bert_jax.plans.continuing import Trained, continuing_recipe

BERT = Trained(BertConfig(), predicts_tokens=True, judges_pairs=True)
WITHOUT_PAIRS = Trained(BertConfig.tiny(next_sentence=False), True, judges_pairs=False, length=64)
NEW_HEAD = Trained(BertConfig(), predicts_tokens=False, judges_pairs=False)


def values(trained, tokens=1_000_000, sentences=20.0, has_held_out=False):
    recipe = continuing_recipe(trained, tokens, sentences, has_held_out)
    assert all(reason for _, reason in recipe.values())
    return {name: value for name, (value, _) in recipe.items()}


@pytest.mark.parametrize(
    "trained, sentences, segments, next_sentence",
    [
        (BERT, 20.0, "pairs", True),
        (BERT, 1.2, "full_sentences", False),  # too short for pairs
        (WITHOUT_PAIRS, 20.0, "full_sentences", False),
        (NEW_HEAD, 20.0, "full_sentences", False),
        (Trained(GptConfig(), True, False), 20.0, "running_text", None),
        (Trained(GptConfig(), True, False, segments="pairs"), 20.0, "pairs", None),
    ],
)
def test_the_rows_are_those_that_the_model_was_trained_on(
    trained, sentences, segments, next_sentence
):
    found = values(trained, sentences=sentences)
    assert found["data.segments"] == segments
    assert found.get("model.next_sentence") == next_sentence


@pytest.mark.parametrize(
    "trained, length",
    [
        (BERT, 128),
        (WITHOUT_PAIRS, 64),
        (Trained(BertConfig(max_position_embeddings=100), True, True), 100),
        (Trained(GptConfig(), True, False), 512),
    ],
)
def test_the_length_is_known_to_the_model(trained, length):
    assert values(trained)["phases"] == ((length, 1.0),)


@pytest.mark.parametrize(
    "trained, tokens, batch, passes",
    [
        (WITHOUT_PAIRS, 100 * 32 * 64, 32, 10),  # 100 steps a pass
        (WITHOUT_PAIRS, 100_000_000, 32, 1),
        (WITHOUT_PAIRS, 2_000, 8, 100),
        (NEW_HEAD, 100 * 32 * 128, 32, 20),
    ],
)
def test_small_texts_are_read_more_often_in_smaller_batches(trained, tokens, batch, passes):
    found = values(trained, tokens)
    assert (found["global_batch_size"], found["epochs"]) == (batch, passes)


def test_pairs_differ_in_each_pass():
    found = values(BERT, 100 * 32 * 128)
    assert (found["data.dupe_factor"], found["epochs"]) == (10, 1.0)


def test_small_encoders_have_higher_rates():
    """Sun et al. 2019 continue BERT-Base with 5e-5."""
    sizes = (BertConfig(), BertConfig.mini(), BertConfig.tiny())
    rates = [values(Trained(size, True, True))["optimizer.learning_rate"] for size in sizes]
    assert rates[0] == 5e-5 and rates == sorted(rates) and rates[2] <= 1e-3


@pytest.mark.parametrize("batch_size, rate", [(32, 3e-3), (128, 1.5e-3), (8, 3e-3)])
def test_a_known_rate_is_scaled_by_the_root_of_the_batch(batch_size, rate):
    trained = dataclasses.replace(WITHOUT_PAIRS, learning_rate=3e-3, batch_size=batch_size)
    assert values(trained)["optimizer.learning_rate"] == rate


def test_a_part_of_the_text_is_held_out_unless_there_is_another():
    assert values(BERT, 10_000)["data.validation_share"] == 0.1
    assert values(BERT, 10_000_000)["data.validation_share"] == 0.005
    assert "data.validation_share" not in values(BERT, has_held_out=True)
