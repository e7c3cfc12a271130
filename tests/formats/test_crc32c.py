"""The checksum against its published values and against another implementation."""

import numpy as np
import pytest
from tensorboardX.crc32c import _crc32c as other

from bert_jax.formats.crc32c import crc32c, masked


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"", 0),
    ],
)
def test_published_values(data, expected):
    assert crc32c(np.frombuffer(data, np.uint8)) == expected


@pytest.mark.parametrize("size", [*range(1, 70), 1000, 4099, 70_001])
def test_every_size_and_number_of_lanes(size):
    data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    assert crc32c(data) == other(data.tobytes())


def test_any_flipped_bit_changes_it():
    data = np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8)
    before = crc32c(data)
    for position in (0, 1, 2500, 4999):
        data[position] ^= 4
        assert crc32c(data) != before
        data[position] ^= 4


def test_the_mask_can_be_inverted():
    value = 0x12345678
    rotated = (masked(value) - 0xA282EAD8) & 0xFFFFFFFF
    assert (rotated >> 17 | rotated << 15) & 0xFFFFFFFF == value
