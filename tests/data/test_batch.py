"""The layout of the batch form, against a loop over rows, examples and tokens."""

import numpy as np
import pytest

from bert_jax.data.batch import token_fields

FIELDS = ("input_ids", "token_type_ids", "position_ids", "example_ids")


def one_by_one(ids, starts, lengths, first_lengths, sequence_length, pad_id):
    batch = {name: np.zeros((len(starts), sequence_length), np.int32) for name in FIELDS}
    batch["input_ids"][:] = pad_id
    batch["cls_positions"] = np.zeros(lengths.shape, np.int32)
    for row in range(len(starts)):
        place = 0
        for number, length in enumerate(lengths[row]):
            if length:
                batch["cls_positions"][row, number] = place
            for position in range(length):
                is_second = position >= first_lengths[row, number]
                id = ids[starts[row, number] + position]
                values = (id, is_second, position, number + 1)
                for name, value in zip(FIELDS, values, strict=True):
                    batch[name][row, place] = value
                place += 1
    return batch


def random_rows(seed: int, num_examples: int, dtype: str):
    """Rows of up to `num_examples` examples of 2 to 9 tokens, some of one segment; some empty.

    The examples are in `ids` in the opposite order, so that a row's are not side by side.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 10, (12, num_examples))
    lengths[np.arange(num_examples) >= rng.integers(0, num_examples + 1, (12, 1))] = 0
    first_lengths = np.minimum(lengths, rng.integers(2, 10, lengths.shape))
    ids = rng.integers(5, 1000, lengths.sum()).astype(dtype)
    starts = lengths.sum() - np.cumsum(lengths).reshape(lengths.shape)
    return ids, starts, lengths, first_lengths


@pytest.mark.parametrize("dtype", ["<u2", "<u4", "<i4"])
@pytest.mark.parametrize("num_examples", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_each_token_is_where_a_loop_puts_it(seed, num_examples, dtype):
    rows = random_rows(seed, num_examples, dtype)
    batch, expected = token_fields(*rows, 50, 7), one_by_one(*rows, 50, 7)
    assert list(batch) == list(expected)
    for name, array in batch.items():
        np.testing.assert_array_equal(array, expected[name], strict=True)


def test_rows_may_share_ids_and_be_empty():
    ids, none = np.array([2, 5, 3], np.uint16), np.empty(0, np.uint16)
    lengths = np.array([[3], [0], [3]])
    batch = token_fields(ids, np.zeros((3, 1), int), lengths, lengths, 4, 0)
    assert batch["input_ids"].tolist() == [[2, 5, 3, 0], [0] * 4, [2, 5, 3, 0]]
    batch = token_fields(none, *[np.zeros((2, 1), int)] * 3, 4, 9)
    assert batch["input_ids"].tolist() == [[9] * 4] * 2 and not batch["example_ids"].any()


def test_a_row_that_does_not_fit_is_reported():
    lengths = np.array([[3, 2]])
    with pytest.raises(ValueError, match="A row of 5 tokens does not fit in 4"):
        token_fields(np.arange(5), np.array([[0, 3]]), lengths, lengths, 4, 0)
