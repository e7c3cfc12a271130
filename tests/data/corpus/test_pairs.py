"""Cutting documents: pairs with the fractions that the paper states, and runs against loops."""

import random
from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest

from bert_jax.data.corpus.pairs import (
    Pair,
    full_sentences,
    running_text,
    sample_pairs,
    sample_unit,
)
from tests.data.corpus.corpora import Lengths

MAX_NUM_TOKENS = 125


@pytest.fixture(scope="module")
def documents() -> Lengths:
    rng = random.Random(5)
    return Lengths(
        [[rng.randint(1, 40) for _ in range(rng.randint(1, 80))] for _ in range(200)]
        + [[1], [700], [300, 300]]
    )


@pytest.fixture(scope="module")
def pairs(documents) -> dict[int, list[Pair]]:
    """The pairs of each document."""
    return {
        number: list(sample_unit(documents, (number, number + 1), "seed", MAX_NUM_TOKENS, 0.1))
        for number in range(len(documents))
    }


def test_a_comes_from_the_document_and_b_follows_it_or_comes_from_another(documents, pairs):
    for number, of_document in pairs.items():
        for pair in of_document:
            assert pair.a_length >= 1 and pair.b_length >= 1
            size = pair.a_length + pair.b_length
            assert size == MAX_NUM_TOKENS if pair.num_truncated else size <= MAX_NUM_TOKENS
            assert documents.owner(pair.a_start, pair.a_length) == number
            b_owner = documents.owner(pair.b_start, pair.b_length)
            assert (b_owner != number) == pair.is_random_next
            if not pair.is_random_next and not pair.num_truncated:
                assert pair.b_start == pair.a_start + pair.a_length
    (pair,) = pairs[len(documents) - 2]  # one sentence of 700 tokens
    assert pair.is_random_next and pair.num_truncated >= 700 - MAX_NUM_TOKENS


def test_no_sentence_is_left_out(documents):
    """With room for all tokens, the segments of the document cover it without gap or overlap."""
    for number in range(len(documents)):
        spans = []
        for pair in sample_unit(documents, (number, number + 1), "seed", 10**6, 0.1):
            spans.append((pair.a_start, pair.a_start + pair.a_length))
            if not pair.is_random_next:
                spans.append((pair.b_start, pair.b_start + pair.b_length))
        starts = documents.starts(number)
        assert spans[0][0] == starts[0] and spans[-1][1] == starts[-1]
        assert all(before[1] == after[0] for before, after in pairwise(spans))


def test_half_of_the_pairs_are_random_where_there_is_a_choice():
    """There is one, except if the last sentence of a document is alone."""
    documents = Lengths([[10] * 1000] * 20)
    drawn = list(sample_unit(documents, (0, 20), "seed", 130, 0.0))
    assert np.mean([pair.is_random_next for pair in drawn]) == pytest.approx(0.5, abs=0.03)
    # A is one to twelve of the thirteen sentences that make 130 tokens.
    lengths = Counter(pair.a_length for pair in drawn if not pair.num_truncated)
    assert set(lengths) == {10 * count for count in range(1, 13)}


def test_some_documents_are_cut_short():
    documents = Lengths([[1] * 600] * 3000)
    longest = [
        max(p.a_length + p.b_length for p in sample_unit(documents, (i, i + 1), "x", 125, 0.1))
        for i in range(3000)
    ]
    assert np.mean(np.array(longest) < 125) == pytest.approx(0.1 * 123 / 124, abs=0.02)
    assert min(longest) < 8


def test_truncation_takes_from_both_ends_of_the_longer_segment():
    documents = Lengths([[99, 1000], [5]])
    rng = random.Random(0)
    drawn = [
        pair
        for _ in range(500)
        for pair in sample_pairs(documents, 0, rng, 100, 0.0, max_tries=10)
        if not pair.is_random_next
    ]
    assert len(drawn) > 100
    for pair in drawn:
        assert (pair.a_length, pair.b_length) == (50, 50)
    # Half of the tokens that go, go at the front.
    assert np.mean([pair.a_start for pair in drawn]) == pytest.approx(49 / 2, abs=1)
    assert np.mean([pair.b_start for pair in drawn]) == pytest.approx(99 + 950 / 2, abs=4)


def test_the_stream_of_a_document_depends_on_nothing_else(documents, pairs):
    together = list(sample_unit(documents, (0, len(documents)), "seed", MAX_NUM_TOKENS, 0.1))
    assert together == sum(pairs.values(), [])
    other = list(sample_unit(documents, (0, 1), "other seed", MAX_NUM_TOKENS, 0.1))
    assert other != pairs[0]


def test_with_two_documents_the_released_program_errs_one_time_in_1024():
    """After ten tries the document itself is taken; a unit of dynamic data draws on."""
    documents = Lengths([[5]] * 2)
    rng = random.Random(0)
    released = [next(sample_pairs(documents, 0, rng, 20, 0.0, 10)) for _ in range(20_000)]
    same = sum(documents.owner(pair.b_start, pair.b_length) == 0 for pair in released)
    assert 5 <= same <= 40
    ours = [next(sample_unit(documents, (0, 1), str(i), 20, 0.0)) for i in range(5000)]
    assert all(documents.owner(pair.b_start, pair.b_length) == 1 for pair in ours)


# ------------------------------------------------------------------ full sentences, running text


def positions_of(run, documents: Lengths, after_separator: bool = False) -> list[int | None]:
    """The positions of the tokens of a run in the store, None for a separator, one by one."""
    positions, document, place = [None] * after_separator, run.document, run.start
    while len(positions) < run.length:
        if place == documents.starts(document)[-1]:
            positions.append(None)
            document += 1
        else:
            positions.append(place)
            place += 1
    return positions


def runs_by_hand(documents: Lengths, unit: tuple[int, int], size: int) -> list[list]:
    """The token positions of each run, and None for a separator; token by token."""
    runs, run = [], []
    for number in range(*unit):
        is_first = True
        for begin, end in pairwise(documents.starts(number)):
            tokens = list(range(begin, end))
            joined = [None, *tokens] if is_first and run else tokens
            if run and len(run) + len(joined) > size:
                runs.append(run)
                run, joined = [], tokens
            run = run + joined
            while len(run) > size:
                runs.append(run[:size])
                run = run[size:]
            is_first = False
    return runs + [run] * bool(run)


@pytest.mark.parametrize("size", [8, 126, 510])
def test_full_sentences_are_those_of_plain_loops(documents, size):
    unit = (0, len(documents))
    for part in ((50, 100), (7, 7), unit):
        found = [positions_of(run, documents) for run in full_sentences(documents, part, size)]
        assert found == runs_by_hand(documents, part, size)
        runs = full_sentences(documents, part, size, crosses=False)
        alone = [runs_by_hand(documents, (n, n + 1), size) for n in range(*part)]
        assert [positions_of(run, documents) for run in runs] == list(chain.from_iterable(alone))
    # Nothing is lost or repeated, and no run begins or ends with a separator.
    tokens = [p for run in found for p in run if p is not None]
    assert tokens == list(range(documents.starts(len(documents) - 1)[-1]))
    assert all(run[0] is not None and run[-1] is not None for run in found)
    assert max(map(len, found)) <= size


def test_rows_of_running_text_are_slices_of_the_stream_that_share_one_token():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, rng.choice([3, 10, 60]), rng.integers(1, 12)).tolist()
        documents = Lengths([[length] for length in lengths])
        first = int(rng.integers(0, len(lengths)))
        unit, size = (first, len(lengths)), int(rng.choice([8, 9, 13]))
        # By its definition: a separator before the first document and after each.
        stream = [None]
        for number in range(*unit):
            stream += [*range(*documents.starts(number)), None]
        expected = [stream[at : at + size] for at in range(0, len(stream) - 1, size - 1)]
        rows = list(running_text(documents, unit, size))
        assert [positions_of(row, documents, row.after_separator) for row in rows] == expected
        # Each token of the unit, and a separator after each document, is predicted once.
        assert [token for row in expected for token in row[1:]] == stream[1:]
