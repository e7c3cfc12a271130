"""The score of the race: bits per character of masked tokens in held-out text. Nobody edits this.

    score(predict, "tune", 128)["bits_per_character"]

`race.check` compares the SHA-256 of this file with that in the logs of the records.
"""

import json
import math
import os
import pathlib
from collections.abc import Callable

import numpy as np

DATA = pathlib.Path(__file__).parent / "data"
# Halves of the held-out text: choose settings on the first, report scores on the second.
PARTS = ("tune", "report")
# Tokens of a row. The masked tokens are the same ones, whatever the length.
LENGTHS = (64, 128, 256, 512)
BATCH_ROWS = 16
# Variable with the file to which `score` writes its result, once: the score of a run of race.run.
RESULT = "RACE_RESULT"

# (int32[rows, length] ids, int32[rows, P] positions) -> float[rows, P, words] logits
Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]


def score(predict: Predict, part: str, length: int) -> dict[str, float | int | str]:
    """Returns `bits_per_character`, `accuracy`, and what they were computed on.

    Bits per character are the sum of -log2 p(true token) over all masked tokens, divided by the
    number of their characters ("##ing" has three). Accuracy is the fraction of masked tokens whose
    logit is the largest of all.

    Args:
      predict: returns finite logits for the tokens at some positions of rows: ids with 15 % of the
        tokens masked (80 % [MASK], 10 % a random token, 10 % the true one), 0 (padding) after the
        last; positions of the masked tokens, in slots that are not needed 0. There are always 16
        rows. The softmax is taken here, so that logits need not be normalized.
      part: "tune" or "report".
      length: tokens of a row, one of LENGTHS.

    Raises:
      ValueError: another part or length; logits of another shape, or not finite.
      FileExistsError: race.run runs this, and there is a score already.
    """
    if part not in PARTS or length not in LENGTHS:
        raise ValueError(
            f"part={part!r} must be one of {', '.join(PARTS)}, and length={length} one of"
            f" {', '.join(map(str, LENGTHS))}."
        )
    with np.load(DATA / "held_out.npz") as file:
        inputs, answers = file[f"{part}_{length}_inputs"], file[f"{part}_{length}_answers"]
        lengths_of_words = file["characters"]  # uint8[words]
    is_masked = answers >= 0  # bool[rows, length]; -1 elsewhere
    slots = int(is_masked.sum(axis=1).max())
    bits = characters = hits = 0.0
    for start in range(0, len(inputs), BATCH_ROWS):
        # The last batch is filled up with the first rows, which do not count again.
        rows = np.arange(start, start + BATCH_ROWS) % len(inputs)
        # Stable: masked positions in their order, then others.
        positions = np.argsort(~is_masked[rows], axis=1, kind="stable")[:, :slots]
        is_used = np.take_along_axis(is_masked[rows], positions, axis=1)
        is_used &= (start + np.arange(BATCH_ROWS) < len(inputs))[:, None]
        positions = np.where(is_used, positions, 0).astype(np.int32)
        logits = np.asarray(predict(inputs[rows].astype(np.int32), positions), np.float32)
        if logits.shape != (expected := (*positions.shape, len(lengths_of_words))):
            raise ValueError(f"predict returned logits{[*logits.shape]}, not {[*expected]}.")
        if not np.isfinite(logits).all():
            raise ValueError("predict returned logits that are not finite.")
        true = np.take_along_axis(answers[rows], positions, axis=1)[is_used]
        logits = logits[is_used]  # [masked tokens, words]
        of_true = logits[np.arange(len(true)), true]
        largest = logits.max(axis=1)
        log_sum = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
        bits += float((log_sum - of_true).sum(dtype=np.float64)) / math.log(2)
        characters += float(lengths_of_words[true].sum())
        hits += float((of_true == largest).sum())
    count = int(is_masked.sum())
    result = {
        "part": part,
        "length": length,
        "masked_tokens": count,
        "bits_per_character": bits / characters,
        "accuracy": hits / count,
    }
    if path := os.environ.get(RESULT):
        with open(path, "x", encoding="utf-8") as file:  # "x": a second score is an error
            json.dump(result, file)
    return result
