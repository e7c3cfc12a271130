"""Checkpoints: orbax behind one wrapper, with what it lacks, a checksum of every byte.

A checkpoint is the folder `checkpoints/STEP` with three items: `params` (the model alone, which is
all that evaluation and prediction read), `train_state` (the rest of the TrainState) and `meta`
(JSON). orbax writes it in the background and moves it into place in one piece; then its files are
hashed into `checkpoints/STEP.sha256.json`. A checkpoint without that list was never finished; one
that does not agree with it is damaged, is moved aside, and the one before it is used.
"""

import hashlib
import json
import pathlib
import shutil
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import preservation_policy as keep_policy

from bert_jax import processes
from bert_jax.state import TrainState

_FOLDER = "checkpoints"


class Checkpoints:
    """The checkpoints of one run; every process of the run calls every method."""

    def __init__(self, workdir: str, *, keep: int = 3, keep_best: int = 0, best_metric: str = ""):
        """Opens the checkpoints of a run.

        Args:
          workdir: folder of the run.
          keep: newest checkpoints to keep.
          keep_best: how many of the best ones to keep beside them.
          best_metric: metric that says which are best; a loss is best when it is lowest.
        """
        self._folder = pathlib.Path(workdir).absolute() / _FOLDER
        self._saving: int | None = None
        if processes.is_main():
            self._folder.mkdir(parents=True, exist_ok=True)
        processes.barrier("checkpoint folder")
        newest = keep_policy.LatestN(keep)
        best = keep_policy.BestN(
            get_metric_fn=lambda metrics: metrics[best_metric],
            reverse="loss" in best_metric,
            n=keep_best,
            keep_checkpoints_without_metrics=False,
        )
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=keep_policy.AnyPreservationPolicy([newest, best]),
                cleanup_tmp_directories=True,
                async_options=ocp.AsyncOptions(post_finalization_callback=self._seal),
            ),
        )

    def save(self, state: TrainState, meta: dict[str, Any], metrics: dict[str, float]) -> None:
        """Begins to save; training may go on at once (the state is copied off the devices first).

        Args:
          state: of training; its step names the checkpoint.
          meta: JSON values.
          metrics: of an evaluation at this step, or empty.

        Raises:
          ValueError: if the checkpoint before this one could not be written.
        """
        step = int(state.step)
        self.wait()
        self._saving = step
        self._manager.save(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(state.params),
                train_state=ocp.args.StandardSave(_without_params(state)),
                meta=ocp.args.JsonSave(meta),
            ),
            metrics=metrics or None,
        )

    def wait(self) -> None:
        """Waits until the checkpoint that is being saved is safe on disk, its checksums too.

        Raises:
          ValueError: if it could not be written.
        """
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise ValueError(
                f"The checkpoint of step {self._saving} could not be written to {self._folder}:"
                f" {error} The ones before it are whole: {self._sealed_steps()}."
                " Make room or mend the folder, and start again to go on from there."
            ) from error

    def close(self) -> None:
        """Waits for what is being saved and gives everything back."""
        self.wait()
        self._manager.close()

    def _seal(self) -> None:
        """Writes the checksums of the checkpoint that has just been moved into place."""
        if processes.is_main():
            _write_checksums(self._folder / str(self._saving))
            for listed in self._folder.glob("*.sha256.json"):  # of checkpoints not kept
                if not (self._folder / listed.name.split(".")[0]).is_dir():
                    listed.unlink()

    def _sealed_steps(self) -> list[int]:
        names = (path.name.split(".")[0] for path in self._folder.glob("*.sha256.json"))
        return sorted(int(name) for name in names if (self._folder / name).is_dir())

    def newest_good_step(self) -> int | None:
        """The newest step whose checkpoint is whole; moves damaged ones aside, with a warning."""
        step = -1
        if processes.is_main():
            self._set_aside_damaged()
            step = max(self._sealed_steps(), default=-1)
        if jax.process_count() > 1:
            step = int(multihost_utils.broadcast_one_to_all(np.int32(step)))
        self._manager.reload()
        return None if step < 0 else step

    def best_step(self, metric: str) -> int | None:
        """The step with the best value of a metric among the checkpoints; None without metrics."""
        values = {}
        for step in self._sealed_steps():
            if metrics := self._manager.metrics(step):
                values[step] = metrics[metric] * (1 if "loss" in metric else -1)
        return min(values, key=values.__getitem__) if values else None

    def _set_aside_damaged(self) -> None:
        for folder in self._folder.iterdir():
            if not (folder.is_dir() and folder.name.isdecimal()):
                continue
            if not _checksum_file(folder).is_file():
                logging.warning("Checkpoint %s was not finished and is removed.", folder.name)
                shutil.rmtree(folder)
            elif damage := find_damage(folder):
                aside = _free_name(self._folder / f"damaged-{folder.name}")
                folder.rename(aside)
                _checksum_file(folder).unlink()
                logging.warning(
                    "Checkpoint %s is damaged (%s): moved to %s; the one before it is used.",
                    folder.name,
                    damage,
                    aside,
                )

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
        state = like.replace(params=restored["params"], **restored["train_state"])
        return state, restored["meta"]

    def restore_params(self, step: int, like: Any) -> Any:
        """Reads the parameters alone, straight into the shardings of `like`.

        Raises:
          ValueError: if they have other names, shapes or dtypes than `like`.
        """
        self._check_same(step, "params", like)
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
        lines = diff_of_trees(_described(getattr(saved, "tree", saved)), _described(like))
        if lines:
            raise ValueError(
                f"Checkpoint {step} in {self._folder} does not fit the configuration"
                " (- in the checkpoint, + by the configuration): " + "; ".join(lines)
            )


def _without_params(state: TrainState) -> dict[str, Any]:
    return {
        "step": state.step,
        "opt_state": state.opt_state,
        "nonfinite_streak": state.nonfinite_streak,
    }


def _described(tree: Any) -> dict[str, str]:
    """path -> "float32[2, 3]" of each leaf."""
    leaves = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: hasattr(x, "shape"))[0]
    names = (
        "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
        for path, _ in leaves
    )
    return {
        name: f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
        for name, (_, leaf) in zip(names, leaves, strict=True)
    }


def diff_of_trees(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Lines `- name: what` and `+ name: what` of all that is not the same in both, sorted."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            lines += [f"- {name}: {old[name]}"] if name in old else []
            lines += [f"+ {name}: {new[name]}"] if name in new else []
    return lines


def _checksum_file(folder: pathlib.Path) -> pathlib.Path:
    return folder.with_name(folder.name + ".sha256.json")


def _checksums(folder: pathlib.Path) -> dict[str, str]:
    sums = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        sums[str(path.relative_to(folder))] = digest
    return sums


def _write_checksums(folder: pathlib.Path) -> None:
    path = _checksum_file(folder)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(_checksums(folder), indent=1, sort_keys=True) + "\n")
    temporary.replace(path)


def find_damage(folder: pathlib.Path) -> str:
    """What is wrong with a checkpoint's files, in a few words; empty if nothing is."""
    try:
        expected = json.loads(_checksum_file(folder).read_text())
    except (ValueError, OSError):
        return "its list of checksums cannot be read"
    found = _checksums(folder)
    for name, digest in expected.items():
        if name not in found:
            return f"{name} is missing"
        if found[name] != digest:
            return f"{name} has another checksum"
    return ""


def _free_name(path: pathlib.Path) -> pathlib.Path:
    taken = sum(1 for _ in path.parent.glob(path.name + "*"))
    return path.with_name(f"{path.name}-{taken}") if taken else path
