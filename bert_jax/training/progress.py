"""What a run prints: devices, the parameter table, progress lines and speed."""

import math
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from bert_jax.config.durations import duration
from bert_jax.devices.chips import find_chip
from bert_jax.devices.trees import path_name


def peak_flops() -> float | None:
    """Returns the peak of all devices together in FLOP/s; None where unknown, as for CPUs."""
    chip = find_chip(jax.devices()[0].device_kind)
    return chip.flops * jax.device_count() if chip else None


def parameter_table(params: Any) -> Iterable[str]:
    """Yields a line for each parameter: path, shape, dtype, sharding, number of values."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    rows = [
        (
            path_name(path),
            "x".join(map(str, leaf.shape)),
            leaf.dtype.name,
            str(tuple(getattr(leaf.sharding, "spec", ()))),
            f"{leaf.size:,}",
        )
        for path, leaf in leaves
    ]
    header = ("parameter", "shape", "dtype", "split over", "numbers")
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        *left, last = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join([*left, last.strip().rjust(widths[-1])])
    yield f"{sum(leaf.size for _, leaf in leaves):,} parameters"


def describe_devices(mesh: jax.sharding.Mesh) -> str:
    """ "8 x cpu (TFRT_CPU), 1 process, mesh data=8 x fsdp=1 x tensor=1"."""
    device = jax.devices()[0]
    shape = " x ".join(f"{name}={size}" for name, size in mesh.shape.items())
    processes = jax.process_count()
    return (
        f"{jax.device_count()} x {device.device_kind} ({device.platform}),"
        f" {processes} process{'es' if processes > 1 else ''}, mesh {shape}"
    )


class Clock:
    """Measures speed between two reports, the time waited for data, and what a run took so far.

    Args:
      seconds, tokens: what it took before.
    """

    def __init__(self, seconds: float = 0.0, tokens: int = 0):
        self._seconds, self._all_tokens = seconds, tokens
        self._reset()

    def _reset(self) -> None:
        self._start, self._is_running = time.perf_counter(), True
        self._elapsed = 0.0
        self._tokens = self._rows = self._steps = 0
        self._waited = self._flops = 0.0

    def stop(self) -> dict[str, float]:
        """Stops until the next `read`; returns `seconds` and `tokens` of the run so far.

        Seconds are those between `begin` of a phase and its end, without what is between `stop` and
        `read`; tokens are positions, padding included.
        """
        if self._is_running:
            elapsed = time.perf_counter() - self._start
            self._elapsed += elapsed
            self._seconds += elapsed
            self._is_running = False
        return {"seconds": self._seconds, "tokens": self._all_tokens}

    def count(self, rows: int, tokens: int, flops: float, waited: float) -> None:
        """Counts one update: rows, positions, model FLOPs, seconds waited for data."""
        self._steps += 1
        self._rows += rows
        self._tokens += tokens
        self._all_tokens += tokens
        self._flops += flops
        self._waited += waited

    def read(self) -> dict[str, float]:
        """Returns the speed since the last reading and the values of `stop`; starts again."""
        so_far = self.stop()
        seconds = max(self._elapsed, 1e-9)
        speed = {
            "steps_per_second": self._steps / seconds,
            "tokens_per_second": self._tokens / seconds,
            "examples_per_second": self._rows / seconds,
            "waiting_for_data": min(1.0, self._waited / seconds),
            **so_far,
        }
        if peak := peak_flops():
            speed["mfu"] = self._flops / seconds / peak
        self._reset()
        return speed


def progress_line(
    step: int, steps: int, values: Mapping[str, float], speed: Mapping[str, float]
) -> str:
    """Returns the line of one report of training."""
    parts = [f"step {step:>{len(str(steps))}}/{steps}", *named_values(values)]
    parts.append(f"{speed['tokens_per_second']:,.0f} tokens/s")
    parts.append(f"{speed['examples_per_second']:,.1f} examples/s")
    parts.append(f"data wait {speed['waiting_for_data']:.0%}")
    if "mfu" in speed:
        parts.append(f"MFU {speed['mfu']:.1%}")
    if remaining := steps - step:
        parts.append(f"ETA {duration(remaining / max(speed['steps_per_second'], 1e-9))}")
    return "  ".join(parts)


def named_values(values: Mapping[str, float]) -> list[str]:
    """ "MLM loss 2.345", "NSP accuracy 97.1%" ..., for display."""
    return [f"{_short(name)} {_number(name, value)}" for name, value in values.items()]


def _short(name: str) -> str:
    words = {
        **{"masked_lm": "MLM", "causal_lm": "LM", "bidirectional_lm": "biLM"},
        **{"next_sentence": "NSP", "learning_rate": "lr"},
    }
    for long, short in words.items():
        name = name.replace(long, short)
    return name.replace("_", " ")


def _number(name: str, value: float) -> str:
    if name.endswith("accuracy"):
        return f"{value:.1%}"
    return f"{value:.2e}" if name == "learning_rate" else f"{value:.4g}"


class Screen:
    """Prints lines, and on a terminal a progress bar below them."""

    def __init__(self, steps: int, enabled: bool = True):
        self._steps = steps
        self._enabled = enabled
        self._bar = enabled and sys.stdout.isatty()

    def line(self, text: str = "") -> None:
        """Prints a line above the bar."""
        if self._enabled:
            print("\r\x1b[K" + text if self._bar else text, flush=True)

    def tick(self, step: int) -> None:
        """Moves the bar; does nothing if the output is not a terminal."""
        if self._bar:
            done = math.floor(40 * min(step / max(self._steps, 1), 1))
            bar = "#" * done + "-" * (40 - done)
            print(f"\r\x1b[K[{bar}] {step}/{self._steps}", end="", flush=True)
