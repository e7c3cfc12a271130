"""The phases of a run, and durations of the configuration converted to steps.

A step is an update of the parameters. Nothing here imports jax.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bert_jax.files.errors import UserError

# Fields that give the length of training; `steps` where the others are 0.
LENGTHS = ("steps", "epochs", "examples", "tokens")
# Tokens of the shortest rows.
MIN_LENGTH = 8
_DURATION = re.compile(
    r"((?:\d+\.?\d*|\.\d+)(?:e\d\d?)?)\s*(steps?|epochs?|examples?|tokens?|words?|%)?"
)


def without_given(chosen: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Returns the chosen fields that the user did not set; a length replaces any other.

    Args:
      chosen: values, or values with reasons, by dotted name.
      given: names of the fields that the user set.
    """
    replaced = {*given, *(LENGTHS if {*LENGTHS} & {*given} else ())}
    return {name: value for name, value in chosen.items() if name not in replaced}


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of the training with one sequence length: steps first_step to last_step - 1.

    Attributes:
      sequence_length: tokens of a sequence.
      batch_size: sequences of a step, over all devices.
      max_predictions_per_seq: masked positions of a sequence; 0 without masked-LM training.
      share: fraction of all steps.
      data_step: step that trains on the first batch of the rows; it precedes first_step in all but
        the first of several stages of masks.
      task: name of the task that is trained; "": that of the run, which is always evaluated.
    """

    sequence_length: int
    batch_size: int
    max_predictions_per_seq: int
    share: float
    first_step: int
    last_step: int
    data_step: int = 0
    task: str = ""


def check_phases(name: str, entries: tuple[Any, ...]) -> None:
    """Raises UserError for malformed phases, or fractions that do not add up to 1."""
    if not entries or not all(map(_is_phase, entries)):
        raise UserError(
            f"{name}={entries!r} is not a tuple of (sequence length, fraction of the steps[, batch"
            " size[, predictions]][, task]), for example ((128, 0.9), (512, 0.1))."
        )
    if min(entry[0] for entry in entries) < MIN_LENGTH:
        raise UserError(
            f"{name}={entries!r} has a sequence length below {MIN_LENGTH} ([CLS], two [SEP] and"
            " some words)."
        )
    total = sum(entry[1] for entry in entries)
    if not math.isclose(total, 1.0) or min(entry[1] for entry in entries) < 0:
        raise UserError(
            f"{name}={entries!r} has fractions of the steps that add up to {total}, or one is"
            " negative: they must be at least 0 and add up to 1."
        )


def split_entry(entry: Sequence[Any]) -> tuple[tuple[Any, ...], str]:
    """Returns the numbers of a phase and the name of its task, which comes last; "": none."""
    *numbers, last = entry
    return (tuple(numbers), last) if isinstance(last, str) else (tuple(entry), "")


def phase_bounds(shares: Iterable[float], steps: int) -> list[tuple[int, int]]:
    """Returns the first step of each phase and the one after its last, for shares of the steps."""
    ends = [round(done * steps) for done in itertools.accumulate(shares, initial=0.0)]
    return list(itertools.pairwise(ends))


def split_into_stages(
    phases: Iterable[Phase], rates: Sequence[float], rounding: str, steps: int
) -> tuple[Phase, ...]:
    """Returns the phases, split where a stage of the masking rate ends, with its masks.

    Args:
      phases: phases of the run.
      rates: masking rate of each stage; stages are equal parts of the run.
      rounding: config.data.mask_rounding.
      steps: training steps in total.
    """
    borders = [number / len(rates) for number in range(len(rates) + 1)]
    parts, start = [], 0.0
    for phase in phases:
        stop = start + phase.share
        for rate, (begin, end) in zip(rates, itertools.pairwise(borders), strict=True):
            first, last = max(start, begin), min(stop, end)
            if last - first < 1e-9:  # they do not overlap, but for errors of rounding
                continue
            part = dataclasses.replace(
                phase,
                max_predictions_per_seq=max_masks(phase.sequence_length, rate, rounding),
                share=last - first,
                first_step=phase.first_step if first == start else round(first * steps),
                last_step=phase.last_step if last == stop else round(last * steps),
            )
            parts.append(part)
        start = stop
    return tuple(parts)


def max_masks(length: int, prob: float, rounding: str, examples: int = 1) -> int:
    """Returns the largest number of masked tokens in a sequence, by config.data.mask_rounding.

    With `bernoulli` any number is possible; six standard deviations above the mean are allowed,
    which fewer than one row in ten million exceeds. `row` has exactly as many. The others round
    the number of each example: up by at most a half (`half_even`; an example has 3 tokens or more)
    or by less than 1.

    Args:
      length: tokens of the sequence.
      prob: config.data.masked_lm_prob.
      rounding: config.data.mask_rounding.
      examples: maximum examples in the sequence.
    """
    mean = length * prob
    if rounding == "row":
        return max(1, min(round(mean), length // 2))
    if examples > 1 and rounding != "bernoulli":
        more = examples / 2 if rounding == "half_even" else examples
        return min(length, math.ceil(mean + max(more, examples * (1 - 3 * prob))))
    if rounding == "bernoulli":
        return min(length, math.ceil(mean + 6 * math.sqrt(mean * (1 - prob))))
    return max(1, math.ceil(mean) if rounding == "stochastic" else round(mean))


def _is_phase(entry: Any) -> bool:
    if not (isinstance(entry, tuple | list) and entry):
        return False
    numbers, _ = split_entry(entry)
    if not 2 <= len(numbers) <= 4:
        return False
    length, share, *rest = numbers
    counts = all(type(number) is int and number >= 0 for number in (length, *rest))
    return counts and isinstance(share, int | float)


def parse_duration(name: str, text: str) -> tuple[float, str]:
    """Splits a duration into its number and its unit: "2 epochs" -> (2.0, "epoch").

    Raises:
      UserError: `text`, the value of the field `name`, is not a duration.
    """
    match = _DURATION.fullmatch(str(text).strip().replace("_", ""))
    if match is None:
        raise UserError(
            f"{name}={text!r} is not a duration: use for example 100 (steps), 2 epochs,"
            " 1e6 examples, 3e9 tokens, 1e6 words or 1% (of the run)."
        )
    return float(match[1]), (match[2] or "step").rstrip("s")


def parse_steps(name: str, text: str) -> tuple[int, int] | None:
    """Returns the first and the last step of "10:15", counted from 1; None for "".

    Raises:
      UserError: `text`, the value of the field `name`, has another form.
    """
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if text and not (match and 1 <= int(match[1]) <= int(match[2])):
        raise UserError(
            f"{name}={text!r} is not the first and the last of some steps, counted from 1: use for"
            ' example "10:15", or "" for none.'
        )
    return (int(match[1]), int(match[2])) if match else None


def round_up(steps: float) -> int:
    """Rounds up, except for errors of rounding such as 2 / (1 / 49) = 98.00000000000001."""
    return max(1, math.ceil(steps * (1 - 1e-12)))


def check_durations(name: str, texts: tuple[Any, ...]) -> None:
    """Raises UserError, for the field `name`, if one of `texts` is no duration above 0."""
    for text in texts:
        number, _ = parse_duration(name, text)
        if not number:
            raise UserError(f"{name}: {text!r} is not a point in a run: leave it out.")


@dataclasses.dataclass(frozen=True)
class Pace:
    """What converts durations within a phase to steps.

    Attributes:
      phase: has the batch size and the sequence length that examples and tokens are counted with.
      rows: training rows of an epoch.
      words: words of an epoch's text; 0: they are not counted.
    """

    phase: Phase
    rows: int
    words: int = 0

    def steps_per_unit(self, unit: str, steps: int) -> float:
        """Returns the steps of one unit of `parse_duration`.

        The words of a step are a mean: the rows of a batch times the words per row of an epoch.

        Args:
          unit: the unit.
          steps: steps of the whole run.

        Raises:
          UserError: words are not counted.
        """
        phase, rows = self.phase, self.rows
        if unit == "word" and not self.words:
            raise UserError(
                "A duration in words needs a count of the words of the text, which labelled"
                " examples, batches of a function and data prepared by an earlier version do not"
                " have: use another unit, or prepare the text again in another config.data.dir."
            )
        return {
            "step": 1.0,
            "example": 1 / phase.batch_size,
            "token": 1 / (phase.batch_size * phase.sequence_length),
            "word": rows / (phase.batch_size * self.words) if self.words else 0.0,
            "epoch": rows / phase.batch_size,
            "%": steps / 100,
        }[unit]


def duration_steps(text: str, pace: Pace, steps: int) -> int:
    """Returns a duration in steps, at least 1; 0 for "0", which means never, or no warm-up.

    Args:
      text: the duration.
      pace: the phase that it is in.
      steps: steps of the whole run.

    Raises:
      UserError: it is in words, which are not counted.
    """
    number, unit = parse_duration("duration", text)
    return max(1, round(number * pace.steps_per_unit(unit, steps))) if number else 0


def points(texts: Iterable[str], paces: Sequence[Pace], steps: int) -> dict[int, tuple[str, ...]]:
    """Returns when a run has lasted for each of these durations: number of steps -> durations.

    Steps of different phases may have different numbers of examples, tokens and words. A duration
    that is longer than the run is left out.

    Args:
      texts: durations above 0.
      paces: all phases of the run, in order.
      steps: steps of the whole run.

    Raises:
      UserError: a duration is in words, which are not counted.
    """
    found: dict[int, tuple[str, ...]] = {}
    for text in texts:
        left, unit = parse_duration("duration", text)
        for pace in paces:
            rate, first = pace.steps_per_unit(unit, steps), pace.phase.first_step
            length = pace.phase.last_step - first
            if left * rate <= length + 1e-6:  # but for errors of rounding
                step = max(1, first + round(left * rate))
                found[step] = (*found.get(step, ()), text)
                break
            left -= length / rate
    return found
