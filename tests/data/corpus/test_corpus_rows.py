"""The rows of a prepared corpus as a run reads them: their order, and the parts of batches."""

import numpy as np
import pytest

from bert_jax.data.batch import Rows
from bert_jax.data.corpus.corpus_rows import WINDOW_BLOCKS, CorpusRows, ShuffledOrder, stream_rows
from bert_jax.data.corpus.shards import ROWS_PER_BLOCK

WINDOW = WINDOW_BLOCKS * ROWS_PER_BLOCK


def numbers(order, batches: range) -> np.ndarray:
    return np.concatenate([order.row_numbers(number) for number in batches])


def test_the_order_never_changes():
    """A run that resumes from an old checkpoint must read the same batches."""
    expected = [54320, 86795, 933, 46358]
    assert ShuffledOrder(100_000, 4, 0).row_numbers(12_345).tolist() == expected
    assert ShuffledOrder(100_000, 4, 1).row_numbers(12_345).tolist() != expected


@pytest.mark.parametrize("num_rows", [1, 10, 255, 256, 257, WINDOW, 2 * WINDOW + 300])
@pytest.mark.parametrize("batches_per_epoch", [2.9, 0.4])
def test_each_epoch_has_every_row_once(num_rows, batches_per_epoch):
    """Also where a batch is larger than an epoch."""
    batch_size = int(num_rows / batches_per_epoch) + 1
    order = ShuffledOrder(num_rows, batch_size, 0)
    seen = numbers(order, range(-(-3 * num_rows // batch_size)))
    epochs = [seen[i * num_rows : (i + 1) * num_rows] for i in range(3)]
    for epoch in epochs:
        assert np.array_equal(np.sort(epoch), np.arange(num_rows))
    if num_rows > 5:
        assert not np.array_equal(epochs[0], epochs[1])
        assert not np.array_equal(epochs[1], epochs[2])


def test_a_later_phase_reads_on_in_the_same_order():
    whole, later = ShuffledOrder(300, 4, 0), ShuffledOrder(300, 6, 0, skipped=200)
    assert numbers(later, range(40)).tolist() == numbers(whole, range(110))[200:].tolist()


def test_a_batch_mixes_many_blocks_and_a_window_reads_each_block_once():
    order = ShuffledOrder(10 * WINDOW, 256, 0)
    assert len(np.unique(order.row_numbers(3) // ROWS_PER_BLOCK)) > 90
    window = numbers(order, range(WINDOW // 256)) // ROWS_PER_BLOCK
    assert len(np.unique(window)) == WINDOW_BLOCKS


@pytest.mark.parametrize("num_rows, batch_size", [(12, 4), (13, 4), (7, 7), (1000, 48)])
def test_a_stream_continues_and_all_streams_together_read_the_corpus_once(num_rows, batch_size):
    count = -(-num_rows // batch_size)
    batches = np.array([stream_rows(i, num_rows, batch_size) for i in range(3 * num_rows)])
    assert ((batches[1:] - batches[:-1]) % num_rows == 1).all()
    assert set(batches[:count].ravel()) == set(range(num_rows))
    # An epoch later, each stream is where the next one began.
    if num_rows % batch_size == 0:
        np.testing.assert_array_equal(batches[count], np.roll(batches[0], -1))
    # In as many batches as there are rows, each stream reads the whole corpus.
    assert (np.sort(batches[:num_rows], axis=0) == np.arange(num_rows)[:, None]).all()


def test_training_batches_are_rows_in_shuffled_order_and_a_process_reads_its_part(prepared):
    rows: Rows = CorpusRows(prepared, "train", 32, batch_size=8, seed=3)
    stored = prepared.rows("train", 32)
    order = ShuffledOrder(len(stored), 8, 3)
    assert rows.rows_per_epoch == len(stored) and rows.batch_rows(0) == rows.batch_rows(77) == 8
    for number in (0, len(stored) // 8, 500):
        expected = stored.read(order.row_numbers(number))
        for start, stop in ((0, 8), (2, 6), (6, 8)):
            part = {name: array[start:stop] for name, array in expected.items()}
            np.testing.assert_equal(rows.batch(number, start, stop), part)
        padded = stored.read(np.array([order.row_numbers(number)[7], -1, -1]))
        np.testing.assert_equal(rows.batch(number, 7, 10), padded)


def test_an_evaluation_has_every_row_once_in_order_and_fills_up_the_last_batch(prepared):
    rows = CorpusRows(prepared, "validation", 32)
    batches = list(rows.evaluation_batches(12))
    row_numbers = np.concatenate([batch.row_numbers for batch in batches])
    assert row_numbers.tolist() == [*range(28), *[-1] * 8]
    assert {batch.length for batch in batches} == {32}
    stored = prepared.rows("validation", 32)
    for batch in batches:
        np.testing.assert_equal(batch.read(3, 9), stored.read(batch.row_numbers[3:9]))
