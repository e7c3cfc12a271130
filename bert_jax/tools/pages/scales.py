"""From values to places in a picture: ranges that end at round numbers, their ticks and labels."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_TICKS = 5  # approximately
_TIMES = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


@dataclass(frozen=True)
class Scale:
    """A range of values on a range of places.

    Attributes:
      low, high: values at its two ends.
      start, stop: places there, in units of the picture.
      ticks: values with a mark.
      is_log: whether equal distances are equal ratios.
    """

    low: float
    high: float
    start: float
    stop: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Returns the place of a value; values outside the range are at its nearer end."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.stop - self.start)


def linear(values: Iterable[float], start: float, stop: float, *, tight: bool = False) -> Scale:
    """Returns the scale of values.

    Args:
      values: finite; at least one.
      start, stop: places of its ends.
      tight: whether it ends at the values instead of at ticks.
    """
    low, high = min(values := list(values)), max(values)
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-3):  # one value only
        pad = abs(low) * 0.1 or 1.0
        low, high = (low - pad if low else 0.0), high + pad
    step = _round_step((high - low) / _TICKS)
    first = math.ceil(low / step - 1e-9) if tight else math.floor(low / step + 1e-9)
    last = math.floor(high / step + 1e-9) if tight else math.ceil(high / step - 1e-9)
    found = tuple(round(i * step, 12) for i in range(first, last + 1))
    return Scale(*((low, high) if tight else (found[0], found[-1])), start, stop, found)


def logarithmic(values: Iterable[float], start: float, stop: float) -> Scale:
    """Returns the scale of positive values whose ticks are powers of 10."""
    low, high = min(values := list(values)), max(values)
    first = math.floor(math.log10(low) + 1e-9)
    last = max(math.ceil(math.log10(high) - 1e-9), first + 1)
    every = -(-(last - first) // 6)
    found = tuple(10.0**i for i in range(first, last + 1, every))
    return Scale(10.0**first, 10.0**last, start, stop, found, is_log=True)


def at_values(values: Iterable[float], start: float, stop: float) -> Scale:
    """Returns the scale of a few chosen values, which are its ticks.

    It is logarithmic if the largest is at least four times the smallest, as such values are chosen.
    """
    ticks = tuple(sorted(set(values)))
    low, high = ticks[0], ticks[-1]
    if low == high:
        return dataclasses.replace(linear(ticks, start, stop), ticks=ticks)
    return Scale(low, high, start, stop, ticks, is_log=0 < 4 * low <= high)


def _round_step(minimum: float) -> float:
    """Returns the smallest of 1, 2, 2.5 and 5 times a power of 10 that is not less."""
    power = 10.0 ** math.floor(math.log10(minimum))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= minimum * (1 - 1e-9))


def time_unit(seconds: float) -> tuple[float, str]:
    """Returns the unit of a duration, in seconds and by name."""
    return next(((size, name) for size, name in _TIMES if seconds >= 2 * size), _TIMES[-1])


def labels(scale: Scale, percent: bool = False) -> list[tuple[float, str]]:
    """Returns each tick with its label, all in one form: 0.0002, 0.001 or 8e-5, 1e-4."""
    are_small = not percent and not scale.is_log and max(map(abs, scale.ticks)) < 1e-3
    return [
        (tick, _with_power(tick) if are_small and tick else short(tick, percent))
        for tick in scale.ticks
    ]


def _with_power(value: float) -> str:
    digits, power = f"{value:.5e}".split("e")
    return f"{float(digits):g}e{int(power)}"


def short(value: float, percent: bool = False) -> str:
    """Returns a label: 0.5, 25, 10k, 1.5M, 2e-5, or 40%."""
    if percent:
        return f"{100 * value:.6g}%"
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.4g}{prefix}"
    return f"{value:.6g}".replace("e-0", "e-")


def duration(seconds: float) -> str:
    """Returns 3725 seconds as "1:02:05", 125 as "2:05"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
