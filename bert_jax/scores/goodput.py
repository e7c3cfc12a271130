"""Goodput: the share of a run's wall time that trained, and where the rest went.

A workdir's goodput.jsonl has lines of each start of the run (`training.goodput` writes them):

    {"start": 0, "step": 100, "time": 1764170000.0, "seconds": {"training": 52.1, "data": 0.4, ...}}

`start` is the number of the start, `time` the Unix time of the line, `seconds` what the start has
spent so far, by category. What a start spent after the checkpoint from which the next one resumed
was done again: it is `lost`. The time between the last line of a start and the beginning of the
next is `stopped`, and not part of the wall time; after a kill, that includes what the start did
since its last line.
"""

import itertools
import os
from collections.abc import Sequence
from typing import Any

from bert_jax.files.atomic import read_json_lines

NAME = "goodput.jsonl"
CATEGORIES = tuple("training data compilation evaluation checkpoints other".split())


def read_goodput(workdir: str | os.PathLike) -> dict[str, Any]:
    """Returns `summarize` of a run's goodput.jsonl; {} without one."""
    return summarize(read_json_lines(os.path.join(workdir, NAME)))


def summarize(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the goodput of a run.

    Args:
      lines: those of goodput.jsonl.

    Returns:
      {"goodput": share of the wall time that trained, "wall_seconds": of all starts,
      "seconds": {category: ...} with `lost`, whose sum is the wall time, "stopped_seconds": between
      starts, "starts": their number}; {} without lines.
    """
    if not lines:
        return {}
    groups = itertools.groupby(lines, key=lambda line: line["start"])
    starts = [list(group) for _, group in groups]
    seconds: dict[str, float] = dict.fromkeys((*CATEGORIES, "lost"), 0.0)
    stopped = 0.0
    for start, after in itertools.zip_longest(starts, starts[1:]):
        last = kept = start[-1]
        if after:
            kept = max((r for r in start if r["step"] <= after[0]["step"]), key=_spent)
            stopped += after[0]["time"] - _spent(after[0]) - last["time"]
        for name, value in kept["seconds"].items():
            seconds[name] += value
        seconds["lost"] += _spent(last) - _spent(kept)
    wall = sum(seconds.values())
    return {
        "goodput": round(seconds["training"] / wall, 4) if wall else 0.0,
        "wall_seconds": round(wall, 3),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "stopped_seconds": round(stopped, 3),
        "starts": len(starts),
    }


def _spent(line: dict[str, Any]) -> float:
    return sum(line["seconds"].values())
