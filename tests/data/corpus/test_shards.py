"""Rows on disk: they are read as they were written, counted, and corruption is reported."""

import dataclasses
import json
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.data.corpus import shards
from bert_jax.data.corpus.blocks import Block, RowFormat
from bert_jax.data.corpus.pairs import PAIR
from bert_jax.data.corpus.row_counts import RowCounts
from bert_jax.data.corpus.shards import Records, ShardRows, write_shard
from bert_jax.data.corpus.static_instances import KEEP, instance_dtype
from bert_jax.files.checksums import file_sha256

PAD, CLS, SEP = 1, 2, 3


def form(**changes) -> RowFormat:
    values = {"sequence_length": 32, "examples_per_row": 1, "max_predictions": 0}
    special = {"vocab_size": 1000, "pad_id": PAD, "cls_id": CLS, "sep_id": SEP, "end_id": SEP}
    return RowFormat(**values | special | changes)


class Tokens:
    """A token store of the numbers 10, 11, 12, ..."""

    def __init__(self, dtype: np.dtype):
        self._tokens = (10 + np.arange(900)).astype(dtype)

    def tokens(self, start: int, length: int) -> bytes:
        return self._tokens[start : start + length].tobytes()


def random_pairs(count: int) -> np.ndarray:
    rng = random.Random(count)
    rows = [
        (rng.randrange(800), rng.randint(1, 14), rng.randrange(800), rng.randint(1, 15))
        + (rng.random() < 0.5, rng.choice((0, 0, 3)))
        for _ in range(count)
    ]
    return np.array(rows, PAIR)


def expected_row(pair: np.void, length: int) -> dict[str, list[int]]:
    """A row of the batch form, written out step by step."""
    a = [10 + int(pair["a_start"]) + i for i in range(int(pair["a_length"]))]
    b = [10 + int(pair["b_start"]) + i for i in range(int(pair["b_length"]))]
    ids = [CLS, *a, SEP, *b, SEP]
    padding = length - len(ids)
    return {
        "input_ids": ids + [PAD] * padding,
        "token_type_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * padding,
        "position_ids": [*range(len(ids))] + [0] * padding,
        "example_ids": [1] * len(ids) + [0] * padding,
        "cls_positions": [0],
        "next_sentence_labels": [int(pair["is_random_next"])],
        "next_sentence_weights": [1.0],
    }


def write(tmp_path, items: np.ndarray, form: RowFormat, name: str = "shard", rows=None):
    records = str(tmp_path / "records")
    items.tofile(records)
    path = str(tmp_path / name)
    info = write_shard(
        Tokens(form.id_dtype),  # pyright: ignore[reportArgumentType]
        Records(records, items.dtype),
        rows or range(len(items)),
        form,
        path,
    )
    return path, info


@pytest.mark.parametrize("vocab_size", [1000, 70_000])
def test_rows_come_back_in_the_batch_form(vocab_size, tmp_path):
    rows_form = form(vocab_size=vocab_size)
    pairs = random_pairs(600)
    # Two files, as a large split has: the first of full blocks.
    first, info = write(tmp_path, pairs, rows_form, "first", range(512))
    second, _ = write(tmp_path, pairs, rows_form, "second", range(512, 600))
    assert (info["name"], info["rows"]) == ("first", 512)
    assert (info["bytes"], info["sha256"]) == (
        (tmp_path / "first").stat().st_size,
        file_sha256(first),
    )
    rows = ShardRows([first, second], [512, 88], rows_form)
    assert len(rows) == 600
    indices = np.random.default_rng(0).permutation(600)
    batch = rows.read(indices)
    expected = [expected_row(pairs[index], 32) for index in indices]
    assert set(batch) == set(expected[0])
    for name, array in batch.items():
        assert array.tolist() == [row[name] for row in expected], name
        assert array.dtype == (np.float32 if name.endswith("weights") else np.int32)
    for index in (600, -2):
        with pytest.raises(IndexError, match="numbered from 0 to 599"):
            rows.read(np.array([index]))


def test_masks_come_back_and_input_ids_are_corrupted(tmp_path):
    rows_form = form(max_predictions=4)
    items = np.zeros(3, instance_dtype(4))
    for name in PAIR.names or ():
        items[name] = random_pairs(3)[name]
    items["num_masked"] = [2, 0, 4]
    items["masked_positions"][0, :2] = [1, 3]
    items["replacements"][0, :2] = [4, KEEP]
    items["masked_positions"][2] = [1, 2, 4, 5]
    items["replacements"][2] = [KEEP, 4, 77, 4]
    items["a_length"] = [3, 4, 2]
    items["b_length"] = [5, 4, 6]
    path, info = write(tmp_path, items, rows_form)
    batch = ShardRows([path], [3], rows_form).read(np.arange(3))
    rows = [expected_row(pair, 32) for pair in items]
    for row, number in ((0, 2), (1, 0), (2, 4)):
        positions = items["masked_positions"][row, :number].tolist()
        padding = [0] * (4 - number)
        assert batch["masked_lm_positions"][row].tolist() == positions + padding
        original = [rows[row]["input_ids"][p] for p in positions]
        assert batch["masked_lm_ids"][row].tolist() == original + padding
        assert batch["masked_lm_weights"][row].tolist() == [1.0] * number + [0.0] * (4 - number)
        for position, id in zip(positions, items["replacements"][row].tolist(), strict=False):
            if id != KEEP:
                rows[row]["input_ids"][position] = id
    assert batch["input_ids"].tolist() == [row["input_ids"] for row in rows]
    # The counts are those of the tokens of the text, not of the masks.
    counted = np.array(info["counts"]["token_counts"])
    assert counted[4] == 0 and counted.sum() == info["counts"]["sums"]["tokens"]


def test_a_row_may_hold_several_examples_and_those_without_a_second_segment():
    """10 11 | 12, and 13 SEP 14 alone, in the first row; as bytes and back; a row of padding."""
    block = Block(
        input_ids=np.array([2, 10, 11, 3, 12, 3, 2, 13, 3, 14, 3, 2, 5, 3, 6, 3], "<u2"),
        masked_lm_ids=np.array([12, 14], "<u2"),
        masked_lm_positions=np.array([4, 9], "<u2"),
        a_lengths=np.array([2, 3, 1], "<u2"),
        b_lengths=np.array([1, 0, 1], "<u2"),
        num_masked=np.array([2, 0], "<u2"),
        num_examples=np.array([2, 1], np.uint8),
        next_sentence_labels=np.array([1, 0, 1], np.uint8),
    )
    rows_form = form(sequence_length=13, examples_per_row=2, max_predictions=3)
    data = block.to_bytes()
    read = rows_form.read_block(data)
    batch = rows_form.make_batch([read.row(0), read.row(1), rows_form.padding])
    zeros = [0] * 13
    assert {name: array.tolist() for name, array in batch.items()} == {
        "input_ids": [
            [CLS, 10, 11, SEP, 12, SEP, CLS, 13, SEP, 14, SEP, PAD, PAD],
            [CLS, 5, SEP, 6, SEP] + [PAD] * 8,
            [PAD] * 13,
        ],
        "token_type_ids": [[0] * 4 + [1] * 2 + [0] * 7, [0] * 3 + [1] * 2 + [0] * 8, zeros],
        "position_ids": [[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 0, 0], [0, 1, 2, 3, 4] + [0] * 8, zeros],
        "example_ids": [[1] * 6 + [2] * 5 + [0] * 2, [1] * 5 + [0] * 8, zeros],
        "cls_positions": [[0, 6], [0, 0], [0, 0]],
        "next_sentence_labels": [[1, 0], [1, 0], [0, 0]],
        "next_sentence_weights": [[1, 0], [1, 0], [0, 0]],
        "masked_lm_positions": [[4, 9, 0], [0, 0, 0], [0, 0, 0]],
        "masked_lm_ids": [[12, 14, 0], [0, 0, 0], [0, 0, 0]],
        "masked_lm_weights": [[1, 1, 0], [0, 0, 0], [0, 0, 0]],
    }
    with pytest.raises(ValueError, match=f"a block of {len(data) + 1} bytes should have"):
        rows_form.read_block(data + b"\0")
    with pytest.raises(ValueError):
        dataclasses.replace(rows_form, vocab_size=70_000).read_block(data)


def test_a_file_has_some_16_million_tokens_in_whole_blocks():
    """The bytes of prepared data depend on it."""
    assert shards.rows_per_file(128) == 131_072
    assert shards.rows_per_file(512) == 32_768
    assert shards.rows_per_file(1 << 30) == 256


def test_statistics_of_two_rows():
    """Worked out by hand."""
    pieces = ("[CLS]", "[SEP]", "[UNK]", "a", "b")
    tokenizer = SimpleNamespace(cls_id=0, sep_id=1, end_id=1, unk_id=2, pieces=pieces)
    counts, other = RowCounts(5), RowCounts(5)
    # [CLS] a [SEP] b b [SEP]
    pair = np.array([(0, 1, 0, 2, True, 0)], PAIR)
    counts.add(pair, np.array([0, 3, 1, 4, 4, 1]), np.array([6]))
    # [CLS] [UNK] a [SEP] b b b [SEP]
    pair = np.array([(0, 2, 0, 3, False, 7)], PAIR)
    other.add(pair, np.array([0, 2, 3, 1, 4, 4, 4, 1]), np.array([8]))
    counts.add_json(json.loads(json.dumps(other.to_json())))
    shares = [1 / 8, 2 / 8, 5 / 8]
    assert counts.describe(10, tokenizer, (0, 1)) == {  # pyright: ignore[reportArgumentType]
        "rows": 2,
        "tokens": 14,
        "mean_length": 7.0,
        "mean_a_length": 1.5,
        "mean_b_length": 2.5,
        "lengths": {"width": 1, "rows": [0, 0, 0, 0, 0, 1, 0, 1, 0, 0]},
        "padding_share": pytest.approx(6 / 20),
        "random_next_share": 0.5,
        "truncated_rows_share": 0.5,
        "truncated_tokens": 7,
        "unknown_token_share": 1 / 8,
        "unigram_entropy": pytest.approx(-sum(p * math.log(p) for p in shares)),
        "most_frequent_token": {"id": 4, "piece": "b", "share": 5 / 8},
    }


def test_every_flipped_bit_is_met_by_an_error_or_harmless(tmp_path):
    pairs = random_pairs(300)
    path, _ = write(tmp_path, pairs, form())
    whole = (tmp_path / "shard").read_bytes()
    intact = ShardRows([path], [300], form()).read(np.arange(300))
    rng = np.random.default_rng(0)
    errors = 0
    for position in rng.integers(0, len(whole), 60):
        corrupt = bytearray(whole)
        corrupt[position] ^= 1 << int(rng.integers(8))
        (tmp_path / "shard").write_bytes(corrupt)
        try:
            batch = ShardRows([path], [300], form()).read(np.arange(300))
        except ValueError as error:
            assert f"The shard {path} is corrupt" in str(error)
            errors += 1
        else:
            assert all(np.array_equal(batch[name], intact[name]) for name in intact)
    assert errors > 5


@pytest.mark.parametrize("content", [b"", b"no shard at all" * 9999])
def test_what_is_no_shard_is_named(content, tmp_path):
    path = tmp_path / "shard"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"The shard {path} is corrupt"):
        ShardRows([str(path)], [5], form()).read(np.array([0]))


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    (tmp_path / "shard.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as error:
        write(tmp_path, random_pairs(300), form())
    assert error.value.filename == str(tmp_path / "shard")
    assert [path.name for path in tmp_path.iterdir()] == ["records"]
