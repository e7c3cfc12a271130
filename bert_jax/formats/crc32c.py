"""CRC-32C (Castagnoli, RFC 3720 appendix B.4) of large arrays, in numpy.

The checksum is linear over GF(2), and leading zero bytes do not change it. The bytes are therefore
split into lanes that are processed in parallel. The results of neighbouring lanes are combined:
appending the bytes of the right lane multiplies the left result by a 32 x 32 matrix of bits, to
which the right result is added.
"""

import functools

import numpy as np

# Reversed polynomial.
_POLYNOMIAL = 0x82F63B78
# The matrix of appending one zero bit, as the images of the unit vectors.
_ONE_BIT = np.array([_POLYNOMIAL, *(1 << k for k in range(31))], np.uint32)
_MAX_LANES = 1 << 12


def crc32c(data: np.ndarray) -> int:
    """Returns the checksum of uint8[n]; that of b"123456789" is 0xE3069283."""
    lanes = min(_MAX_LANES, 1 << (data.size >> 6).bit_length())
    words_a_lane = -(-data.size // (4 * lanes))
    padded = np.zeros(4 * lanes * words_a_lane, np.uint8)
    padded[padded.size - data.size :] = data
    low, high = _tables()
    state = np.zeros(lanes, "<u4")
    for words in padded.view("<u4").reshape(lanes, words_a_lane).T:
        state ^= words
        halves = state.view("<u2")
        state = low[halves[::2]] ^ high[halves[1::2]]
    move = _power(_ONE_BIT, 32 * words_a_lane)
    while state.size > 1:
        state = _apply(move, state[::2]) ^ state[1::2]
        move = _apply(move, move)
    # The standard starts with all bits set and flips all bits at the end.
    ones = np.array([0xFFFFFFFF], np.uint32)
    return int((state ^ _apply(_power(_ONE_BIT, 8 * data.size), ones) ^ ones)[0])


def masked(checksum: int) -> int:
    """Returns the form in which LevelDB and TensorFlow store a checksum: rotated, plus a number."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Returns the images of the lower and the upper half of the state under appending 32 bits."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    move = _power(_ONE_BIT, 32)
    return _apply(move, halves), _apply(move, halves << 16)


def _apply(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Returns the products of a matrix, uint32[32], and n vectors, uint32[n]."""
    image = np.zeros_like(vectors)
    for bit in range(32):
        image ^= np.where(vectors >> bit & 1, matrix[bit], np.uint32(0))
    return image


def _power(matrix: np.ndarray, exponent: int) -> np.ndarray:
    result = np.uint32(1) << np.arange(32, dtype=np.uint32)  # the identity
    while exponent:
        if exponent & 1:
            result = _apply(matrix, result)
        matrix = _apply(matrix, matrix)
        exponent >>= 1
    return result
