"""The phases of a run, and durations of the configuration converted to steps.

A step is an update of the parameters. Nothing here imports jax.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable
from typing import Any

from ml_collections import ConfigDict

from bert_jax.files.errors import UserError

_DURATION = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e\d\d?)?)\s*(steps?|epochs?|examples?|tokens?|%)?")


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of the training with one sequence length: steps first_step to last_step - 1.

    Attributes:
      sequence_length: in tokens.
      batch_size: sequences of a step, over all devices.
      max_predictions_per_seq: masked positions of a sequence; 0 without masked-LM training.
      share: fraction of all steps.
    """

    sequence_length: int
    batch_size: int
    max_predictions_per_seq: int
    share: float
    first_step: int
    last_step: int


def phase_entries(config: ConfigDict) -> tuple[Any, ...]:
    """Returns `config.phases`; for fine-tuning its only phase, of rows of `config.max_length`."""
    return ((config.max_length, 1.0),) if "max_length" in config else config.phases


def make_phases(config: ConfigDict, steps: int) -> tuple[Phase, ...]:
    """Returns the phases of a run of `steps` steps, in order and without gaps.

    Raises:
      UserError: for a malformed phase, or fractions that do not add up to 1.
    """
    entries = phase_entries(config)
    if not entries or not all(map(_is_phase, entries)):
        raise UserError(
            f"config.phases={entries!r} is not a tuple of (sequence length, fraction of the steps"
            "[, batch size[, predictions]]), for example ((128, 0.9), (512, 0.1))."
        )
    if not math.isclose(total := sum(e[1] for e in entries), 1.0) or min(e[1] for e in entries) < 0:
        raise UserError(
            f"The fractions of the steps in config.phases add up to {total}, or one is negative:"
            " they must be at least 0 and add up to 1."
        )
    phases = []
    bounds = phase_bounds([entry[1] for entry in entries], steps)
    for (length, share, *rest), (first, last) in zip(entries, bounds, strict=True):
        batch_size, predictions = (*rest, *(0, 0)[len(rest) :])
        if "masked_lm_prob" in config.data:
            predictions = predictions or _default_predictions(config.data, length)
        phases.append(
            Phase(
                sequence_length=length,
                batch_size=batch_size or config.global_batch_size,
                max_predictions_per_seq=predictions,
                share=share,
                first_step=first,
                last_step=last,
            )
        )
    return tuple(phases)


def phase_bounds(shares: Iterable[float], steps: int) -> list[tuple[int, int]]:
    """Returns the first step of each phase and the one after its last, for shares of the steps."""
    ends = [round(done * steps) for done in itertools.accumulate(shares, initial=0.0)]
    return list(itertools.pairwise(ends))


def most_masks(length: int, prob: float, rounding: str, examples: int = 1) -> int:
    """Returns the largest number of masked tokens in a sequence, by config.data.mask_rounding.

    With `bernoulli` any number is possible; six standard deviations above the mean are allowed,
    which fewer than one row in ten million exceeds. The others round the number of each example: up
    by at most a half (`half_even`; an example has 3 tokens or more) or by less than 1.

    Args:
      length: tokens of the sequence.
      prob: config.data.masked_lm_prob.
      rounding: config.data.mask_rounding.
      examples: in the sequence, at most.
    """
    mean = length * prob
    if examples > 1 and rounding != "bernoulli":
        more = examples / 2 if rounding == "half_even" else examples
        return min(length, math.ceil(mean + max(more, examples * (1 - 3 * prob))))
    if rounding == "bernoulli":
        return min(length, math.ceil(mean + 6 * math.sqrt(mean * (1 - prob))))
    return max(1, math.ceil(mean) if rounding == "stochastic" else round(mean))


def _default_predictions(data: ConfigDict, sequence_length: int) -> int:
    return data.max_predictions_per_seq or most_masks(
        sequence_length,
        data.masked_lm_prob,
        data.mask_rounding,
        data.get("max_examples_per_row", 1),
    )


def _is_phase(entry: Any) -> bool:
    if not (isinstance(entry, tuple | list) and 2 <= len(entry) <= 4):
        return False
    length, share, *rest = entry
    counts = all(type(number) is int and number >= 0 for number in (length, *rest))
    return counts and isinstance(share, int | float)


def parse_duration(text: str, name: str) -> tuple[float, str]:
    """Splits a duration into its number and its unit: "2 epochs" -> (2.0, "epoch").

    Raises:
      UserError: `text`, the value of the field `name`, is not a duration.
    """
    match = _DURATION.fullmatch(str(text).strip().replace("_", ""))
    if match is None:
        raise UserError(
            f"config.{name}={text!r} is not a duration: use for example 100 (steps), 2 epochs,"
            " 1e6 examples, 3e9 tokens or 1% (of the run)."
        )
    return float(match[1]), (match[2] or "step").rstrip("s")


def total_steps(config: ConfigDict, rows: tuple[int, ...]) -> int:
    """Returns the steps of the whole run.

    Args:
      config: of the run.
      rows: number of training rows of an epoch, for each phase.
    """
    phases = make_phases(config, steps=0)
    if config.epochs:
        epochs_per_step = sum(p.share * p.batch_size / n for p, n in zip(phases, rows, strict=True))
        return _round_up(config.epochs / epochs_per_step)
    if config.examples:
        return _round_up(config.examples / sum(p.share * p.batch_size for p in phases))
    if config.tokens:
        tokens = sum(p.share * p.batch_size * p.sequence_length for p in phases)
        return _round_up(config.tokens / tokens)
    return config.steps


def _round_up(steps: float) -> int:
    """Rounds up, except for errors of rounding such as 2 / (1 / 49) = 98.00000000000001."""
    return max(1, math.ceil(steps * (1 - 1e-12)))


def duration_steps(text: str, name: str, phase: Phase, rows: int, steps: int) -> int:
    """Returns a duration in steps, at least 1; 0 for "0", which means never, or no warm-up.

    Args:
      text: the duration.
      name: its field, for the error message.
      phase: has the batch size and the sequence length that examples and tokens are counted with.
      rows: training rows of an epoch.
      steps: of the whole run.
    """
    number, unit = parse_duration(text, name)
    steps_per_unit = {
        "step": 1.0,
        "example": 1 / phase.batch_size,
        "token": 1 / (phase.batch_size * phase.sequence_length),
        "epoch": rows / phase.batch_size,
        "%": steps / 100,
    }[unit]
    return max(1, round(number * steps_per_unit)) if number else 0
