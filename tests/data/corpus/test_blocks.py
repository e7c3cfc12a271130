"""Rows as flat arrays, as bytes and as a batch."""

import dataclasses

import numpy as np
import pytest

from bert_jax.data.corpus import blocks
from bert_jax.data.corpus.blocks import Block, RowFormat

PAD, CLS, SEP = 1, 2, 3


def test_a_row_may_hold_several_examples():
    """Two examples in the first row: 10 11 | 12 and 13 | 14 15."""
    block = Block(
        input_ids=np.array(
            [CLS, 10, 11, SEP, 12, SEP, CLS, 13, SEP, 14, 15, SEP, CLS, 5, SEP, 6, SEP]
        ),
        masked_lm_ids=np.array([12, 14]),
        masked_lm_positions=np.array([4, 9]),
        a_lengths=np.array([2, 1, 1]),
        b_lengths=np.array([1, 2, 1]),
        num_masked=np.array([2, 0]),
        num_examples=np.array([2, 1]),
        next_sentence_labels=np.array([1, 0, 1]),
    )
    form = RowFormat(14, 2, 3, vocab_size=1000, pad_id=PAD, cls_id=CLS, sep_id=SEP, end_id=SEP)
    empty = (np.empty(0, np.uint16),) * 6
    batch = form.make_batch([block.row(0), block.row(1), empty])
    zeros = [0] * 14
    assert {name: array.tolist() for name, array in batch.items()} == {
        "input_ids": [
            [CLS, 10, 11, SEP, 12, SEP, CLS, 13, SEP, 14, 15, SEP, PAD, PAD],
            [CLS, 5, SEP, 6, SEP] + [PAD] * 9,
            [PAD] * 14,
        ],
        "token_type_ids": [
            [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0],
            [0, 0, 0, 1, 1] + [0] * 9,
            zeros,
        ],
        "position_ids": [
            [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 0],
            [0, 1, 2, 3, 4] + [0] * 9,
            zeros,
        ],
        "example_ids": [[1] * 6 + [2] * 6 + [0] * 2, [1] * 5 + [0] * 9, zeros],
        "cls_positions": [[0, 6], [0, 0], [0, 0]],
        "next_sentence_labels": [[1, 0], [1, 0], [0, 0]],
        "next_sentence_weights": [[1, 1], [1, 0], [0, 0]],
        "masked_lm_positions": [[4, 9, 0], [0, 0, 0], [0, 0, 0]],
        "masked_lm_ids": [[12, 14, 0], [0, 0, 0], [0, 0, 0]],
        "masked_lm_weights": [[1, 1, 0], [0, 0, 0], [0, 0, 0]],
    }


def test_an_example_may_have_no_second_segment():
    """10 11 SEP 12 as one segment, then a pair in the same row."""
    block = Block(
        input_ids=np.array([CLS, 10, 11, SEP, 12, SEP, CLS, 13, SEP, 14, SEP]),
        masked_lm_ids=np.empty(0, int),
        masked_lm_positions=np.empty(0, int),
        a_lengths=np.array([4, 1]),
        b_lengths=np.array([0, 1]),
        num_masked=np.array([0]),
        num_examples=np.array([2]),
        next_sentence_labels=np.array([0, 1]),
    )
    form = RowFormat(13, 2, 0, vocab_size=1000, pad_id=PAD, cls_id=CLS, sep_id=SEP, end_id=SEP)
    batch = form.make_batch([block.row(0)])
    assert {name: array.tolist() for name, array in batch.items()} == {
        "input_ids": [[CLS, 10, 11, SEP, 12, SEP, CLS, 13, SEP, 14, SEP, PAD, PAD]],
        "token_type_ids": [[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]],
        "position_ids": [[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 0, 0]],
        "example_ids": [[1] * 6 + [2] * 5 + [0] * 2],
        "cls_positions": [[0, 6]],
        "next_sentence_labels": [[0, 1]],
        "next_sentence_weights": [[0, 1]],
    }


def test_blocks_survive_their_bytes():
    rng = np.random.default_rng(0)
    block = Block(
        input_ids=rng.integers(0, 1000, 100).astype("<u2"),
        masked_lm_ids=rng.integers(0, 1000, 7).astype("<u2"),
        masked_lm_positions=rng.integers(0, 32, 7).astype("<u2"),
        a_lengths=rng.integers(1, 9, 6).astype("<u2"),
        b_lengths=rng.integers(1, 9, 6).astype("<u2"),
        num_masked=np.array([3, 4, 0, 0], "<u2"),
        num_examples=np.array([1, 2, 2, 1], np.uint8),
        next_sentence_labels=rng.integers(0, 2, 6).astype(np.uint8),
    )
    data = block.to_bytes()
    form = RowFormat(32, 2, 7, vocab_size=1000, pad_id=PAD, cls_id=CLS, sep_id=SEP, end_id=SEP)
    again = form.read_block(data)
    assert all(
        np.array_equal(getattr(again, name), getattr(block, name)) for name, _, _ in blocks._FIELDS
    )
    with pytest.raises(ValueError):
        form.read_block(data + b"\0")
    with pytest.raises(ValueError):
        dataclasses.replace(form, vocab_size=70_000).read_block(data)
