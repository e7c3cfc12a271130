"""A keyed permutation of 0 .. size - 1 in constant memory: the order of every shuffle."""

import hashlib

import numpy as np

_ROUNDS = 6
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def permute(numbers: np.ndarray, size: int, key: str) -> np.ndarray:
    """Returns int64[n], the images of int[n] under the permutation of 0 .. size - 1 for `key`.

    A Feistel network permutes the numbers below the next power of four; an image that is not below
    `size` is permuted again until it is. Memory does not depend on `size`.
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    low_half = (np.uint64(1) << half) - np.uint64(1)
    digest = hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest()
    round_keys = np.frombuffer(digest, "<u8")
    result = np.array(numbers, np.uint64)
    todo = np.arange(result.size)
    while todo.size:
        left, right = result[todo] >> half, result[todo] & low_half
        for round_key in round_keys:
            mixed = (right + round_key) * _MULTIPLIER
            mixed = (mixed ^ (mixed >> np.uint64(29))) * _MULTIPLIER
            left, right = right, left ^ (mixed >> (np.uint64(64) - half))
        result[todo] = (left << half) | right
        todo = todo[result[todo] >= size]
    return result.astype(np.int64)
