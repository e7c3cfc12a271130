"""Masks: exact numbers, the stated fractions, and the sequential procedure's distribution."""

import collections
import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.tasks.pretraining.masking import (
    LONGEST_SPAN,
    SPAN_PROBABILITY,
    MaskingRule,
    mask_batch,
)

CLS, SEP, MASK, FIRST_WORD, VOCAB = 2, 3, 4, 5, 1000
mask = jax.jit(mask_batch, static_argnums=2)


def make_rule(
    masking="subword", max_predictions=20, masked_lm_prob=0.15, rounding="half_even"
) -> MaskingRule:
    """Ids from 5 on that are divisible by 3 continue a word."""
    return MaskingRule(
        masked_lm_prob=masked_lm_prob,
        max_predictions=max_predictions,
        masking=masking,
        vocab_size=VOCAB,
        mask_id=MASK,
        never_masked=(0, CLS, SEP),
        is_continuation=tuple(i >= FIRST_WORD and i % 3 == 0 for i in range(VOCAB)),
        rounding=rounding,
    )


def make_rows(lengths, seq, seed=0):
    """One example a row: [CLS] A [SEP] B [SEP], then padding."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(FIRST_WORD, VOCAB, (len(lengths), seq), np.int32)
    place, length = np.arange(seq)[None], np.asarray(lengths)[:, None]
    ids[:, 0] = CLS
    ids = np.where((place == length - 1) | (place == length // 2), SEP, ids)
    is_token = place < length
    return {
        "input_ids": np.where(is_token, ids, 0).astype(np.int32),
        "example_ids": is_token.astype(np.int32),
        "cls_positions": np.zeros((len(lengths), 1), np.int32),
    }


def pack(rows, counts):
    """Puts `counts[i]` rows after one another into row i; all of them have the same length."""
    packed = {name: [] for name in ("input_ids", "example_ids")}
    ids, start = rows["input_ids"], 0
    for count in counts:
        part = ids[start : start + count]
        start += count
        gap = max(counts) * ids.shape[1] - part.size
        numbers = np.repeat(np.arange(1, count + 1), ids.shape[1])
        packed["input_ids"].append(np.pad(part.ravel(), (0, gap)))
        packed["example_ids"].append(np.pad(numbers, (0, gap)))
    arrays = {name: np.array(value, np.int32) for name, value in packed.items()}
    return arrays | {"cls_positions": np.zeros((len(counts), max(counts)), np.int32)}


def chosen_of(masked):
    """bool[batch, seq]: the tokens to predict."""
    chosen = np.zeros(masked["input_ids"].shape, bool)
    rows, slots = np.nonzero(masked["masked_lm_weights"])
    chosen[rows, np.asarray(masked["masked_lm_positions"])[rows, slots]] = True
    return chosen


@pytest.mark.parametrize("masking", ["subword", "whole_word", "span"])
def test_masked_batches_are_consistent(masking):
    rows = make_rows([128, 100, 61, 30, 9, 5], 128)
    masked = {
        k: np.asarray(v) for k, v in mask(jax.random.key(1), rows, make_rule(masking)).items()
    }
    chosen = chosen_of(masked)
    assert not (chosen & np.isin(rows["input_ids"], (0, CLS, SEP))).any()
    np.testing.assert_array_equal(masked["input_ids"][~chosen], rows["input_ids"][~chosen])
    for row in range(6):
        count = int(masked["masked_lm_weights"][row].sum())
        positions = masked["masked_lm_positions"][row]
        np.testing.assert_array_equal(positions[:count], np.nonzero(chosen[row])[0])
        np.testing.assert_array_equal(
            masked["masked_lm_ids"][row, :count], rows["input_ids"][row, positions[:count]]
        )
        assert not positions[count:].any() and not masked["masked_lm_ids"][row, count:].any()
        assert not masked["masked_lm_weights"][row, count:].any()
    assert masked["masked_lm_weights"].dtype == np.float32
    assert masked["masked_lm_positions"].dtype == masked["masked_lm_ids"].dtype == np.int32


def choose_by_hand(key, rows, rule):
    """bool[batch, seq] from the same random bits: example by example, word by word."""
    ids, example_ids = rows["input_ids"], rows["example_ids"]
    examples = rows["cls_positions"].shape[1]
    bits = np.asarray(jax.random.bits(jax.random.split(key, 4)[0], ids.shape))
    coins = jax.random.uniform(jax.random.fold_in(key, 4), (len(ids), examples + 1))
    chosen = np.zeros(ids.shape, bool)
    for row in range(len(ids)):
        if rule.rounding == "row":
            words = np.flatnonzero((example_ids[row] > 0) & ~np.isin(ids[row], (0, CLS, SEP)))
            count = min(rule.max_predictions, (len(words) + 1) // 2)
            chosen[row, sorted(words, key=lambda i, row=row: bits[row, i])[:count]] = True
            continue
        for example in range(1, examples + 1):
            tokens = np.flatnonzero(example_ids[row] == example)
            words = [i for i in tokens if ids[row, i] not in (0, CLS, SEP)]
            if rule.rounding == "bernoulli":
                chosen[row, [i for i in words if bits[row, i] / 2**32 < rule.masked_lm_prob]] = True
                continue
            if rule.rounding == "stochastic":
                count = int(rule.masked_lm_prob * len(tokens) + float(coins[row, example]))
            else:
                count = max(1, int(round(len(tokens) * rule.masked_lm_prob)))
            in_order = sorted(words, key=lambda i, row=row: bits[row, i])
            chosen[row, in_order[: min(count, rule.max_predictions)]] = True
        slots = sorted(np.flatnonzero(chosen[row]), key=lambda i, row=row: bits[row, i])
        chosen[row, slots[rule.max_predictions :]] = False
    return chosen


@pytest.mark.parametrize("rounding", ["half_even", "stochastic", "bernoulli"])
def test_a_rate_that_falls_masks_as_a_constant_one_of_that_moment(rounding):
    # No number of tokens times a rate is halfway between two integers.
    rows, key = make_rows([128, 101, 64, 33, 12, 4] * 10, 128), jax.random.key(3)
    falling = dataclasses.replace(make_rule("subword", 60, 0.3, rounding), final_prob=0.1)
    for progress, prob in ((0.0, 0.3), (0.5, 0.2), (1.0, 0.1)):
        found = chosen_of(mask(key, rows, falling, progress))
        expected = choose_by_hand(key, rows, make_rule("subword", 60, prob, rounding))
        # In single precision: for some tokens it is a matter of a random number's last digit.
        assert (found != expected).sum() <= 2


@pytest.mark.parametrize(
    "rounding, prob",
    [
        *(("half_even", 0.15), ("half_even", 0.4), ("stochastic", 0.15), ("bernoulli", 0.4)),
        ("row", 0.3),
    ],
)
def test_the_tokens_are_those_that_plain_loops_choose(rounding, prob):
    """Rounded half to even, special tokens counted; of too many for a row, the first by chance."""
    lengths, key = list(range(3, 65)) * 3, jax.random.key(7)
    rule = make_rule(max_predictions=10, masked_lm_prob=prob, rounding=rounding)
    for rows in (make_rows(lengths, 64), pack(make_rows([31] * 9, 31), [4, 3, 2])):
        chosen = chosen_of(mask(key, rows, rule))
        np.testing.assert_array_equal(chosen, choose_by_hand(key, rows, rule))
        assert not (chosen & np.isin(rows["input_ids"], (0, CLS, SEP))).any()


# Rows of the paper's Table 8: shares of [MASK], the same and a random token.
@pytest.mark.parametrize("shares", [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.0, 0.2, 0.8)], ids=str)
def test_the_shares_of_what_tokens_become_can_be_chosen(shares):
    rule = dataclasses.replace(make_rule(), mask_share=shares[0], random_share=shares[2])
    rows, key = make_rows([128] * 2000, 128), jax.random.key(3)
    masked, default = mask(key, rows, rule), mask(key, rows, make_rule())
    chosen = chosen_of(masked)
    np.testing.assert_array_equal(chosen, chosen_of(default))  # the shares choose no tokens
    new, old = np.asarray(masked["input_ids"])[chosen], rows["input_ids"][chosen]
    is_mask, is_kept = new == MASK, new == old
    found = is_mask.mean(), is_kept.mean(), (~is_mask & ~is_kept).mean()
    # A random word is [MASK] or the old one itself once in a thousand each.
    by_chance = np.array([1, 1, -2]) * shares[2] / VOCAB
    deviation = np.sqrt(0.25 / chosen.sum())
    np.testing.assert_allclose(found, np.array(shares) + by_chance, atol=5 * deviation)
    for share, flags in zip(shares[:2], (is_mask, is_kept), strict=True):
        assert share or flags.mean() < 0.003
    assert shares[2] or not (~is_mask & ~is_kept).any()
    if shares[2] > 0.5:  # from the whole vocabulary, special tokens too
        drawn = np.delete(np.bincount(new[~is_mask & ~is_kept], minlength=VOCAB), MASK)
        chi_square = ((drawn - drawn.mean()) ** 2 / drawn.mean()).sum() / (VOCAB - 2)
        assert chi_square == pytest.approx(1, abs=6 * np.sqrt(2 / VOCAB))


def test_spans_are_runs_of_whole_words_of_geometric_lengths():
    """Runs that touch look like one, so few are masked here: a single run for most rows."""
    ids = np.full((4000, 128), 5, np.int32)  # every token is a word
    ids[:, 0], ids[:, -1] = CLS, SEP
    rows = {
        "input_ids": ids,
        "example_ids": np.ones_like(ids),
        "cls_positions": np.zeros((4000, 1), np.int32),
    }
    rule = make_rule("span", masked_lm_prob=LONGEST_SPAN / 128)
    chosen = chosen_of(mask(jax.random.key(2), rows, rule))
    assert (chosen.sum(1) == LONGEST_SPAN).all()
    # The first run in the random order is whole; later ones fill up what is left.
    lengths = collections.Counter()
    for row in chosen:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
        lengths.update((edges[1::2] - edges[::2]).tolist())
    runs = sum(lengths.values()) / 4000

    rng = np.random.default_rng(0)
    weights = (1 - SPAN_PROBABILITY) ** np.arange(LONGEST_SPAN)
    expected = collections.Counter()
    for _ in range(4000):
        expected.update(runs_of_spans(rng, weights / weights.sum()))
    assert runs == pytest.approx(sum(expected.values()) / 4000, abs=0.08)
    for length in range(1, LONGEST_SPAN + 1):
        share, wanted = (c[length] / sum(c.values()) for c in (lengths, expected))
        assert share == pytest.approx(wanted, abs=0.02), length


def runs_of_spans(rng, weights):
    """Lengths of the masked runs in 126 words, of which 10 are masked, by a plain loop."""
    spans, start = [], 0
    for length in rng.choice(LONGEST_SPAN, 126, p=weights) + 1:
        spans.append(range(start, min(start + length, 126)))
        start += length
    order = [place for i in rng.permutation(len(spans)) for place in spans[i]]
    chosen = np.zeros(128, int)
    chosen[np.array(order[:LONGEST_SPAN]) + 1] = 1
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen, [0]])))
    return (edges[1::2] - edges[::2]).tolist()


@pytest.mark.parametrize("masking", ["whole_word", "span"])
def test_words_of_a_packed_row_fill_the_budget_of_their_example(masking):
    packed = pack(make_rows([30] * 9, 30), [4, 3, 2])
    chosen = chosen_of(mask(jax.random.key(0), packed, make_rule(masking, max_predictions=18)))
    for row, count in enumerate([4, 3, 2]):
        numbers = np.bincount(packed["example_ids"][row][chosen[row]], minlength=count + 1)
        assert numbers[0] == 0 and all(1 <= number <= 4 for number in numbers[1:])
    assert not (chosen & np.isin(packed["input_ids"], (0, CLS, SEP))).any()


@pytest.mark.parametrize("changes", [{"masking": "span"}, {"rounding": "row"}], ids=str)
def test_masks_are_the_same_on_a_mesh(changes):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    rows, rule = make_rows([64] * 8, 64), make_rule(**changes)
    here = mask(jax.random.key(0), rows, rule)
    there = mask(jax.random.key(0), jax.device_put(rows, sharding), rule)
    jax.tree.map(np.testing.assert_array_equal, here, there)
