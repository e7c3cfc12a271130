"""Batches by length: every row once, a function of (seed, number), and little padding."""

import itertools

import numpy as np
import pytest

from bert_jax.data.labelled.batching import (
    BucketedLoader,
    PackedLoader,
    RowSampler,
    bucket_lengths,
    choose_lengths,
)

BUCKETS = (16, 32, 64)


def some_lengths(num_rows: int) -> np.ndarray:
    return np.random.default_rng(num_rows).integers(3, 65, num_rows)


def epochs_of(loader, count):
    """The rows of each epoch, in the order of its batches, without those of padding."""
    for epoch in range(count):
        first = epoch * loader.batches_per_epoch
        batches = [loader.batch(first + i)[0] for i in range(loader.batches_per_epoch)]
        rows = np.concatenate(batches)
        yield rows[rows >= 0].tolist()


@pytest.mark.parametrize(
    "num_rows, batch_size, by_tokens",
    [(1, 4, False), (7, 8, False), (1003, 8, False), (1, 16, True), (1003, 16, True)],
)
def test_every_row_comes_once_an_epoch_and_fits(num_rows, batch_size, by_tokens):
    lengths = some_lengths(num_rows)
    # Rows of at most 64 need no 128.
    loader = BucketedLoader(lengths, batch_size, 3, (*BUCKETS, 128), by_tokens)
    epochs = list(epochs_of(loader, 3))
    assert all(sorted(rows) == list(range(num_rows)) for rows in epochs)
    assert num_rows < 10 or epochs[0] != epochs[1] != epochs[2]
    wanted = batch_size * np.mean([min(n for n in BUCKETS if n >= length) for length in lengths])
    seen = []
    for number in range(loader.batches_per_epoch):
        rows, length = loader.batch(number)
        seen.append(length)
        # The shortest bucket that all of the batch fit in.
        assert length == min(n for n in BUCKETS if n >= lengths[rows[rows >= 0]].max())
        if by_tokens:  # no other number of rows is nearer
            assert abs(len(rows) * length - wanted) <= length / 2
        else:
            assert rows.shape == (batch_size,) and rows.dtype == np.int64
    assert loader.lengths == tuple(sorted(set(seen)))
    if not by_tokens:
        assert loader.batches_per_epoch == -(-num_rows // batch_size)
    elif num_rows > 10:  # about the number of steps with 16 rows each
        assert abs(loader.batches_per_epoch / (num_rows / 16) - 1) < 0.1
    if num_rows > 10:  # long and short ones come mixed; sorted there would be a change or two
        assert sum(map(int.__ne__, seen, seen[1:])) > 0.2 * len(seen)


def test_packed_rows_are_full_and_have_every_example_once_an_epoch():
    lengths = np.random.default_rng(0).integers(3, 40, 1000)
    loader, again = (PackedLoader(lengths, 16, 1, 128, max_examples=16) for _ in "ab")
    assert loader.fill > 0.97 and loader.rows == 3  # 16 examples of 20.9 tokens in rows of 128
    epochs = list(epochs_of(loader, 2))
    assert all(sorted(rows) == list(range(1000)) for rows in epochs)
    assert epochs[0] != epochs[1]
    for number in range(loader.batches_per_epoch):
        rows, length = loader.batch(number)
        assert rows.shape == (3, 16) and length == 128
        assert np.where(rows >= 0, lengths[rows], 0).sum(axis=1).max() <= 128
        assert not ((rows[:, :-1] < 0) & (rows[:, 1:] >= 0)).any()  # absent ones come last
    np.testing.assert_array_equal(again.batch(17)[0], loader.batch(17)[0])


def test_a_batch_depends_on_seed_and_number_only():
    lengths, numbers = some_lengths(500), range(0, 200, 13)
    fresh = [BucketedLoader(lengths, 8, 1, BUCKETS).batch(number) for number in numbers]
    used = BucketedLoader(lengths, 8, 1, BUCKETS)
    for number in (150, 3, 199, 70):
        rows, _ = used.batch(number)
        rows[:] = 0  # changes of a batch do not affect later ones
    for number, (rows, length) in reversed(list(zip(numbers, fresh, strict=True))):
        again, again_length = used.batch(number)
        assert (rows == again).all() and length == again_length
    others = [BucketedLoader(lengths, 8, 2, BUCKETS).batch(number) for number in numbers]
    assert any((a[0] != b[0]).any() for a, b in zip(fresh, others, strict=True))


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_chosen_lengths_have_the_least_padding_of_all_lengths(seed, most):
    rng = np.random.default_rng(seed)
    lengths = rng.geometric(0.03, rng.integers(1, 60)).clip(1, rng.integers(1, 80))
    ends = range(8, 8 * -(-lengths.max() // 8) + 1, 8)

    def positions(chosen):
        return sum(min(n for n in chosen if n >= length) for length in lengths.tolist())

    chosen = choose_lengths(lengths, most)
    # All choices that the longest row fits in.
    choices = itertools.chain(*(itertools.combinations(ends[:-1], n) for n in range(most)))
    assert positions(chosen) == min(positions((*choice, ends[-1])) for choice in choices)
    assert len(chosen) <= most and list(chosen) == sorted(set(chosen))
    # No length without rows.
    assert set(chosen) == {min(n for n in chosen if n >= length) for length in lengths}
    assert choose_lengths(rng.permutation(lengths), most) == chosen


@pytest.mark.parametrize("longest, expected", [(128, (16, 32, 64, 128)), (40, (16, 32, 40))])
def test_bucket_lengths_end_with_the_longest(longest, expected):
    assert bucket_lengths(BUCKETS, longest) == expected


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: BucketedLoader(np.array([]), 4, 0, BUCKETS), "There are no rows"),
        (
            lambda: BucketedLoader(np.array([3, 65]), 4, 0, BUCKETS),
            "A row has 65 tokens, more than",
        ),
        (lambda: PackedLoader(np.array([3, 65]), 4, 0, 64, 2), "A row has 65 tokens, more than"),
        (lambda: BucketedLoader(np.array([3]), 4, 0, ()), "A row has 3 tokens"),
        (lambda: choose_lengths(np.array([], int), 3), "no rows to choose lengths for"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("packs", [False, True])
def test_an_epoch_has_some_rows_of_each_example(packs):
    """Texts of 1 to 9 windows, of which those of a text have one length; 2 of them an epoch."""
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 10, 50)
    example = np.repeat(np.arange(50), counts)
    lengths = np.repeat(np.where(counts == 1, rng.integers(3, 33, 50), 32), counts)
    sampler = RowSampler(example, lengths, 2, seed=1)
    expected = np.minimum(counts, 2)
    if packs:
        loader = PackedLoader(sampler.lengths, 8, 3, 64, 4)
    else:
        loader = BucketedLoader(sampler.lengths, 8, 3, BUCKETS)
    seen, epochs = set(), []
    for epoch, places in enumerate(epochs_of(loader, 40)):
        rows = sampler.rows(np.array([*places, -1]), epoch)
        assert rows[-1] == -1 and len(set(rows.tolist())) == len(rows)
        assert (np.bincount(example[rows[:-1]]) == expected).all()
        assert (lengths[rows[:-1]] <= sampler.lengths[places]).all()
        epochs.append(sorted(rows[:-1].tolist()))
        seen |= set(epochs[-1])
    assert seen == set(range(len(example))) and epochs[0] != epochs[1]
    again, other = (
        RowSampler(example, lengths, 2, seed).rows(np.arange(len(sampler.lengths)), 7)
        for seed in (1, 2)
    )
    assert sorted(again.tolist()) == epochs[7] != sorted(other.tolist())
