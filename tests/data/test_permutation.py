"""The keyed permutation."""

import numpy as np
import pytest

from bert_jax.data.permutation import permute


@pytest.mark.parametrize("size", [*range(1, 40), 255, 256, 257, 4096, 4097, 65_537, 1_000_003])
def test_it_is_a_bijection(size):
    assert np.array_equal(np.sort(permute(np.arange(size), size, "key")), np.arange(size))


def test_it_depends_on_its_key_and_mixes_well():
    size = 10_000
    results = [permute(np.arange(size), size, f"key {i}") for i in range(50)]
    assert len({result.tobytes() for result in results}) == 50
    # The image of a number is uniform, and independent of that of its neighbour.
    means = np.mean(results, axis=0) / size
    assert means.mean() == pytest.approx(0.5, abs=1e-4)
    assert means.std() == pytest.approx((1 / 12 / 50) ** 0.5, rel=0.05)
    assert abs(np.corrcoef(results[0][:-1], results[0][1:])[0, 1]) < 0.03


def test_it_never_changes():
    """A run that resumes from an old checkpoint must read the same batches."""
    assert permute(np.arange(8), 1000, "key").tolist() == [319, 80, 561, 753, 679, 893, 292, 730]
