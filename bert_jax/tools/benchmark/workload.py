"""The work of the step benchmark: sizes of models, and a batch."""

import dataclasses
import time
from collections.abc import Callable

import numpy as np

from bert_jax.data.batch import token_fields

VOCAB_SIZE = 30_522
SEQUENCE_LENGTH = 128
PREDICTIONS = 20
# What a step does beside the passes through the model.
DROPOUT, MASKING, UPDATE = PARTS = ("dropout", "masking", "optimizer and metrics")


@dataclasses.dataclass(frozen=True)
class Size:
    """A model of google-research/bert's README, and sequences in its batch."""

    num_layers: int
    hidden_size: int
    num_heads: int
    batch_size: int

    @property
    def tokens(self) -> int:
        """Of one step."""
        return self.batch_size * SEQUENCE_LENGTH


SIZES = {
    "tiny": Size(2, 128, 2, batch_size=32),
    "mini": Size(4, 256, 4, batch_size=16),
    "small": Size(4, 512, 8, batch_size=16),
    "base": Size(12, 768, 12, batch_size=8),
    "large": Size(24, 1024, 16, batch_size=4),
}


def make_batch(batch_size: int) -> dict[str, np.ndarray]:
    """Full rows of random words in the program's form, with 20 masked positions each."""
    rng = np.random.default_rng(0)
    shape, slots = (batch_size, SEQUENCE_LENGTH), (batch_size, PREDICTIONS)
    places = [rng.permutation(np.arange(1, SEQUENCE_LENGTH - 1)) for _ in range(batch_size)]
    ids = rng.integers(1000, VOCAB_SIZE, shape, np.int32)
    starts = SEQUENCE_LENGTH * np.arange(batch_size)[:, None]
    lengths = np.full((batch_size, 1), SEQUENCE_LENGTH)
    return token_fields(ids.ravel(), starts, lengths, lengths, SEQUENCE_LENGTH, pad_id=0) | {
        "next_sentence_labels": rng.integers(0, 2, (batch_size, 1), np.int32),
        "next_sentence_weights": np.ones((batch_size, 1), np.float32),
        "masked_lm_positions": np.sort(np.stack(places)[:, :PREDICTIONS]).astype(np.int32),
        "masked_lm_ids": rng.integers(1000, VOCAB_SIZE, slots, np.int32),
        "masked_lm_weights": np.ones(slots, np.float32),
    }


def time_steps(step: Callable[[], None], least_seconds: float = 0.5) -> list[float]:
    """Returns the seconds of each of some steps, after a warm-up step; at least one."""
    step()
    seconds: list[float] = []
    while sum(seconds) < least_seconds:
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds
