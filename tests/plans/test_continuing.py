"""Settings of continued pre-training that follow from the model and the text."""

import dataclasses

import pytest

from bert_jax.config.encoders import BertConfig, GptConfig
from bert_jax.plans.continuing import Trained, continuing_recipe

BERT = Trained(BertConfig(), predicts_tokens=True, judges_pairs=True)
WITHOUT_PAIRS = Trained(BertConfig.tiny(next_sentence=False), True, judges_pairs=False, length=64)
NEW_HEAD = Trained(BertConfig(), predicts_tokens=False, judges_pairs=False)
GPT = Trained(GptConfig(), predicts_tokens=True, judges_pairs=False)
KNOWN_RATE = dataclasses.replace(WITHOUT_PAIRS, learning_rate=3e-3, batch_size=128)


def values(trained, tokens=1_000_000, sentences=20.0, has_held_out=False):
    recipe = continuing_recipe(trained, tokens, sentences, has_held_out)
    assert all(reason for _, reason in recipe.values())
    return {name: value for name, (value, _) in recipe.items()}


@pytest.mark.parametrize(
    "found, expected",
    [
        # Rows as the model was trained on.
        (values(BERT), {"data.segments": "pairs", "model.next_sentence": True}),
        (values(BERT, sentences=1.2), {"data.segments": "full_sentences"}),  # too short for pairs
        (values(WITHOUT_PAIRS), {"data.segments": "full_sentences", "model.next_sentence": False}),
        (values(NEW_HEAD), {"data.segments": "full_sentences", "model.next_sentence": False}),
        (values(GPT), {"data.segments": "running_text"}),
        (values(dataclasses.replace(GPT, segments="pairs")), {"data.segments": "pairs"}),
        # The length that it knows.
        (values(BERT), {"phases": ((128, 1.0),)}),
        (values(WITHOUT_PAIRS), {"phases": ((64, 1.0),)}),
        (values(GPT), {"phases": ((512, 1.0),)}),
        # Small texts are read more often, in smaller batches; pairs differ in each pass.
        (values(WITHOUT_PAIRS, 100 * 32 * 64), {"global_batch_size": 32, "epochs": 10}),
        (values(WITHOUT_PAIRS, 100_000_000), {"global_batch_size": 32, "epochs": 1}),
        (values(WITHOUT_PAIRS, 2_000), {"global_batch_size": 8, "epochs": 100}),
        (values(BERT, 100 * 32 * 128), {"data.dupe_factor": 10, "epochs": 1.0}),
        # A known rate is scaled by the root of the batch; Sun et al. 2019 continue with 5e-5.
        (values(KNOWN_RATE), {"optimizer.learning_rate": 1.5e-3}),
        (values(BERT), {"optimizer.learning_rate": 5e-5}),
        # A part of the text is held out.
        (values(BERT, 10_000), {"data.validation_share": 0.1}),
        (values(BERT, 10_000_000), {"data.validation_share": 0.005}),
    ],
)
def test_settings_follow_from_the_model_and_the_text(found, expected):
    assert expected == {name: found[name] for name in expected}


def test_nothing_is_held_out_where_there_is_another_text_and_pairs_are_not_for_gpt():
    assert "data.validation_share" not in values(BERT, has_held_out=True)
    assert "model.next_sentence" not in values(GPT)
