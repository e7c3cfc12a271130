"""Phrases masked as units on the device: as words where weights are equal, else by weight."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.tasks.pretraining.masking import MaskingRule
from bert_jax.tasks.pretraining.task import _masked_phrases
from tests.tasks.test_masking import CLS, FIRST_WORD, MASK, SEP, VOCAB, chosen_of, mask
from tests.tasks.test_masking import make_rows as make_plain_rows
from tests.tasks.test_masking import make_rule as make_plain_rule

IS_CONTINUATION = np.array([i >= FIRST_WORD and i % 3 == 0 for i in range(VOCAB)])


def make_rule(weights=(1.0, 1.0), masking="phrase", **changes) -> MaskingRule:
    return dataclasses.replace(make_plain_rule(masking), unit_weights=weights, **changes)


def make_rows(count, seq):
    """[CLS] A [SEP] B [SEP] of different lengths; units are words, and phrases of three kinds."""
    rng = np.random.default_rng(0)
    rows = make_plain_rows(rng.integers(seq // 2, seq + 1, count), seq)
    begins = (rows["input_ids"] > MASK) & ~IS_CONTINUATION[rows["input_ids"]]
    kinds = rng.choice([0, 1, 1, 2, 3, 4], begins.shape)  # 0: continues a phrase
    return rows | {"mask_units": (begins * kinds).astype(np.int8)}


def units_of(rows, row):
    """(places, number in mask_units) of each unit of a row, by a plain loop."""
    units = []
    for place, token in enumerate(rows["input_ids"][row]):
        number = int(rows["mask_units"][row, place])
        if token in (0, CLS, SEP):
            continue
        if number or not units:
            units.append(([place], max(number, 1)))
        else:
            units[-1][0].append(place)
    return units


def choose_in_turn(units, keys, budget):
    """The released program's loop, over units in the order of their keys."""
    chosen = []
    for _, places in sorted(zip(keys, (places for places, _ in units), strict=True)):
        if len(chosen) + len(places) <= budget:
            chosen += places
    return chosen


def test_words_alone_are_masked_as_whole_words_bit_for_bit():
    rows = make_rows(200, 64)
    begins = (rows["input_ids"] > MASK) & ~IS_CONTINUATION[rows["input_ids"]]
    rows["mask_units"] = begins.astype(np.int8)
    found = mask(jax.random.key(3), rows, make_rule((1.0,) * 4))
    expected = mask(jax.random.key(3), rows, make_rule((), "whole_word"))
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


WEIGHTS = (1.0, 2.0, 0.25, 0.0)


@pytest.mark.parametrize("weights", [(1.0,) * 4, WEIGHTS], ids=["equal", "weighted"])
def test_the_units_are_those_that_a_plain_loop_takes(weights):
    """From the same random bits, by the keys -log(1 - u) / weight in double precision.

    The first unit is thus drawn in proportion to its weight (Efraimidis & Spirakis 2006).
    """
    rows, key = make_rows(200, 64), jax.random.key(7)
    chosen = chosen_of(mask(key, rows, make_rule(weights)))
    bits = np.asarray(jax.random.bits(jax.random.split(key, 4)[0], rows["input_ids"].shape))
    for row in range(200):
        units = [(p, number) for p, number in units_of(rows, row) if weights[number - 1] > 0]
        keys = [-np.log1p(-float(bits[row, p[0]]) / 2**32) / weights[n - 1] for p, n in units]
        count = int(round(int(rows["example_ids"][row].sum()) * 0.15))
        expected = np.zeros(64, bool)
        expected[choose_in_turn(units, keys, count)] = True
        np.testing.assert_array_equal(chosen[row], expected)


def test_phrases_of_a_packed_row_fill_the_budget_of_their_example():
    ids = np.full((50, 60), 7, np.int32)
    ids[:, [0, 20, 40]], ids[:, [19, 39, 59]] = CLS, SEP
    rows = {
        "input_ids": ids,
        "example_ids": np.repeat(np.arange(1, 4, dtype=np.int32), 20)[None].repeat(50, 0),
        "cls_positions": np.zeros((50, 3), np.int32),
        "mask_units": np.where(np.arange(60) % 2, 3, 0)[None].repeat(50, 0).astype(np.int8),
    }
    chosen = chosen_of(mask(jax.random.key(0), rows, make_rule((1.0, 1.0, 2.0))))
    for example in (1, 2, 3):  # round(20 * 0.15) = 3: a phrase of two tokens, or with one of one
        number = (chosen & (rows["example_ids"] == example)).sum(1)
        assert set(number.tolist()) <= {2, 3}


def test_the_share_of_masked_phrases():
    rows = make_rows(100, 64)
    masked = mask(jax.random.key(0), rows, make_rule(WEIGHTS))
    chosen, masked_phrases, phrases = chosen_of(masked), 0, 0
    for row in range(100):
        for places, _ in units_of(rows, row):
            if rows["mask_units"][row, places[0]] >= 2:
                phrases += 1
                masked_phrases += chosen[row, places].all()
    found = _masked_phrases(masked)
    assert (float(found.numerator), float(found.denominator)) == (masked_phrases, phrases)
    assert 0 < masked_phrases < phrases
