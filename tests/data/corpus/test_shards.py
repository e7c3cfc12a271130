"""Rows on disk: rows are read as a batch as they were written, and corruption is reported."""

import random

import numpy as np
import pytest

from bert_jax.data.corpus import shards
from bert_jax.data.corpus.blocks import RowFormat
from bert_jax.data.corpus.pairs import PAIR
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
    rows = ShardRows([first, second], [512, 88], rows_form)
    assert len(rows) == 600
    assert (info["name"], info["rows"]) == ("first", 512)
    indices = np.random.default_rng(0).permutation(600)
    batch = rows.read(indices)
    expected = [expected_row(pairs[index], 32) for index in indices]
    assert set(batch) == set(expected[0])
    for name, array in batch.items():
        assert array.tolist() == [row[name] for row in expected], name
        assert array.dtype == (np.float32 if name.endswith("weights") else np.int32)


def test_masks_come_back_and_input_ids_are_corrupted(tmp_path):
    rows_form = form(max_predictions=4)
    dtype = instance_dtype(4)
    items = np.zeros(3, dtype)
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
    for row, number in ((0, 2), (2, 4)):
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
    assert batch["masked_lm_weights"][1].sum() == 0
    # The counts are those of the tokens of the text, not of the masks.
    counted = np.array(info["counts"]["token_counts"])
    assert counted[4] == 0 and counted.sum() == info["counts"]["sums"]["tokens"]


def test_padding_rows_have_no_weight(tmp_path):
    path, _ = write(tmp_path, random_pairs(5), form())
    batch = ShardRows([path], [5], form()).read(np.array([4, -1]))
    assert (batch["input_ids"][1] == PAD).all()
    assert batch["example_ids"][1].sum() == batch["next_sentence_weights"][1].sum() == 0
    everything = ShardRows([path], [5], form()).read(np.array([-1, -1]))
    assert everything["input_ids"].shape == (2, 32)


def test_there_are_no_other_rows(tmp_path):
    path, _ = write(tmp_path, random_pairs(5), form())
    rows = ShardRows([path], [5], form())
    for index in (5, -2):
        with pytest.raises(IndexError, match="numbered from 0 to 4"):
            rows.read(np.array([index]))


def test_equal_rows_give_equal_bytes(tmp_path):
    pairs = random_pairs(700)
    _, first = write(tmp_path, pairs, form(), "first")
    _, second = write(tmp_path, pairs, form(), "second")
    assert first["sha256"] == second["sha256"] == file_sha256(str(tmp_path / "first"))
    assert first["bytes"] == (tmp_path / "first").stat().st_size


def test_a_file_has_some_16_million_tokens_in_whole_blocks():
    assert shards.rows_per_file(128) == 131_072
    assert shards.rows_per_file(512) == 32_768
    assert shards.rows_per_file(1 << 30) == 256


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
