"""Checkpoints: orbax behind one wrapper, with a checksum of every byte.

A checkpoint is the folder `checkpoints/STEP` with three items: `params` (the model alone;
evaluation and prediction read nothing else), `train_state` (the rest of the TrainState; imported
parameters have none) and `meta` (JSON). orbax writes it in the background and moves it into place
atomically; then its files are hashed into `checkpoints/STEP.sha256.json`, which also holds the
metrics of that step and which of `config.checkpoint.milestones` it is, if any; a milestone is never
deleted. A checkpoint without this list is unfinished. A checkpoint whose files differ from the list
is corrupt: it is moved aside and the previous one is used. A checkpoint that is deleted loses its
list first, so that an interrupted deletion looks like an interrupted save, not like corruption.

All this also holds in a bucket, whose objects are the files: see `files/buckets.py`.
"""

import contextlib
import dataclasses
import logging
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from bert_jax.config.run import RunConfig
from bert_jax.devices import processes
from bert_jax.devices.trees import described, diff_of_trees
from bert_jax.files import buckets
from bert_jax.files.errors import UserError
from bert_jax.training import orbax_manager
from bert_jax.training.metrics import is_best_when_low
from bert_jax.training.seals import (
    checksum_file,
    checksums,
    find_corruption,
    read_metrics,
    read_milestones,
    write_checksums,
)
from bert_jax.training.state import TrainState

_FOLDER = "checkpoints"
_logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run; every process of the run calls every method."""

    def __init__(
        self,
        workdir: str,
        *,
        keep: int = 3,
        keep_best: int = 0,
        best_metric: str = "",
        read_only: bool = False,
    ):
        """Opens the checkpoints of a run.

        Args:
          workdir: folder of the run.
          keep: number of newest checkpoints to keep.
          keep_best: number of best checkpoints to keep in addition.
          best_metric: metric that selects them; see `metrics.is_best_when_low`.
          read_only: change nothing, since the run may be in progress: unfinished and corrupt
            checkpoints are skipped.

        Raises:
          UserError: the folder cannot be created.
        """
        self._folder = pathlib.Path(workdir).absolute() / _FOLDER
        self._keep, self._keep_best, self._best_metric = keep, keep_best, best_metric
        self._read_only = read_only
        # orbax calls back before it moves the folder into place, so this thread waits for the move.
        self._background = futures.ThreadPoolExecutor(1)
        self._saving: futures.Future[None] | None = None
        if processes.is_main() and not read_only:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"{self._folder} cannot be created: {error}.") from error
        processes.barrier("checkpoint folder")
        self._manager = orbax_manager.open_manager(self._folder, read_only)
        self._writer = self._manager
        if buckets.address_of(self._folder) and not read_only:
            self._writer = orbax_manager.open_scratch(self._folder)

    def save(
        self,
        state: TrainState,
        meta: dict[str, Any],
        metrics: dict[str, float],
        milestones: Sequence[str] = (),
    ) -> None:
        """Starts saving in the background, after copying the state from the devices.

        Args:
          state: training state; its step names the checkpoint.
          meta: JSON values.
          metrics: results of an evaluation at this step, or empty.
          milestones: durations that the run has reached; if any, the checkpoint is never deleted.

        Raises:
          UserError: this checkpoint or the previous one could not be written.
        """
        params, rest = _split(state)
        trees = {"params": params, "train_state": rest}
        self._begin_to_save(int(state.step), trees, meta, metrics, milestones)

    def save_params(self, params: Any, meta: dict[str, Any]) -> None:
        """Saves imported parameters as step 0.

        Raises:
          UserError: they could not be written.
        """
        self._begin_to_save(0, {"params": params}, meta, metrics={})
        self.wait()

    def _begin_to_save(
        self,
        step: int,
        trees: dict[str, Any],
        meta: dict[str, Any],
        metrics: dict[str, float],
        milestones: Sequence[str] = (),
    ) -> None:
        self.wait()
        with self._explaining(step):
            self._writer.save(
                step,
                args=ocp.args.Composite(
                    **{name: ocp.args.PyTreeSave(arrays) for name, arrays in trees.items()},
                    meta=ocp.args.JsonSave(meta),
                ),
            )
        self._saving = self._background.submit(self._finish, step, metrics, milestones)

    def wait(self) -> None:
        """Waits until the checkpoint that is being saved is on disk, with its checksums.

        Raises:
          UserError: it could not be written.
        """
        saving, self._saving = self._saving, None
        if saving:
            saving.result()

    def close(self) -> None:
        """Waits for the checkpoint that is being saved and releases all resources."""
        try:
            self.wait()
        finally:
            self._background.shutdown()
            with contextlib.suppress(Exception):  # of a save; `wait` has raised it already
                self._manager.close()
                self._writer.close()

    @contextlib.contextmanager
    def _explaining(self, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise UserError(
                f"The checkpoint of step {step} could not be written to {self._folder}: {error}."
                f" The checkpoints before it are intact: {self._sealed_steps()}."
                " Free disk space or repair the folder, and run the command again to resume."
            ) from error

    def _finish(self, step: int, metrics: dict[str, float], milestones: Sequence[str]) -> None:
        """Waits for orbax, writes the checksums, and deletes what is not kept."""
        with self._explaining(step):
            self._writer.wait_until_finished()
            folder = self._folder / str(step)
            if self._writer is self._manager:
                files = checksums(folder) if processes.is_main() else {}
            else:
                files = orbax_manager.upload(
                    pathlib.Path(self._writer.directory, str(step)), folder
                )
            if processes.is_main():
                write_checksums(folder, metrics, files, milestones)
                sealed = self._sealed_steps()
                kept = sealed[-self._keep :] + self._best(self._keep_best)
                kept += self.milestones().values()
                for old in set(sealed) - set(kept):
                    buckets.remove(checksum_file(self._folder / str(old)))
                    buckets.remove(self._folder / str(old))

    def _best(self, count: int) -> list[int]:
        """Returns the steps with the best values of the metric, best first."""
        sign = 1 if is_best_when_low(self._best_metric) else -1
        ranks = {}
        for step in self._sealed_steps():
            value = read_metrics(self._folder / str(step)).get(self._best_metric, math.nan)
            if not math.isnan(value):
                ranks[step] = sign * value
        return sorted(ranks, key=ranks.__getitem__)[:count]

    def milestones(self) -> dict[str, int]:
        """Returns the steps of the checkpoints that are milestones, by duration, in order."""
        steps = self._sealed_steps()
        return {text: n for n in steps for text in read_milestones(self._folder / str(n))}

    def _sealed_steps(self) -> list[int]:
        names = (path.name.split(".")[0] for path in self._folder.glob("*.sha256.json"))
        if not buckets.address_of(self._folder):
            names = (name for name in names if (self._folder / name).is_dir())
        return sorted(map(int, names))

    def newest_good_step(self) -> int | None:
        """Returns the newest step whose checkpoint is intact; corrupt ones are moved aside."""
        return self._first_good(lambda: self._sealed_steps()[::-1])

    def chosen_step(self, use: str, step: int | None = None) -> int:
        """Returns the step whose checkpoint is used for evaluation, prediction and export.

        Args:
          use: `newest`, or `best` by the metric; the newest if none was evaluated.
          step: the step to return, after verifying its checkpoint; None: chosen by `use`.

        Raises:
          UserError: there is no intact checkpoint, or none of `step`.
        """
        if step is not None:
            if self._first_good(lambda: [step]) is None:
                raise UserError(f"{self._folder} has no intact checkpoint of step {step}.")
            return step
        if use == "best":
            step = self._first_good(lambda: self._best(len(self._sealed_steps())))
        if step is None and (step := self.newest_good_step()) is None:
            workdir = self._folder.parent
            raise UserError(f"{workdir} has no checkpoint yet: train first, with --mode=train.")
        return step

    def metrics_of(self, step: int) -> dict[str, float]:
        """Returns the metrics of a checkpoint's evaluation; empty if there was none."""
        return read_metrics(self._folder / str(step))

    def _first_good(self, candidates: Callable[[], list[int]]) -> int | None:
        """Returns the first of these steps whose checkpoint is intact, equal on all processes."""
        step = -1
        if processes.is_main():
            for unsealed in () if self._read_only else _step_folders(self._folder.parent):
                if not checksum_file(unsealed).is_file():
                    _logger.warning("Checkpoint %s is unfinished and is removed.", unsealed.name)
                    buckets.remove(unsealed)
            step = next(filter(self._is_intact, candidates()), -1)
        if jax.process_count() > 1:
            step = int(multihost_utils.broadcast_one_to_all(np.int32(step)))
        buckets.fetch([self._folder / str(step)])  # all processes read it
        self._manager.reload()
        return None if step < 0 else step

    def _is_intact(self, step: int) -> bool:
        folder = self._folder / str(step)
        if not (corruption := find_corruption(folder)):
            return True
        action = "skipped"
        if not self._read_only:
            name = f"damaged-{step}"
            taken = sum(other.startswith(name) for other in buckets.names(self._folder))
            aside = self._folder / (f"{name}-{taken}" if taken else name)
            buckets.move(folder, aside)
            buckets.remove(checksum_file(folder))
            action = f"moved to {aside}"
        _logger.warning(
            "Checkpoint %d is corrupt (%s): %s; the previous one is used.", step, corruption, action
        )
        return False

    def restore(self, step: int, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """Reads a checkpoint directly into the shardings of `like`.

        Args:
          step: the checkpoint's step.
          like: abstract state (shapes, dtypes, shardings).

        Returns:
          The state, and the `meta` it was saved with.

        Raises:
          UserError: its arrays have other names, shapes or dtypes than `like`.
        """
        params, rest = _split(like)
        self._check_same(step, "params", params)
        self._check_same(step, "train_state", rest)
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(params),
                train_state=ocp.args.StandardRestore(rest),
                meta=ocp.args.JsonRestore(),
            ),
        )
        state = TrainState(params=restored["params"], **restored["train_state"])
        return state, restored["meta"]

    def restore_params(self, step: int, like: Any) -> Any:
        """Reads the parameters alone, directly into the shardings of `like`.

        Raises:
          UserError: they have other names, shapes or dtypes than `like`.
        """
        self._check_same(step, "params", like)
        args = ocp.args.Composite(params=ocp.args.StandardRestore(like))
        return self._manager.restore(step, args=args)["params"]

    def read_params(self, step: int) -> Any:
        """Returns the parameters of any model as numpy arrays."""
        saved = self._manager.item_metadata(step)["params"]
        like = jax.tree.map(
            lambda leaf: np.empty(leaf.shape, leaf.dtype), getattr(saved, "tree", saved)
        )
        args = ocp.args.Composite(params=ocp.args.StandardRestore(like))
        return self._manager.restore(step, args=args)["params"]

    def read_meta(self, step: int) -> dict[str, Any]:
        """Returns the `meta` that a checkpoint was saved with."""
        return self._manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))[
            "meta"
        ]

    def progress(self) -> tuple[int, int]:
        """Returns the number of steps that the run has done, and the number it is to do in total.

        They are equal for a run that ended early, and for imported parameters.
        """
        done = self._sealed_steps()[-1]
        meta = self.read_meta(done)
        return done, done if meta.get("ended_early") else meta.get("steps", done)

    def _check_same(self, step: int, item: str, like: Any) -> None:
        """orbax would cast other dtypes silently and name only the first shape that differs."""
        saved = self._manager.item_metadata(step)[item]
        lines = diff_of_trees(described(getattr(saved, "tree", saved)), described(like))
        if lines:
            raise UserError(
                f"Checkpoint {step} in {self._folder} does not fit the configuration"
                " (- in the checkpoint, + by the configuration): " + "; ".join(lines)
            )


@contextlib.contextmanager
def open_chosen(
    workdir: str, config: RunConfig, step: int | None = None
) -> Iterator[tuple[Checkpoints, int]]:
    """Yields the checkpoints of a run, opened for reading, and a step.

    Logs a warning if the run has not done all its steps.

    Args:
      workdir: folder of the run.
      config: its configuration.
      step: the step; None: the one that `config.checkpoint` chooses.

    Raises:
      UserError: there is no intact checkpoint, or none of this step.
    """
    reading = Checkpoints(workdir, best_metric=config.best_metric, read_only=True)
    with contextlib.closing(reading) as checkpoints:
        step = checkpoints.chosen_step(config.checkpoint.use, step)
        done, planned = checkpoints.progress()
        if done < planned and processes.is_main():
            _logger.warning(
                "%s has done %d of %d steps: this is the model of an unfinished run. Unless it is"
                " still training, continue it with the command that began it.",
                *(workdir, done, planned),
            )
        yield checkpoints, step


def has_imported_params_only(workdir: str) -> bool:
    """Returns whether a workdir has checkpoints of `save_params` only, which no run can resume."""
    steps = _step_folders(workdir)
    return bool(steps) and not any("train_state" in buckets.names(path) for path in steps)


def has_checkpoints(workdir: str) -> bool:
    """Returns whether a workdir has any checkpoints, intact or not."""
    return bool(_step_folders(workdir))


def _step_folders(workdir: str | os.PathLike) -> list[pathlib.Path]:
    folder = pathlib.Path(workdir, _FOLDER)
    return [folder / name for name in buckets.names(folder) if name.isdecimal()]


def _split(state: TrainState) -> tuple[Any, dict[str, Any]]:
    """Returns the parameters, and the rest of the state; arrays or shapes."""
    rest = {item.name: getattr(state, item.name) for item in dataclasses.fields(state)}
    if not jax.tree.leaves(state.carry):
        del rest["carry"]
    return rest.pop("params"), rest
