"""Losses against seconds, and their picture."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.tools.pages.plot import Line, standalone


@dataclasses.dataclass(frozen=True)
class Point:
    """An evaluation: updates, seconds and tokens of training before it, and its results."""

    step: int
    seconds: float
    tokens: int
    loss: float
    accuracy: float


@dataclasses.dataclass(frozen=True)
class Curve:
    """The evaluations of a run, in order."""

    points: tuple[Point, ...]

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]], loss: str, accuracy: str) -> "Curve":
        """Returns the curve of lines of metrics.jsonl."""
        return cls(
            tuple(
                Point(
                    row["step"],
                    row["speed"]["seconds"],
                    int(row["speed"]["tokens"]),
                    row[loss],
                    row[accuracy],
                )
                for row in rows
            )
        )

    def to_json(self) -> list[dict[str, Any]]:
        return [dataclasses.asdict(point) for point in self.points]


def seconds_to(curve: Curve, loss: float) -> float | None:
    """Returns the seconds after which the loss is first reached, on lines between evaluations.

    None if it never is; the seconds of the first evaluation if that has reached it.
    """
    before = None
    for point in curve.points:
        if point.loss <= loss:
            if before is None:
                return point.seconds
            share = (before.loss - loss) / (before.loss - point.loss)
            return before.seconds + share * (point.seconds - before.seconds)
        before = point
    return None


def plot(curves: Mapping[str, Sequence[Curve]]) -> str:
    """Returns an SVG of loss against seconds: a line for each run, a color for each name."""
    lines = [
        Line(
            name,
            {"seconds": [point.seconds for point in curve.points]},
            [point.loss for point in curve.points],
            color,
        )
        for color, (name, found) in enumerate(curves.items())
        for curve in found
    ]
    return standalone("Held-out loss (nats)", lines)
