"""Settings of the data that exclude one another, and those that decide nothing."""

import dataclasses

import pytest

from bert_jax.config.data import DataConfig

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
OF_MASKS = {"masked_lm_prob", "masking", "mask_rounding", "max_predictions_per_seq"}


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
def test_settings_that_exclude_one_another_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)


@pytest.mark.parametrize(
    "changes, idle",
    [
        ({"mode": "static"}, set()),
        ({}, OF_MASKS),
        ({"segments": "full_sentences"}, OF_MASKS | {"dupe_factor", "short_seq_prob"}),
    ],
)
def test_what_decides_nothing(changes, idle):
    assert dataclasses.replace(CONFIG, **changes).idle == idle
