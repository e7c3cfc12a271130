"""Settings of the data: combinations that are refused, fields without effect, lengths."""

import dataclasses

import pytest

from bert_jax.config import checks
from bert_jax.config.data import MAX_WEIGHTS, DataConfig, data_config, parse_weights
from bert_jax.config.phases import make_phases

CONFIG = DataConfig(
    source="installed_docs",
    line_format="paragraphs",
    document_separator="blank_line",
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
FOR_MASKS = {
    *("masked_lm_prob", "masking", "mask_rounding", "max_predictions_per_seq"),
    *("mask_share", "keep_share", "random_share"),
}


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
        ({"masking": "phrase"}, "data.masking=phrase needs data.lexicon: a file with a phrase a l"),
        (
            {"lexicon": "names.txt"},
            "data.lexicon='names.txt' has no effect with data.masking=subword: set data.masking=ph",
        ),
        (
            {"lexicon_weights": ("person=2",), "masking": "span"},
            "data.lexicon_weights=.'person=2',. has no effect with data.masking=span",
        ),
        (
            {"mask_rounding": "bernoulli", "masking": "phrase", "lexicon": "names.txt"},
            "data.mask_rounding=bernoulli, .* needs data.masking=subword, not phrase.",
        ),
        (
            {"mask_share": 0.9},
            "data.mask_share=0.9, data.keep_share=0.1, data.random_share=0.1: they must be at least"
            " 0 and add up to 1.",
        ),
        ({"mask_share": 1.1, "keep_share": -0.2}, "data.keep_share=-0.2, .* must be at least 0"),
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
        ({"masking": "phrase", "lexicon": "names.txt"}, FOR_MASKS - {"masking"}),
        ({"segments": "full_sentences"}, FOR_MASKS | {"dupe_factor", "short_seq_prob"}),
    ],
)
def test_fields_without_effect(changes, unused):
    assert dataclasses.replace(CONFIG, **changes).unused == unused


def test_shares_add_up_within_the_precision_of_floats():
    dataclasses.replace(CONFIG, mask_share=0.7, keep_share=0.2, random_share=0.1)
    for mask in (0.0, 1 / 3, 0.123):
        dataclasses.replace(CONFIG, mask_share=mask, keep_share=1 - mask, random_share=0.0)


def test_weights_of_classes():
    assert parse_weights(()) == {}
    weights = parse_weights(("place=1.5", "a person=2", "x=y=0"))
    assert list(weights.items()) == [("a person", 2.0), ("place", 1.5), ("x=y", 0.0)]


@pytest.mark.parametrize(
    "entry", ["person", "=2", "person=", "person=-1", "a=nan", "a=inf", "a =1"]
)
def test_a_malformed_weight_is_named(entry):
    with pytest.raises(
        ValueError, match=f"data.lexicon_weights: '{entry}' is not CLASS=WEIGHT wit"
    ):
        dataclasses.replace(CONFIG, masking="phrase", lexicon="x", lexicon_weights=(entry,))
    with pytest.raises(ValueError, match="data.lexicon_weights: 3 is not CLASS=WEIGHT"):
        parse_weights((3,))  # pyright: ignore[reportArgumentType]


def test_a_class_has_one_weight_and_there_are_numbers_for_all_of_them():
    with pytest.raises(ValueError, match="data.lexicon_weights gives the class 'a' twice."):
        parse_weights(("a=1", "a=1"))
    assert len(parse_weights([f"class {i}={i}" for i in range(MAX_WEIGHTS)])) == 125
    with pytest.raises(ValueError, match="data.lexicon_weights has 126 classes, more than 125: gi"):
        parse_weights([f"{i}=1" for i in range(126)])


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
