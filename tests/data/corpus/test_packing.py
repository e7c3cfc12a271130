"""Rows of several examples: the rule that chooses them, and data that are the same otherwise."""

import collections
import functools
import re

import numpy as np
import pytest

from bert_jax.config.phases import max_masks
from bert_jax.data.corpus import dump
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.packing import pack
from tests.data.corpus.corpora import make_config, quiet

MOST = 6
MODES = {
    "static": {"mode": "static"},
    "full_sentences": {"segments": "full_sentences"},
    "phrases": {"masking": "phrase"},
}


def pack_by_hand(lengths, capacity, most):
    """Best-fit decreasing, one row after the other: [(examples of a row), ...]."""
    rows = []  # [room, time of the last change, examples]
    for time, example in enumerate(np.argsort(-lengths, kind="stable").tolist()):
        fitting = [r for r in rows if r[0] >= lengths[example] and len(r[2]) < most]
        if fitting:
            row = min(fitting, key=lambda r: (r[0], -r[1]))
        else:
            rows.append(row := [capacity, 0, []])
        row[0] -= int(lengths[example])
        row[1] = time
        row[2].append(example)
    return sorted(sorted(examples) for _, _, examples in rows)


@pytest.mark.parametrize("most", [1, 2, 5, 100])
def test_rows_are_those_of_best_fit_decreasing(most):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(3, 1 + rng.integers(4, 65), rng.integers(1, 300))
        order, sizes = pack(lengths, 64, most)
        rows = np.split(order, np.cumsum(sizes)[:-1])
        assert [row.tolist() for row in rows] == pack_by_hand(lengths, 64, most)


def test_of_no_examples_there_are_no_rows_and_a_long_one_is_refused():
    order, sizes = pack(np.zeros(0, np.int64), 64, 3)
    assert order.size == sizes.size == 0
    with pytest.raises(ValueError, match="An example of 65 tokens does not fit in 64"):
        pack(np.array([3, 65]), 64, 3)


@pytest.fixture(scope="module")
def both(text, tmp_path_factory):
    """Returns a function: key of MODES -> data without and with packing."""

    @functools.cache
    def make(mode):
        folder = tmp_path_factory.mktemp(mode)
        (folder / "lexicon.txt").write_text("ba co\ndu\n")
        changes = {"short_seq_prob": 0.5} | MODES[mode]
        if mode == "phrases":
            changes |= {"lexicon": str(folder / "lexicon.txt")}
        return [
            prepare(
                make_config(text, max_examples_per_row=most, **changes),
                str(folder / f"pack-{most}"),
                1,
                log=quiet,
            )
            for most in (1, MOST)
        ]

    return make


def examples_of(manifest, split, length):
    """Counts of (ids, token types, positions, label, masks, units) of all examples of a split."""
    found = collections.Counter()
    for part in CorpusRows(manifest, split, length).evaluation_batches(64):
        batch = part.read(0, 64)
        for row in np.flatnonzero(part.row_numbers >= 0):
            for number in range(batch["example_ids"][row].max()):
                here = batch["example_ids"][row] == number + 1
                start = int(batch["cls_positions"][row, number])
                assert np.flatnonzero(here)[0] == start
                fields = ["input_ids", "token_type_ids", "position_ids"]
                fields += ["mask_units"] if "mask_units" in batch else []
                label = batch["next_sentence_labels"], batch["next_sentence_weights"]
                masks = ()
                if "masked_lm_ids" in batch:
                    places = batch["masked_lm_positions"][row]
                    mine = (batch["masked_lm_weights"][row] > 0) & here[places]
                    ids = batch["masked_lm_ids"][row][mine]
                    masks = tuple((places[mine] - start).tolist()), tuple(ids.tolist())
                found[
                    tuple(tuple(batch[name][row][here].tolist()) for name in fields),
                    tuple(float(array[row, number]) for array in label),
                    masks,
                ] += 1
    return found


@pytest.mark.parametrize("mode", MODES)
def test_packed_rows_have_the_same_examples(mode, both):
    plain, packed = both(mode)
    for split in plain.splits:
        for length in plain.sequence_lengths:
            expected = examples_of(plain, split, length)
            assert examples_of(packed, split, length) == expected
            before, after = (m.statistics(split, length) for m in (plain, packed))
            assert after.get("examples", after["rows"]) == expected.total() == before["rows"]
            if split == "train" and mode != "full_sentences":  # which are full
                assert after["rows"] < before["rows"]
                assert after["padding_share"] < before["padding_share"]
            same = {
                n for n in before if n not in ("rows", "mean_length", "lengths", "padding_share")
            }
            assert {n: after[n] for n in same} == {n: before[n] for n in same}


def test_packed_rows_are_shown_example_by_example(both):
    plain, packed = both("static")
    shown = []
    for manifest in (plain, packed):
        tokenizer = manifest.tokenizer()
        examples = dump.examples(manifest, "train", 32)
        lines = "\n".join(dump.describe(example, tokenizer) for example in examples).split("\n")
        shown.append(sorted(line for line in lines if not line.startswith("masked: ")))
    assert shown[0] == shown[1]
    assert re.search(r"train at 32: [\d,]+ rows of .*, [\d,]+ examples", dump.summarize(packed))


@pytest.mark.parametrize("rounding", ["half_even", "stochastic"])
@pytest.mark.parametrize("prob", [0.15, 0.4])
def test_a_row_has_room_for_the_masks_of_all_its_examples(rounding, prob):
    rng = np.random.default_rng(0)
    for _ in range(2000):
        lengths = rng.integers(3, 20, MOST)
        masks = [max_masks(n, prob, rounding) for n in lengths.tolist()]
        assert sum(masks) <= max_masks(int(lengths.sum()), prob, rounding, MOST)
