"""A file of labelled examples as a run reads it."""

import hashlib
from collections import Counter

import numpy as np
import pytest

from bert_jax.data.batch import Rows
from bert_jax.data.labelled.batching import BucketedLoader, evaluation_batches
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
    counts = Counter()
    rows = encode_texts(iter(examples), TOKENIZER, 32, Labels(("no", "yes")), "single", counts)
    return LabelledRows(
        "train", "dev.tsv", "0123456789abcdef", examples, rows, {"texts_truncated": 2}, PAD_LENGTHS
    )


@pytest.mark.parametrize("by_tokens", [False, True])
def test_training_batches_are_those_of_the_loader_and_then_padding(by_tokens, labelled):
    rows: Rows = labelled.for_training(12, 3, by_tokens)
    loader = BucketedLoader(labelled.rows.lengths, 12, 3, PAD_LENGTHS, by_tokens)
    assert rows.rows_per_epoch == 12 * loader.batches_per_epoch
    for number in (0, 5, loader.batches_per_epoch, 100):
        row_numbers, length = loader.batch(number)
        assert rows.batch_rows(number) == len(row_numbers)
        np.testing.assert_equal(
            rows.batch(number, 1, 4), labelled.rows.take(row_numbers[1:4], length)
        )
        size = len(row_numbers)
        padded = rows.batch(number, size - 1, size + 3)
        missing = np.array([row_numbers[-1], -1, -1, -1])
        np.testing.assert_equal(padded, labelled.rows.take(missing, length))
        assert not padded["weights"][1:].any() and not padded["example_ids"][1:].any()


def test_an_evaluation_reads_parts_of_batches(labelled):
    batches = list(labelled.evaluation_batches(16))
    expected = list(evaluation_batches(labelled.rows.lengths, 16, PAD_LENGTHS))
    for batch, (row_numbers, length) in zip(batches, expected, strict=True):
        assert batch.row_numbers.tolist() == row_numbers.tolist() and batch.length == length
        np.testing.assert_equal(batch.read(4, 8), labelled.rows.take(row_numbers[4:8], length))
        last = labelled.rows.take(np.array([row_numbers[15], -1, -1]), length)
        np.testing.assert_equal(batch.read(15, 18), last)


def test_rows_that_are_only_evaluated_have_no_training_batches(labelled):
    assert labelled.rows_per_epoch == 100
    with pytest.raises(ValueError, match="'train' .dev.tsv. has no training batches"):
        labelled.batch(0, 0, 1)


def test_the_fingerprint_of_a_source_is_that_of_its_bytes_or_of_its_examples(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("text\tlabel\n")
    assert source_sha256(str(path), []) == hashlib.sha256(b"text\tlabel\n").hexdigest()
    assert source_sha256("tfds:glue/mrpc", ["a"]) == hashlib.sha256(b"['a']").hexdigest()
