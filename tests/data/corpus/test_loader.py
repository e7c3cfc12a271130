"""The order of rows, and the parts of batches."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bert_jax.data.corpus.loader import WINDOW_BLOCKS, Loader, permute
from bert_jax.data.corpus.shards import ROWS_PER_BLOCK

WINDOW = WINDOW_BLOCKS * ROWS_PER_BLOCK


class FakeRows:
    """Rows whose only content is their number."""

    def __init__(self, length: int):
        self._length = length

    def __len__(self) -> int:
        return self._length

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        return {"row": np.array(indices)}


def loader(num_rows: int, batch_size: int, seed: int = 0) -> Loader:
    return Loader(FakeRows(num_rows), batch_size, seed)  # pyright: ignore[reportArgumentType]


def numbers(of: Loader, batches: range) -> np.ndarray:
    return np.concatenate([of.batch(index)["row"] for index in batches])


@pytest.mark.parametrize("size", [*range(1, 300), 1000, 4096, 4097, 65_537, 1_000_003])
def test_permute_is_a_bijection(size):
    assert np.array_equal(np.sort(permute(np.arange(size), size, "key")), np.arange(size))


def test_permute_depends_on_its_key_and_mixes_well():
    size = 10_000
    results = [permute(np.arange(size), size, f"key {i}") for i in range(50)]
    assert len({result.tobytes() for result in results}) == 50
    # The image of a number is uniform, and independent of that of its neighbour.
    means = np.mean(results, axis=0) / size
    assert means.mean() == pytest.approx(0.5, abs=1e-4)
    assert means.std() == pytest.approx((1 / 12 / 50) ** 0.5, rel=0.05)
    assert abs(np.corrcoef(results[0][:-1], results[0][1:])[0, 1]) < 0.03


def test_the_order_never_changes():
    """A checkpoint of last year must meet the same batches."""
    assert permute(np.arange(8), 1000, "key").tolist() == PERMUTED
    assert loader(100_000, 4).row_numbers(12_345).tolist() == ROW_NUMBERS


PERMUTED = [319, 80, 561, 753, 679, 893, 292, 730]
ROW_NUMBERS = [54320, 86795, 933, 46358]


@pytest.mark.parametrize(
    "num_rows",
    [1, 5, 255, 256, 257, 1000, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 300],
)
def test_each_epoch_has_every_row_once(num_rows):
    batch_size = 100
    seen = numbers(loader(num_rows, batch_size), range(-(-3 * num_rows // batch_size)))
    epochs = [seen[i * num_rows : (i + 1) * num_rows] for i in range(3)]
    for epoch in epochs:
        assert np.array_equal(np.sort(epoch), np.arange(num_rows))
    if num_rows > 5:
        assert not np.array_equal(epochs[0], epochs[1])
        assert not np.array_equal(epochs[1], epochs[2])


def test_a_batch_mixes_many_blocks_and_a_window_reads_each_block_once():
    of = loader(10 * WINDOW, 256)
    blocks = of.row_numbers(3) // ROWS_PER_BLOCK
    assert len(np.unique(blocks)) > 90
    window = numbers(of, range(WINDOW // 256)) // ROWS_PER_BLOCK
    assert len(np.unique(window)) == WINDOW_BLOCKS


def test_the_order_depends_on_the_seed():
    assert not np.array_equal(
        loader(1000, 100, seed=1).row_numbers(0), loader(1000, 100, seed=2).row_numbers(0)
    )


@pytest.mark.parametrize("hosts", [1, 2, 4, 8])
def test_the_parts_of_all_hosts_are_the_global_batch(hosts):
    of, size = loader(1000, 48), 48 // hosts
    for index in (0, 20, 21, 500):
        parts = [of.batch(index, i * size, (i + 1) * size)["row"] for i in range(hosts)]
        assert np.array_equal(np.concatenate(parts), of.batch(index)["row"])


def test_threads_do_not_matter():
    of = loader(3 * WINDOW, 64)
    expected = [of.row_numbers(index).tolist() for index in range(200)]
    other = loader(3 * WINDOW, 64)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda i: other.row_numbers(i).tolist(), range(200)))
    assert found == expected


def test_a_batch_may_be_larger_than_an_epoch():
    assert sorted(loader(10, 25).row_numbers(0)[:20].tolist()) == sorted([*range(10)] * 2)


def test_impossible_batches_are_refused():
    with pytest.raises(ValueError, match="no rows"):
        loader(0, 4)
    with pytest.raises(ValueError, match="batch_size=0 must be at least 1"):
        loader(4, 0)
    with pytest.raises(ValueError, match="Rows 3 to 5 are not part of a batch of 4"):
        loader(4, 4).batch(0, 3, 5)
