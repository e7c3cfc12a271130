"""Settings of the data: combinations that are refused, fields without effect, lengths."""

import dataclasses

import pytest

from bert_jax.config import checks
from bert_jax.config.data import DataConfig, data_config
from bert_jax.config.phases import make_phases

CONFIG = DataConfig(
    source="installed_docs",
    form="paragraphs",
    document="blank_line",
    field="text",
    language="en",
    on_bad_text="replace",
    vocab="train:wordpiece",
    vocab_size=1000,
    lowercase=True,
    segments="pairs",
    mode="dynamic",
    seed=0,
    dupe_factor=10,
    short_seq_prob=0.1,
    masked_lm_prob=0.15,
    masking="subword",
    mask_rounding="half_even",
    validation_share=0.1,
    sequence_lengths=(128,),
    max_predictions_per_seq=(20,),
)
FOR_MASKS = {"masked_lm_prob", "masking", "mask_rounding", "max_predictions_per_seq"}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"mode": "static", "masking": "span"}, "data.masking=span needs data.mode=dynamic"),
        (
            {"mode": "static", "mask_rounding": "stochastic"},
            "data.mask_rounding=stochastic needs data.mode=dynamic: the released program",
        ),
        (
            {"mode": "static", "mask_rounding": "bernoulli"},
            "data.mask_rounding=bernoulli needs data.mode=dynamic: the released program",
        ),
        (
            {"mode": "static", "segments": "full_sentences"},
            "data.segments=full_sentences needs data.mode=dynamic: the released program",
        ),
        (
            {"mask_rounding": "bernoulli", "masking": "whole_word"},
            "data.mask_rounding=bernoulli, .* needs data.masking=subword, not whole_word.",
        ),
    ],
)
def test_invalid_combinations_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)


@pytest.mark.parametrize(
    "changes, unused",
    [
        ({"mode": "static"}, set()),
        ({}, FOR_MASKS),
        ({"segments": "full_sentences"}, FOR_MASKS | {"dupe_factor", "short_seq_prob"}),
    ],
)
def test_fields_without_effect(changes, unused):
    assert dataclasses.replace(CONFIG, **changes).unused == unused


def test_data_are_made_for_each_sequence_length_once(make_config):
    config = make_config(phases=((128, 0.5, 0, 20), (64, 0.3), (128, 0.2, 8, 20)))
    data = data_config(config)
    assert data.sequence_lengths == (64, 128)
    assert data.max_predictions_per_seq == (10, 20)
    assert data.vocab_size == config.model.vocab_size


def test_without_stored_masks_phases_of_one_length_may_differ_in_predictions(make_config):
    config = make_config(phases=((128, 0.5, 0, 20), (128, 0.5)))
    checks.check(config)
    assert [p.max_predictions_per_seq for p in make_phases(config, 10)] == [20, 19]
