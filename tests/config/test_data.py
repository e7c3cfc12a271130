"""Settings of the data: combinations that are refused, fields without effect, lengths."""

import dataclasses

import pytest

from bert_jax.config.data import MAX_WEIGHTS, DataConfig, parse_weights

CONFIG = DataConfig(vocab_size=1000, sequence_lengths=(128,), num_predictions=(20,))
FOR_MASKS = {
    *("masked_lm_prob", "masking", "mask_rounding", "num_predictions"),
    *("mask_share", "keep_share", "random_share"),
}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"mode": "static", "masking": "span"}, "masking='span' needs config.data.mode='dynamic'"),
        ({"mode": "static", "mask_rounding": "stochastic"}, "mask_rounding='stochastic' needs"),
        ({"mode": "static", "segments": "full_sentences"}, "segments='full_sentences' needs"),
        (
            {"mask_rounding": "bernoulli", "masking": "whole_word"},
            "mask_rounding='bernoulli' needs",
        ),
        ({"masking": "phrase"}, "masking='phrase' needs config.data.lexicon"),
        ({"lexicon": "names.txt"}, "lexicon='names.txt' has no effect with"),
        ({"mask_rounding": "row", "max_predictions_per_seq": 20}, "per_seq=20 has no effect with"),
        ({"mask_rounding": "row", "final_masked_lm_prob": 0.1}, "mask_stages=1 does not fit"),
        ({"mask_rounding": "row", "mask_stages": 2}, "mask_stages=2 does not fit"),
        ({"mask_stages": 2, "final_masked_lm_prob": 0.1}, "mask_stages=2 needs"),
        ({"mask_share": 0.9}, "they must add up to 1"),
        ({"mask_share": 1.1, "keep_share": -0.2}, "keep_share=-0.2 must be at least 0"),
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
    config = dataclasses.replace(CONFIG, **changes)
    everything = DataConfig(mode="static").shard_settings().keys()
    assert everything - config.shard_settings().keys() == unused
    assert {"source", "vocab_size", "sequence_lengths"} <= config.shard_settings().keys()
    assert not {"dir", "num_processes", "eval_masked_lm_prob"} & everything


def test_shares_add_up_within_the_precision_of_floats():
    dataclasses.replace(CONFIG, mask_share=0.7, keep_share=0.2, random_share=0.1)
    for mask in (0.0, 1 / 3, 0.123):
        dataclasses.replace(CONFIG, mask_share=mask, keep_share=1 - mask, random_share=0.0)


def test_weights_of_classes():
    assert parse_weights(()) == {}
    weights = parse_weights(("place=1.5", "a person=2", "x=y=0"))
    assert list(weights.items()) == [("a person", 2.0), ("place", 1.5), ("x=y", 0.0)]


@pytest.mark.parametrize("entry", ["person", "=2", "person=", "person=-1", "a=nan", "a =1"])
def test_a_malformed_weight_is_named(entry):
    with pytest.raises(ValueError, match=f"lexicon_weights: '{entry}' is not CLASS=WEIGHT wit"):
        dataclasses.replace(CONFIG, masking="phrase", lexicon="x", lexicon_weights=(entry,))
    with pytest.raises(ValueError, match="lexicon_weights: 3 is not CLASS=WEIGHT"):
        parse_weights((3,))  # pyright: ignore[reportArgumentType]


def test_a_class_has_one_weight_and_there_are_numbers_for_all_of_them():
    with pytest.raises(ValueError, match="lexicon_weights gives the class 'a' twice."):
        parse_weights(("a=1", "a=1"))
    assert len(parse_weights([f"class {i}={i}" for i in range(MAX_WEIGHTS)])) == 125
    with pytest.raises(ValueError, match="lexicon_weights has 126 classes, more than 125: gi"):
        parse_weights([f"{i}=1" for i in range(126)])


def test_without_stored_masks_phases_of_one_length_may_differ_in_predictions(make_config):
    config = make_config(phases=((128, 0.5, 0, 20), (128, 0.5)))
    assert [p.max_predictions_per_seq for p in config.make_phases(10)] == [20, 19]
