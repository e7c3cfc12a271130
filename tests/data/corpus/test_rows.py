"""The rows of a prepared corpus as a run reads them."""

import numpy as np
import pytest

from bert_jax.data.corpus.batch import Rows
from bert_jax.data.corpus.loader import Loader
from bert_jax.data.corpus.rows import CorpusRows


def assert_equal(batch, expected):
    assert batch.keys() == expected.keys()
    for name, array in batch.items():
        np.testing.assert_array_equal(array, expected[name], strict=True)


def test_training_batches_are_those_of_the_loader(manifest):
    rows: Rows = CorpusRows(manifest, "train", 16, batch_size=8, seed=3)
    loader = Loader(manifest.rows("train", 16), 8, 3)
    assert rows.rows_per_epoch == 300 and rows.batch_rows(0) == rows.batch_rows(77) == 8
    for number in (0, 36, 37, 500):
        assert_equal(rows.batch(number, 2, 6), loader.batch(number, 2, 6))


def test_an_evaluation_has_every_row_once_in_order_and_fills_up_the_last_batch(manifest):
    rows = CorpusRows(manifest, "train", 16)
    batches = list(rows.evaluation_batches(128))
    numbers = np.concatenate([batch.row_numbers for batch in batches])
    assert numbers.tolist() == [*range(300), *[-1] * 84]
    assert {batch.length for batch in batches} == {16}
    stored = manifest.rows("train", 16)
    for batch in batches:
        assert_equal(batch.read(32, 96), stored.read(batch.row_numbers[32:96]))


def test_the_banner_names_the_text_the_folder_and_the_fingerprint(manifest):
    rows = CorpusRows(manifest, "train", 16)
    assert rows.fingerprint == manifest.fingerprint
    assert rows.describe() == [
        f"data       text/*.txt in {manifest.folder}, fingerprint {manifest.fingerprint[:12]},"
        " 13 tokens in the vocabulary"
    ]


def test_a_split_that_does_not_exist_is_reported(manifest):
    with pytest.raises(ValueError, match="no rows of split 'validation'"):
        list(CorpusRows(manifest, "validation", 16).evaluation_batches(4))
