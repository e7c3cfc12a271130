"""What the folder of a run keeps, read for a report."""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax.config import store
from bert_jax.config.phases import Phase
from bert_jax.config.run import RunConfig
from bert_jax.data.corpus import manifest
from bert_jax.files.atomic import read_json, read_json_lines
from bert_jax.files.checksums import file_sha256
from bert_jax.scores.goodput import read_goodput

TRAINING, HELD_OUT = "train", "validation"
# What `bert_jax probe` writes.
PROBES = "probes.json"
# Fields of metrics.jsonl that are not metrics.
_NO_METRICS = {"step", "split", "speed"}


@dataclasses.dataclass(frozen=True)
class Workdir:
    """A run.

    Attributes:
      name: name of its folder.
      config: config.json.
      rows: lines of metrics.jsonl.
      starts: lines of starts.jsonl.
      evaluation: evaluation.json, {} without one.
      parameters: rows of parameters.json: path, shape, dtype, sharding, number of values.
      results: results.json, {} without one.
      manifest: manifest.json of the data; None if the run has no corpus, or its folder is gone.
      goodput: `scores.goodput.summarize`.
      skipped: steps that were not finite.
      probes: probes.json, () without one.
      checkpoints: step -> SHA-256 of its list of checksums.
      seeds: the runs of a folder with several.
    """

    name: str
    config: RunConfig
    rows: tuple[dict[str, Any], ...]
    starts: tuple[dict[str, Any], ...]
    evaluation: dict[str, Any]
    parameters: tuple[tuple[Any, ...], ...]
    results: dict[str, Any]
    manifest: dict[str, Any] | None
    goodput: dict[str, Any]
    skipped: tuple[int, ...]
    checkpoints: dict[int, str]
    probes: tuple[dict[str, Any], ...] = ()
    seeds: tuple["Workdir", ...] = ()

    @property
    def steps(self) -> int:
        """Steps done."""
        return max((row["step"] for row in self.rows), default=0)

    @property
    def all_steps(self) -> int:
        """Steps of the whole run, or those done if the folder does not say."""
        return self.starts[-1]["steps"] if self.starts else self.steps

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self.config.make_phases(self.all_steps)

    @property
    def members(self) -> tuple["Workdir", ...]:
        """The seeds, or the run itself without them."""
        return self.seeds or (self,)

    @property
    def cost(self) -> dict[str, float]:
        """The newest `speed`: `seconds` and `tokens` of the training so far; {} without one."""
        return next((row["speed"] for row in reversed(self.rows) if row.get("speed")), {})

    def split(self, name: str) -> list[dict[str, Any]]:
        """Returns the lines of a split."""
        return [row for row in self.rows if row["split"] == name]

    def places(self, step: int) -> dict[str, float]:
        """Returns the place of a step on each axis, interpolated between the lines around it."""
        steps = [0, *(row["step"] for row in self.rows)]
        return {
            axis: float(np.interp(step, steps, [0, *(place_of(row, axis) for row in self.rows)]))
            for axis in axes_of(self.rows)
        }

    def statistics(self, split: str) -> dict[str, Any]:
        """Returns the row statistics of a split in the last phase; {} without them."""
        if not self.manifest:
            return {}
        parts = self.manifest["splits"].get(split, {}).get("sequence_lengths", {})
        return parts.get(str(self.phases[-1].sequence_length), {}).get("statistics", {})


def load(path: str) -> Workdir:
    """Reads the folder of a run, or of one configuration with several seeds.

    Raises:
      UserError: it holds no run.
    """
    folder = pathlib.Path(path)
    seeds = sorted(folder.glob("seed-*/config.json"), key=lambda p: int(p.parent.name[5:]))
    if not (folder / store.NAME).is_file() and seeds:  # it is written after the last seed
        config = store.load(str(seeds[0].parent))
    else:
        config = store.load(path)
    found = folder.resolve().glob("nonfinite-step-*.npz")
    data = config.data_dir(path) if config.has_corpus else ""
    lists = (folder / "checkpoints").glob("*.sha256.json")
    lists = sorted(lists, key=lambda p: int(p.name.split(".")[0]))
    skipped = {int(match[1]) for p in found if (match := re.search(r"-step-(\d+)-", p.name))}
    return Workdir(
        name=folder.resolve().name,
        config=config,
        rows=tuple(read_json_lines(folder / "metrics.jsonl")),
        starts=tuple(read_json_lines(folder / "starts.jsonl")),
        evaluation=_json(folder / "evaluation.json"),
        parameters=tuple(map(tuple, _json(folder / "parameters.json"))),
        results=_json(folder / "results.json"),
        manifest=_json(pathlib.Path(data, manifest.NAME)) or None if data else None,
        goodput=read_goodput(folder),
        skipped=tuple(sorted(skipped)),
        checkpoints={int(p.name.split(".")[0]): file_sha256(p) for p in lists},
        probes=tuple(_json(folder / PROBES)),
        seeds=tuple(load(str(seed.parent)) for seed in seeds),
    )


def metrics_of(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the metrics of a line."""
    return {name: value for name, value in row.items() if name not in _NO_METRICS}


def axes_of(rows: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Returns the axes that all lines have a place on: steps, tokens, seconds."""
    speeds = [row.get("speed") or {} for row in rows]
    return ("steps", *(axis for axis in ("tokens", "seconds") if all(axis in s for s in speeds)))


def place_of(row: dict[str, Any], axis: str) -> float:
    """Returns the place of a line on an axis."""
    return row["step"] if axis == "steps" else row["speed"][axis]


def names_of(runs: Sequence[Workdir]) -> list[str]:
    """Returns a different name for each run."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({1 + names[:i].count(name)})"
        for i, name in enumerate(names)
    ]


def _json(path: pathlib.Path) -> Any:
    return read_json(path) if path.is_file() else {}
