"""Checkpoints: orbax behind one wrapper, with what it lacks, a checksum of every byte.

A checkpoint is the folder `checkpoints/STEP` with three items: `params` (the model alone, which is
all that evaluation and prediction read), `train_state` (the rest of the TrainState; imported
parameters have none) and `meta` (JSON). orbax writes it in the background and moves it into place
in one piece; then its files are hashed into `checkpoints/STEP.sha256.json`, which holds the metrics
of that step too. A checkpoint without that list was never finished; one that does not agree with it
is damaged, is moved aside, and the one before it is used. What is not to be kept loses its list
first, so that a deletion cut short looks like a save cut short, not like damage.
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
from bert_jax.training.state import TrainState

_FOLDER = "checkpoints"


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
          keep_best: how many of the best ones to keep beside them.
          best_metric: metric that says which are best; a loss is best when it is lowest.
          read_only: leave everything as it is, since the run may be going on: unfinished and
            damaged checkpoints are passed over.

        Raises:
          ValueError: if the folder cannot be made.
        """
        self._folder = pathlib.Path(workdir).absolute() / _FOLDER
        self._keep, self._keep_best, self._best_metric = keep, keep_best, best_metric
        self._read_only = read_only
        # orbax calls back before the folder is in its place: what comes after that is ours to wait
        # for, in a thread.
        self._background = futures.ThreadPoolExecutor(1)
        self._saving: futures.Future[None] | None = None
        if processes.is_main() and not read_only:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(f"{self._folder} cannot be made: {error}.") from error
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
            ),
        )

    def save(self, state: TrainState, meta: dict[str, Any], metrics: dict[str, float]) -> None:
        """Begins to save; training may go on at once (the state is copied off the devices first).

        Args:
          state: of training; its step names the checkpoint.
          meta: JSON values.
          metrics: of an evaluation at this step, or empty.

        Raises:
          ValueError: if this checkpoint or the one before it could not be written, or the metric
            that says which are best is none of `metrics`.
        """
        if metrics and self._keep_best and self._best_metric not in metrics:
            raise ValueError(
                f"config.checkpoint.best_metric={self._best_metric!r} is none of the metrics:"
                f" {', '.join(sorted(metrics))}."
            )
        rest = ocp.args.StandardSave(_without_params(state))
        self._begin_to_save(int(state.step), state.params, meta, metrics, train_state=rest)

    def save_params(self, params: Any, meta: dict[str, Any]) -> None:
        """Saves parameters that no training of ours has made, as step 0.

        Raises:
          ValueError: if they could not be written.
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
        """Waits until the checkpoint that is being saved is safe on disk, its checksums too.

        Raises:
          ValueError: if it could not be written.
        """
        saving, self._saving = self._saving, None
        if saving:
            saving.result()

    def close(self) -> None:
        """Waits for what is being saved and gives everything back."""
        try:
            self.wait()
        finally:
            self._background.shutdown()
            with contextlib.suppress(OSError):  # which wait has told
                self._manager.close()

    @contextlib.contextmanager
    def _explaining(self, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise ValueError(
                f"The checkpoint of step {step} could not be written to {self._folder}: {error}."
                f" The ones before it are whole: {self._sealed_steps()}."
                " Make room or mend the folder, and start again to go on from there."
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
        """The steps of the best values among the checkpoints that have metrics, best first."""
        sign = 1 if "loss" in self._best_metric else -1
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
        """The newest step whose checkpoint is whole; damaged ones are moved aside, loudly."""
        return self._first_good(lambda: self._sealed_steps()[::-1])

    def chosen_step(self, use: str) -> int:
        """The step whose checkpoint evaluates, predicts and is exported.

        Args:
          use: `newest`, or `best` by the metric; the newest where none was evaluated.

        Raises:
          ValueError: there is no whole checkpoint.
        """
        step = None
        if use == "best":
            step = self._first_good(lambda: self._best(len(self._sealed_steps())))
        if step is None and (step := self.newest_good_step()) is None:
            workdir = self._folder.parent
            raise ValueError(f"{workdir} has no checkpoint yet: train first, with --mode=train.")
        return step

    def metrics_of(self, step: int) -> dict[str, float]:
        """The metrics of a checkpoint's evaluation; empty if there was none."""
        return read_metrics(self._folder / str(step))

    def fingerprint(self, step: int) -> str:
        """Of a checkpoint's list of checksums: two that differ have different ones."""
        return fingerprint(self._folder / str(step))

    def _first_good(self, candidates: Callable[[], list[int]]) -> int | None:
        """The first of these steps whose checkpoint is whole, the same on all processes."""
        step = -1
        if processes.is_main():
            if not self._read_only:
                self._remove_unfinished()
            step = next(filter(self._is_whole, candidates()), -1)
        if jax.process_count() > 1:
            step = int(multihost_utils.broadcast_one_to_all(np.int32(step)))
        self._manager.reload()
        return None if step < 0 else step

    def _remove_unfinished(self) -> None:
        for folder in self._folder.iterdir():
            is_step = folder.is_dir() and folder.name.isdecimal()
            if is_step and not checksum_file(folder).is_file():
                logging.warning("Checkpoint %s was not finished and is removed.", folder.name)
                shutil.rmtree(folder)

    def _is_whole(self, step: int) -> bool:
        folder = self._folder / str(step)
        if not (damage := find_corruption(folder)):
            return True
        done = "passed over"
        if not self._read_only:
            aside = _free_name(self._folder / f"damaged-{step}")
            folder.rename(aside)
            checksum_file(folder).unlink()
            done = f"moved to {aside}"
        logging.warning(
            "Checkpoint %d is damaged (%s): %s; the one before it is used.", step, damage, done
        )
        return False

    def restore(self, step: int, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """Reads a checkpoint straight into the shardings of `like`.

        Args:
          step: which one.
          like: abstract state (shapes, dtypes, shardings).

        Returns:
          The state, and the `meta` it was saved with.

        Raises:
          ValueError: if its arrays have other names, shapes or dtypes than `like`.
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
        """Reads the parameters alone, straight into the shardings of `like`.

        Raises:
          ValueError: if they have other names, shapes or dtypes than `like`.
        """
        self._check_same(step, "params", like)
        args = ocp.args.Composite(params=ocp.args.StandardRestore(like))
        return self._manager.restore(step, args=args)["params"]

    def read_params(self, step: int) -> Any:
        """The parameters as numpy arrays, of whatever model they are."""
        saved = self._manager.item_metadata(step)["params"]
        like = jax.tree.map(
            lambda leaf: np.empty(leaf.shape, leaf.dtype), getattr(saved, "tree", saved)
        )
        args = ocp.args.Composite(params=ocp.args.StandardRestore(like))
        return self._manager.restore(step, args=args)["params"]

    def read_meta(self, step: int) -> dict[str, Any]:
        """The `meta` that a checkpoint was saved with."""
        return self._manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))[
            "meta"
        ]

    def _check_same(self, step: int, item: str, like: Any) -> None:
        """orbax would cast another dtype silently and name only the first other shape."""
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
      ValueError: there is no whole checkpoint.
    """
    reading = Checkpoints(workdir, best_metric=settings.best_metric, read_only=True)
    with contextlib.closing(reading) as checkpoints:
        yield checkpoints, checkpoints.chosen_step(settings.use)


def has_imported_params_only(workdir: str) -> bool:
    """Whether the checkpoints of a workdir are such as `save_params` makes: no run can resume."""
    folder = pathlib.Path(workdir, _FOLDER)
    steps = [path for path in folder.glob("*") if path.name.isdecimal()]
    return bool(steps) and not any((path / "train_state").exists() for path in steps)


def _without_params(state: TrainState) -> dict[str, Any]:
    return {
        "step": state.step,
        "opt_state": state.opt_state,
        "nonfinite_streak": state.nonfinite_streak,
    }


def _free_name(path: pathlib.Path) -> pathlib.Path:
    taken = sum(1 for _ in path.parent.glob(path.name + "*"))
    return path.with_name(f"{path.name}-{taken}") if taken else path
