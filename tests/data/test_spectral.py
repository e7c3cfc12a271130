"""Spectral embeddings against singular vectors of a dense table that is counted by hand."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from bert_jax.data import spectral
from bert_jax.data.spectral import spectral_embeddings
from bert_jax.files.errors import UserError

VOCAB, SIZE = 30, 4


@dataclasses.dataclass
class ListedRows:
    """Batches of a list; those after the epoch would raise IndexError."""

    batches: list[dict[str, np.ndarray]]

    @property
    def rows_per_epoch(self) -> int:
        return sum(len(batch["input_ids"]) for batch in self.batches)

    def batch_rows(self, number: int) -> int:
        return len(self.batches[number]["input_ids"])

    def batch(self, number: int, start: int, stop: int) -> dict[str, np.ndarray]:
        return {name: field[start:stop] for name, field in self.batches[number].items()}


def make_batch(seed: int) -> dict[str, np.ndarray]:
    """Two examples in a row of 24, then padding; ids from 5 to VOCAB - 4."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, VOCAB - 3, (6, 24))
    ids = np.minimum(ids, rng.integers(5, VOCAB - 3, ids.shape))  # not equally frequent
    first, tokens = rng.integers(4, 10, (6, 1)), rng.integers(12, 25, (6, 1))
    place = np.arange(24)
    examples = np.where(place < first, 1, np.where(place < tokens, 2, 0))
    return {"input_ids": np.where(examples > 0, ids, 0), "example_ids": examples}


def dense_table(batches: list[dict[str, np.ndarray]]) -> tuple[np.ndarray, int]:
    """The table [vocab, 2 vocab] and the number of pairs, counted one by one."""
    pairs = Counter()
    for batch in batches:
        for ids, examples in zip(batch["input_ids"], batch["example_ids"], strict=True):
            for number in (1, 2):
                example = ids[examples == number].tolist()
                pairs.update(zip(example, example[1:], strict=False))
    counts = np.zeros((VOCAB, VOCAB))
    for (before, after), count in pairs.items():
        counts[before, after] = count
    expected = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / counts.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        table = np.where(counts > expected, np.log(counts / expected), 0)
    return np.hstack([table, table.T]), pairs.total()


def test_are_the_singular_vectors_of_a_table_of_neighbours():
    batches = [make_batch(seed) for seed in range(4)]
    found, pairs = spectral_embeddings(ListedRows(batches), VOCAB, SIZE)
    table, expected_pairs = dense_table(batches)
    assert pairs == expected_pairs
    left, values, _ = np.linalg.svd(table)
    expected = left[:, :SIZE] * np.sqrt(values[:SIZE])
    # Singular vectors are determined up to their signs and order, and products of rows are not.
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-4)
    is_absent = ~np.isin(
        np.arange(VOCAB), np.concatenate([b["input_ids"].ravel() for b in batches])
    )
    assert is_absent.sum() >= 4 and not found[is_absent | (np.arange(VOCAB) == 0)].any()


def test_reads_no_more_than_the_limit(monkeypatch):
    batches = [make_batch(seed) for seed in range(4)]
    tokens = [np.count_nonzero(batch["example_ids"]) for batch in batches]
    monkeypatch.setattr(spectral, "_MAX_TOKENS", tokens[0] + 1)
    _, pairs = spectral_embeddings(ListedRows(batches), VOCAB, SIZE)
    assert pairs == dense_table(batches[:2])[1]


def batch_of(ids: np.ndarray) -> dict[str, np.ndarray]:
    return {"input_ids": ids, "example_ids": np.ones_like(ids)}


# Each pair of six tokens once: nothing tells them apart. Two blocks of tokens have a rank of 4.
ALIKE = batch_of(np.array([(i, j) for i in range(5, 11) for j in range(5, 11)]))
BLOCKS = batch_of(
    np.array([(i, j) for a in (5, 11) for i in range(a, a + 3) for j in range(a + 3, a + 6)])
)


@pytest.mark.parametrize(
    ("batch", "size", "known"), [(make_batch(0), 24, 21), (ALIKE, 4, 6), (BLOCKS, 8, 12)]
)
def test_refuses_text_that_does_not_determine_them(batch, size, known):
    with pytest.raises(UserError, match=f"the {known} different tokens of the text do not"):
        spectral_embeddings(ListedRows([batch]), VOCAB, size)


def test_tokens_apart_from_all_others_have_zeros():
    apart = batch_of(np.array([[27, 28], [27, 28]]))
    found, _ = spectral_embeddings(ListedRows([make_batch(0), apart] * 2), VOCAB, SIZE)
    assert not found[27:29].any() and found[5:20].any(axis=1).all()
