"""Losses against seconds, and their picture."""

import dataclasses
import html
from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH, _HEIGHT, _MARGIN = 720, 420, 56
_COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")


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
    points = [p for found in curves.values() for curve in found for p in curve.points]
    right = max(p.seconds for p in points)
    bottom, top = min(p.loss for p in points), max(p.loss for p in points)
    height = max(top - bottom, 1e-9)

    def place(seconds: float, loss: float) -> tuple[float, float]:
        x = _MARGIN + seconds / max(right, 1e-9) * (_WIDTH - 2 * _MARGIN)
        y = _HEIGHT - _MARGIN - (loss - bottom) / height * (_HEIGHT - 2 * _MARGIN)
        return round(x, 1), round(y, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for i in range(6):
        seconds, loss = right * i / 5, bottom + height * i / 5
        x, y = place(seconds, loss)
        parts.append(f'<path d="M{_MARGIN} {y}H{_WIDTH - _MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{_MARGIN - 6}" y="{y + 4}" text-anchor="end">{loss:.2f}</text>')
        below = _HEIGHT - _MARGIN + 18
        parts.append(f'<text x="{x}" y="{below}" text-anchor="middle">{seconds:.0f}</text>')
    middle = _WIDTH / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">seconds</text>')
    parts.append(f'<text x="{_MARGIN}" y="{_MARGIN - 30}">held-out loss (nats)</text>')
    for number, (name, found) in enumerate(curves.items()):
        color = _COLORS[number % len(_COLORS)]
        for curve in found:
            line = " ".join(",".join(map(str, place(p.seconds, p.loss))) for p in curve.points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{color}"/>')
        y = _MARGIN + 16 * number
        parts.append(
            f'<text x="{_WIDTH - _MARGIN}" y="{y}" text-anchor="end" fill="{color}">'
            f"{html.escape(name)}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])
