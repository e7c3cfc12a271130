"""Runs that are stopped in this process, and what runs leave, to be compared bit for bit."""

import json
import os
import pathlib
import signal
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.config.run import RunConfig
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.listener import Listener, Listeners
from bert_jax.training.metrics import read_metrics
from bert_jax.training.train import TrainResult, train

Workdir = str | pathlib.Path


class StopAfter(Listener):
    """Sends this process a signal while it makes the step that leads to one of `steps`."""

    def __init__(self, *steps: int, number: signal.Signals = signal.SIGTERM):
        self.steps, self.number = steps, number

    def progress(self, step: int, steps: int) -> None:
        if step in self.steps:
            os.kill(os.getpid(), self.number)


def train_until(step: int, config: RunConfig, workdir: Workdir, *listeners: Listener) -> None:
    """Trains and is stopped after a step."""
    result = train(config, str(workdir), listener=Listeners(StopAfter(step), *listeners))
    assert (int(result.state.step), not result.stopped_by) == (step, False)


def train_in_parts(
    config: RunConfig, workdir: Workdir, *stops: int, listener: Listener | None = None
) -> TrainResult:
    """Trains to the end, stopped after each of these steps."""
    listener = listener or Listener()
    for step in stops:
        train_until(step, config, workdir, listener)
    result = train(config, str(workdir), listener=listener)
    assert not result.stopped_by
    return result


def metrics_of(workdir: Workdir) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl without what depends on the clock."""
    rows = read_metrics(str(workdir))
    return [{name: value for name, value in row.items() if name != "speed"} for row in rows]


def newest_step(workdir: Workdir) -> int | None:
    return Checkpoints(str(workdir), read_only=True).newest_good_step()


def arrays_of(checkpoint: Workdir) -> dict[str, np.ndarray]:
    """Returns everything in the folder of a checkpoint by path: parameters, optimizer, counters."""
    arrays = {}
    for item in ("params", "train_state"):
        folder = pathlib.Path(checkpoint, item)
        handler = ocp.PyTreeCheckpointer()
        metadata = handler.metadata(folder).item_metadata.tree
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), metadata)
        tree = handler.restore(folder, args=ocp.args.PyTreeRestore(restore_args=as_numpy))
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            arrays[item + jax.tree_util.keystr(path)] = np.asarray(leaf)
    return arrays


def totals_of(checkpoint: Workdir) -> dict[str, Any]:
    """Returns the sums since the last report, as a checkpoint keeps them."""
    return json.loads(pathlib.Path(checkpoint, "meta", "metadata").read_text())["totals"]


def assert_same_arrays(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert arrays.keys() == expected.keys()
    for path, array in expected.items():
        assert arrays[path].dtype == array.dtype, path
        assert arrays[path].tobytes() == array.tobytes(), path


def assert_same_state(workdir: Workdir, other: Workdir, step: int) -> None:
    """Arrays and totals of the checkpoints of a step are the same, bit for bit."""
    folders = [pathlib.Path(folder, "checkpoints", str(step)) for folder in (workdir, other)]
    assert_same_arrays(*map(arrays_of, folders))
    assert totals_of(folders[0]) == totals_of(folders[1])


def assert_same_run(workdir: Workdir, other: Workdir) -> None:
    """Metrics and newest checkpoints are the same, bit for bit."""
    assert metrics_of(workdir) == metrics_of(other)
    step = newest_step(workdir)
    assert step == newest_step(other)
    assert_same_state(workdir, other, step or 0)
