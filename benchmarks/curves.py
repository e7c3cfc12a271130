"""Reads, draws and tabulates the evaluations in a race."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.side_by_side import table
from bert_jax.files.errors import UserError
from bert_jax.tools.pages.plot import Line, standalone
from bert_jax.training.metrics import read_metrics

# Evaluations of a run, in order: the steps, seconds and tokens of training before each (`step`,
# `seconds`, `tokens`), and its `loss`, `accuracy` and `bits_per_character`.
Curve = Sequence[Mapping[str, float]]


def read_curve(workdir: str) -> Curve:
    """Returns the evaluations of a run.

    Raises:
      UserError: it has none of masked tokens.
    """
    rows = [row for row in read_metrics(workdir) if row["split"] == "validation"]
    if not rows or "masked_lm_loss" not in rows[-1]:
        raise UserError(
            f"{workdir} has no evaluation of masked tokens: a recipe trains on them, with held-out"
            " text (config.data.validation_share)."
        )
    return [
        {
            "step": row["step"],
            "seconds": row["speed"]["seconds"],
            "tokens": int(row["speed"]["tokens"]),
            "loss": row["masked_lm_loss"],
            "accuracy": row["masked_lm_accuracy"],
            "bits_per_character": row["masked_lm_bits_per_character"],
        }
        for row in rows
    ]


def seconds_to(curve: Curve, loss: float) -> float | None:
    """Returns the seconds after which the loss is first reached, interpolated linearly.

    None if it never is; the seconds of the first evaluation if that has reached it already.
    """
    before = None
    for point in curve:
        if point["loss"] <= loss:
            if before is None:
                return point["seconds"]
            share = (before["loss"] - loss) / (before["loss"] - point["loss"])
            return before["seconds"] + share * (point["seconds"] - before["seconds"])
        before = point
    return None


def plot(curves: Mapping[str, Sequence[Curve]]) -> str:
    """Returns an SVG of loss against seconds: a line for each run, a color for each name."""
    drawn = [
        Line(
            name,
            {"seconds": [point["seconds"] for point in curve]},
            [point["loss"] for point in curve],
            color,
        )
        for color, (name, found) in enumerate(curves.items())
        for curve in found
    ]
    return standalone("Held-out loss (nats)", drawn)


def lines(curves: Mapping[str, Sequence[Curve]]) -> Iterator[str]:
    """Yields a line for each recipe; the target is the mean final loss of the first one."""
    ends = {name: [curve[-1] for curve in found] for name, found in curves.items()}
    target = statistics.mean(end["loss"] for end in next(iter(ends.values())))
    first, rows = None, {}
    for name, found in curves.items():
        times = [seconds_to(curve, target) for curve in found]
        reached = [time for time in times if time is not None]
        mean = statistics.mean(reached) if len(reached) == len(times) else None
        first = mean if first is None else first
        missed = f"{len(reached)} of {len(times)} reach it"
        rows[name] = (
            f"{ends[name][0]['step']:,}",
            f"{statistics.mean(end['seconds'] for end in ends[name]):.1f}",
            mean_of(ends[name], "bits_per_character"),
            mean_of(ends[name], "loss"),
            f"{statistics.mean(end['accuracy'] for end in ends[name]):.1%}",
            missed if mean is None else f"{mean:.1f}",
            f"{mean / first:.2f}" if mean is not None and first else "",
        )
    header = ("steps", "seconds", "bits/character", "loss", "accuracy", f"seconds to {target:.3f}")
    yield from table((*header, "ratio"), rows)


def mean_of(ends: Sequence[Mapping[str, float]], name: str) -> str:
    """Returns the mean of a value over the seeds, with its standard deviation if several."""
    values = [end[name] for end in ends]
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"
