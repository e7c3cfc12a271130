"""A file of labelled examples as a run reads it."""

import hashlib
from collections import Counter

import numpy as np
import pytest

from bert_jax.data.batch import Rows
from bert_jax.data.labelled.batching import BucketedLoader
from bert_jax.data.labelled.encode_texts import encode_texts
from bert_jax.data.labelled.examples import Labels, TextExample
from bert_jax.data.labelled.labelled_rows import LabelledRows, source_sha256
from tests.data.labelled.letters import TOKENIZER

PAD_LENGTHS = (8, 16, 32)


@pytest.fixture
def labelled() -> LabelledRows:
    """100 texts of 1 to 25 letters."""
    examples = [
        TextExample(f"line {i}", str(i), "a " * (1 + i * 7 % 25), None, ("no",)) for i in range(100)
    ]
    rows = encode_texts(iter(examples), TOKENIZER, 32, Labels(("no", "yes")), "single", Counter())
    return LabelledRows("train", "dev.tsv", "0123456789abcdef", examples, rows, {}, PAD_LENGTHS)


@pytest.mark.parametrize("by_tokens", [False, True])
def test_training_batches_are_those_of_the_loader_and_then_padding(by_tokens, labelled):
    rows: Rows = labelled.for_training(12, 3, by_tokens)
    loader = BucketedLoader(labelled.rows.lengths, 12, 3, PAD_LENGTHS, by_tokens)
    assert rows.rows_per_epoch == 12 * loader.batches_per_epoch
    for number in (0, 5, loader.batches_per_epoch, 100):
        row_numbers, length = loader.batch(number)
        assert rows.batch_rows(number) == (size := len(row_numbers))
        np.testing.assert_equal(
            rows.batch(number, 1, 4), labelled.rows.take(row_numbers[1:4], length)
        )
        padded = rows.batch(number, size - 1, size + 3)
        missing = np.array([row_numbers[-1], -1, -1, -1])
        np.testing.assert_equal(padded, labelled.rows.take(missing, length))
        assert not padded["weights"][1:].any() and not padded["example_ids"][1:].any()


@pytest.mark.parametrize("batch_size", [8, 100, 128])
def test_an_evaluation_sees_every_row_once_the_longest_first(labelled, batch_size):
    batches = list(labelled.evaluation_batches(batch_size))
    numbers = np.concatenate([batch.row_numbers for batch in batches])
    assert sorted(numbers[numbers >= 0]) == list(range(100)) == list(range(labelled.rows_per_epoch))
    assert {len(batch.row_numbers) for batch in batches} == {batch_size}
    lengths = [batch.length for batch in batches]
    assert lengths == sorted(lengths, reverse=True)
    for batch in batches:
        here = batch.row_numbers[batch.row_numbers >= 0]
        assert labelled.rows.lengths[here].max() <= batch.length
        expected = labelled.rows.take(batch.row_numbers[4:8], batch.length)
        np.testing.assert_equal(batch.read(4, 8), expected)
        past = labelled.rows.take(np.append(batch.row_numbers[-1:], [-1, -1]), batch.length)
        np.testing.assert_equal(batch.read(batch_size - 1, batch_size + 2), past)


def test_rows_that_are_only_evaluated_have_no_training_batches(labelled):
    with pytest.raises(ValueError, match="'train' .dev.tsv. has no training batches"):
        labelled.batch(0, 0, 1)


def test_the_fingerprint_of_a_source_is_that_of_its_bytes_or_of_its_examples(tmp_path):
    (path := tmp_path / "dev.tsv").write_text("text\tlabel\n")
    assert source_sha256(str(path), []) == hashlib.sha256(b"text\tlabel\n").hexdigest()
    assert source_sha256("tfds:glue/mrpc", ["a"]) == hashlib.sha256(b"['a']").hexdigest()
