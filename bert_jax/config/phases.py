"""The phases of a run, and its durations in updates, as the configuration writes them.

Nothing here imports jax.
"""

import dataclasses
import math
import re
from typing import Any

from ml_collections import ConfigDict

_DURATION = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e\d\d?)?)\s*(steps?|epochs?|examples?|tokens?|%)?")


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training at one sequence length: steps first_step to last_step - 1."""

    sequence_length: int
    batch_size: int
    max_predictions_per_seq: int
    share: float
    first_step: int
    last_step: int


def make_phases(config: ConfigDict, steps: int) -> tuple[Phase, ...]:
    """The phases of a run of `steps` updates, in order and without a gap.

    Raises:
      ValueError: for a phase of another form, or shares that do not add up to 1.
    """
    entries = config.phases
    if not entries or not all(map(_is_phase, entries)):
        raise ValueError(
            f"config.phases={entries!r} is not a tuple of (sequence length, share of the steps"
            "[, batch size[, predictions]]), for example ((128, 0.9), (512, 0.1))."
        )
    if not math.isclose(total := sum(e[1] for e in entries), 1.0) or min(e[1] for e in entries) < 0:
        raise ValueError(f"The shares of the steps in config.phases add up to {total}, not to 1.")
    phases, done = [], 0.0
    for length, share, *rest in entries:
        batch_size, predictions = (*rest, *(0, 0)[len(rest) :])
        if config.task == "pretraining":
            predictions = predictions or _most_predictions(config, length)
        first, done = round(done * steps), done + share
        phases.append(
            Phase(
                sequence_length=length,
                batch_size=batch_size or config.global_batch_size,
                max_predictions_per_seq=predictions,
                share=share,
                first_step=first,
                last_step=round(done * steps),
            )
        )
    return tuple(phases)


def most_masks(length: int, prob: float, rounding: str) -> int:
    """The most tokens of a sequence that are masked, by config.data.mask_rounding.

    With `bernoulli` any number is possible. Six standard deviations above the mean are allowed,
    which fewer than one row in ten million exceeds.
    """
    mean = length * prob
    if rounding == "bernoulli":
        return min(length, math.ceil(mean + 6 * math.sqrt(mean * (1 - prob))))
    return max(1, math.ceil(mean) if rounding == "stochastic" else round(mean))


def _most_predictions(config: ConfigDict, sequence_length: int) -> int:
    data = config.data
    return data.max_predictions_per_seq or most_masks(
        sequence_length, data.masked_lm_prob, data.mask_rounding
    )


def _is_phase(entry: Any) -> bool:
    if not (isinstance(entry, tuple | list) and 2 <= len(entry) <= 4):
        return False
    length, share, *rest = entry
    counts = all(type(number) is int and number >= 0 for number in (length, *rest))
    return counts and isinstance(share, int | float)


def parse_duration(text: str, name: str) -> tuple[float, str]:
    """Splits a duration into its number and unit: "2 epochs" -> (2.0, "epoch").

    Raises:
      ValueError: if the text is no duration.
    """
    match = _DURATION.fullmatch(str(text).strip().replace("_", ""))
    if match is None:
        raise ValueError(
            f"config.{name}={text!r} is no duration: give steps (100), 2 epochs, 1e6 examples,"
            " 3e9 tokens or 1% (of the run)."
        )
    return float(match[1]), (match[2] or "step").rstrip("s")


def total_steps(config: ConfigDict, rows: tuple[int, ...]) -> int:
    """Updates of the whole run. `rows`: the training examples of each phase's sequence length."""
    phases = make_phases(config, steps=0)
    if config.epochs:
        done_by_a_step = sum(p.share * p.batch_size / n for p, n in zip(phases, rows, strict=True))
        return _whole_steps(config.epochs / done_by_a_step)
    if config.examples:
        return _whole_steps(config.examples / sum(p.share * p.batch_size for p in phases))
    if config.tokens:
        tokens = sum(p.share * p.batch_size * p.sequence_length for p in phases)
        return _whole_steps(config.tokens / tokens)
    return config.steps


def _whole_steps(steps: float) -> int:
    """Rounded up, but an error of rounding, as in 2 / (1 / 49) = 98.00000000000001, is no step."""
    return max(1, math.ceil(steps * (1 - 1e-12)))


def duration_steps(text: str, name: str, phase: Phase, rows: int, steps: int) -> int:
    """The field `name` in updates, as `phase` (with `rows` examples) counts them; at least 1.

    "0" is 0: never (for what happens every so often), or none (for the warm-up).
    """
    number, unit = parse_duration(text, name)
    one = {
        "step": 1.0,
        "example": 1 / phase.batch_size,
        "token": 1 / (phase.batch_size * phase.sequence_length),
        "epoch": rows / phase.batch_size,
        "%": steps / 100,
    }[unit]
    return max(1, round(number * one)) if number else 0
