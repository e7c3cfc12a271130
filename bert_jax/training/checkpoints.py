"""Checkpoints: orbax behind one wrapper, with a checksum of every byte.

A checkpoint is the folder `checkpoints/STEP` with three items: `params` (the model alone;
evaluation and prediction read nothing else), `train_state` (the rest of the TrainState; imported
parameters have none) and `meta` (JSON). orbax writes it in the background and moves it into place
atomically; then its files are hashed into `checkpoints/STEP.sha256.json`, which also holds the
metrics of that step. A checkpoint without this list is unfinished. A checkpoint whose files differ
from the list is corrupt: it is moved aside and the previous one is used. A checkpoint that is
deleted loses its list first, so that an interrupted deletion looks like an interrupted save, not
like corruption.
"""

import contextlib
import dataclasses
import math
import pathlib
import shutil
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from bert_jax.devices import processes
from bert_jax.devices.trees import described, diff_of_trees
from bert_jax.training.checksums import (
    checksum_file,
    find_corruption,
    fingerprint,
    read_metrics,
    write_checksums,
)
from bert_jax.training.metrics import is_best_when_low
from bert_jax.training.state import TrainState

_FOLDER = "checkpoints"


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without warnings of orbax, here that a handler replaces another."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


# Devices that hold copies of an array each write a part of it, unless it is smaller than this
# number of bytes: slicing a small array on the devices takes longer than writing it.
_SMALLEST_SLICED_ARRAY = 1 << 20
with _quietly():
    ocp.type_handlers.register_type_handler(
        jax.Array,
        ocp.type_handlers.ArrayHandler(min_slice_bytes_for_replica_parallel=_SMALLEST_SLICED_ARRAY),
        override=True,
    )


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
          keep: newest checkpoints to keep.
          keep_best: best checkpoints to keep in addition.
          best_metric: metric that selects them; see `metrics.is_best_when_low`.
          read_only: change nothing, since the run may be in progress: unfinished and corrupt
            checkpoints are skipped.

        Raises:
          ValueError: the folder cannot be created.
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
                raise ValueError(f"{self._folder} cannot be created: {error}.") from error
        processes.barrier("checkpoint folder")
        self._manager = ocp.CheckpointManager(
            self._folder,
            item_handlers={
                "params": ocp.StandardCheckpointHandler(),
                "train_state": ocp.StandardCheckpointHandler(),
                "meta": ocp.JsonCheckpointHandler(),
            },
            options=ocp.CheckpointManagerOptions(
                read_only=read_only,
                cleanup_tmp_directories=not read_only,
                async_options=ocp.AsyncOptions(barrier_sync_fn=processes.wait_or_fail),
            ),
        )

    def save(self, state: TrainState, meta: dict[str, Any], metrics: dict[str, float]) -> None:
        """Starts to save in the background; the state is copied from the devices first.

        Args:
          state: of training; its step names the checkpoint.
          meta: JSON values.
          metrics: of an evaluation at this step, or empty.

        Raises:
          ValueError: this checkpoint or the previous one could not be written, or `best_metric` is
            not one of `metrics`.
        """
        if metrics and self._keep_best and self._best_metric not in metrics:
            raise ValueError(
                f"config.checkpoint.best_metric={self._best_metric!r} is none of the metrics:"
                f" {', '.join(sorted(metrics))}."
            )
        rest = ocp.args.StandardSave(_without_params(state))
        self._begin_to_save(int(state.step), state.params, meta, metrics, train_state=rest)

    def save_params(self, params: Any, meta: dict[str, Any]) -> None:
        """Saves imported parameters as step 0.

        Raises:
          ValueError: they could not be written.
        """
        self._begin_to_save(0, params, meta, metrics={})
        self.wait()

    def _begin_to_save(
        self, step: int, params: Any, meta: dict[str, Any], metrics: dict[str, float], **more: Any
    ) -> None:
        self.wait()
        with self._explaining(step):
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardSave(params), meta=ocp.args.JsonSave(meta), **more
                ),
            )
        self._saving = self._background.submit(self._finish, step, metrics)

    def wait(self) -> None:
        """Waits until the checkpoint that is being saved is on disk, with its checksums.

        Raises:
          ValueError: it could not be written.
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

    @contextlib.contextmanager
    def _explaining(self, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise ValueError(
                f"The checkpoint of step {step} could not be written to {self._folder}: {error}."
                f" The checkpoints before it are intact: {self._sealed_steps()}."
                " Free disk space or repair the folder, and run the command again to resume."
            ) from error

    def _finish(self, step: int, metrics: dict[str, float]) -> None:
        """Waits for orbax, writes the checksums, and deletes what is not kept."""
        with self._explaining(step):
            self._manager.wait_until_finished()
            if processes.is_main():
                write_checksums(self._folder / str(step), metrics)
                self._delete_old()

    def _delete_old(self) -> None:
        sealed = self._sealed_steps()
        for step in set(sealed) - set(sealed[-self._keep :] + self._best(self._keep_best)):
            checksum_file(self._folder / str(step)).unlink()
            shutil.rmtree(self._folder / str(step))

    def _best(self, count: int) -> list[int]:
        """Returns the steps with the best values of the metric, best first."""
        sign = 1 if is_best_when_low(self._best_metric) else -1
        ranks = {}
        for step in self._sealed_steps():
            value = read_metrics(self._folder / str(step)).get(self._best_metric, math.nan)
            if not math.isnan(value):
                ranks[step] = sign * value
        return sorted(ranks, key=ranks.__getitem__)[:count]

    def _sealed_steps(self) -> list[int]:
        names = (path.name.split(".")[0] for path in self._folder.glob("*.sha256.json"))
        return sorted(int(name) for name in names if (self._folder / name).is_dir())

    def newest_good_step(self) -> int | None:
        """Returns the newest step whose checkpoint is intact; corrupt ones are moved aside."""
        return self._first_good(lambda: self._sealed_steps()[::-1])

    def chosen_step(self, use: str) -> int:
        """Returns the step whose checkpoint is evaluated, predicts and is exported.

        Args:
          use: `newest`, or `best` by the metric; the newest if none was evaluated.

        Raises:
          ValueError: there is no intact checkpoint.
        """
        step = None
        if use == "best":
            step = self._first_good(lambda: self._best(len(self._sealed_steps())))
        if step is None and (step := self.newest_good_step()) is None:
            workdir = self._folder.parent
            raise ValueError(f"{workdir} has no checkpoint yet: train first, with --mode=train.")
        return step

    def metrics_of(self, step: int) -> dict[str, float]:
        """Returns the metrics of a checkpoint's evaluation; empty if there was none."""
        return read_metrics(self._folder / str(step))

    def fingerprint(self, step: int) -> str:
        """Returns a hash that differs for different checkpoints."""
        return fingerprint(self._folder / str(step))

    def _first_good(self, candidates: Callable[[], list[int]]) -> int | None:
        """Returns the first of these steps whose checkpoint is intact, equal on all processes."""
        step = -1
        if processes.is_main():
            if not self._read_only:
                self._remove_unfinished()
            step = next(filter(self._is_intact, candidates()), -1)
        if jax.process_count() > 1:
            step = int(multihost_utils.broadcast_one_to_all(np.int32(step)))
        self._manager.reload()
        return None if step < 0 else step

    def _remove_unfinished(self) -> None:
        for folder in self._folder.iterdir():
            is_step = folder.is_dir() and folder.name.isdecimal()
            if is_step and not checksum_file(folder).is_file():
                logging.warning("Checkpoint %s is unfinished and is removed.", folder.name)
                shutil.rmtree(folder)

    def _is_intact(self, step: int) -> bool:
        folder = self._folder / str(step)
        if not (corruption := find_corruption(folder)):
            return True
        action = "skipped"
        if not self._read_only:
            aside = _free_name(self._folder / f"damaged-{step}")
            folder.rename(aside)
            checksum_file(folder).unlink()
            action = f"moved to {aside}"
        logging.warning(
            "Checkpoint %d is corrupt (%s): %s; the previous one is used.", step, corruption, action
        )
        return False

    def restore(self, step: int, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """Reads a checkpoint directly into the shardings of `like`.

        Args:
          step: of the checkpoint.
          like: abstract state (shapes, dtypes, shardings).

        Returns:
          The state, and the `meta` it was saved with.

        Raises:
          ValueError: its arrays have other names, shapes or dtypes than `like`.
        """
        rest = _without_params(like)
        self._check_same(step, "params", like.params)
        self._check_same(step, "train_state", rest)
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(like.params),
                train_state=ocp.args.StandardRestore(rest),
                meta=ocp.args.JsonRestore(),
            ),
        )
        state = dataclasses.replace(like, params=restored["params"], **restored["train_state"])
        return state, restored["meta"]

    def restore_params(self, step: int, like: Any) -> Any:
        """Reads the parameters alone, directly into the shardings of `like`.

        Raises:
          ValueError: they have other names, shapes or dtypes than `like`.
        """
        self._check_same(step, "params", like)
        args = ocp.args.Composite(params=ocp.args.StandardRestore(like))
        return self._manager.restore(step, args=args)["params"]

    def read_params(self, step: int) -> Any:
        """Returns the parameters as numpy arrays, of any model."""
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

    def _check_same(self, step: int, item: str, like: Any) -> None:
        """orbax would cast other dtypes silently and name only the first shape that differs."""
        saved = self._manager.item_metadata(step)[item]
        lines = diff_of_trees(described(getattr(saved, "tree", saved)), described(like))
        if lines:
            raise ValueError(
                f"Checkpoint {step} in {self._folder} does not fit the configuration"
                " (- in the checkpoint, + by the configuration): " + "; ".join(lines)
            )


@contextlib.contextmanager
def open_chosen(workdir: str, settings: ConfigDict) -> Iterator[tuple[Checkpoints, int]]:
    """Yields the checkpoints of a run to read, and the step that `config.checkpoint` chooses.

    Raises:
      ValueError: there is no intact checkpoint.
    """
    reading = Checkpoints(workdir, best_metric=settings.best_metric, read_only=True)
    with contextlib.closing(reading) as checkpoints:
        yield checkpoints, checkpoints.chosen_step(settings.use)


def has_imported_params_only(workdir: str) -> bool:
    """Returns whether a workdir has checkpoints of `save_params` only, which no run can resume."""
    steps = _step_folders(workdir)
    return bool(steps) and not any((path / "train_state").exists() for path in steps)


def has_checkpoints(workdir: str) -> bool:
    """Returns whether a workdir has any checkpoints, intact or not."""
    return bool(_step_folders(workdir))


def _step_folders(workdir: str) -> list[pathlib.Path]:
    folder = pathlib.Path(workdir, _FOLDER)
    return [path for path in folder.glob("*") if path.name.isdecimal()]


def _without_params(state: TrainState) -> dict[str, Any]:
    fields = {
        "step": state.step,
        "opt_state": state.opt_state,
        "nonfinite_streak": state.nonfinite_streak,
    }
    return fields | {"carry": state.carry} if jax.tree.leaves(state.carry) else fields


def _free_name(path: pathlib.Path) -> pathlib.Path:
    taken = sum(1 for _ in path.parent.glob(path.name + "*"))
    return path.with_name(f"{path.name}-{taken}") if taken else path
