"""TensorBoard events in workdir/tensorboard, written without TensorFlow."""

import os
import pathlib
import sys
from collections.abc import Mapping

import numpy as np

from bert_jax.files.buckets import publish
from bert_jax.training.listener import Listener
from bert_jax.training.run import Run
from bert_jax.training.state import TrainState


class TensorBoard(Listener):
    """Writes each metric as the scalar `train/NAME` or `validation/NAME`."""

    def __init__(self):
        self._events = None

    def started(self, run: Run, state: TrainState) -> None:
        """Opens the files; events of later steps, from before a resumption, are hidden."""
        self._folder = pathlib.Path(run.workdir, "tensorboard")
        self._events = _summary_writer()(
            str(self._folder),
            purge_step=int(state.step) + 1,
            filename_suffix=f".{os.getpid()}",  # two starts within a second are two files
        )

    def metrics(
        self, step: int, split: str, values: Mapping[str, float], speed: Mapping[str, float]
    ) -> None:
        if self._events is not None:
            for name, value in {**values, **speed}.items():
                self._events.add_scalar(f"{split}/{name}", np.float32(value), step)
            self._events.flush()

    def saving(self, step: int) -> None:
        publish(self._folder)

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None
            publish(self._folder)


def _summary_writer():
    """Imports SummaryWriter without torch.

    tensorboardX imports torch if it can, which takes longer than all other imports together.
    """
    if is_unloaded := "torch" not in sys.modules:
        sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]
    from tensorboardX import SummaryWriter

    if is_unloaded:
        del sys.modules["torch"]
    return SummaryWriter
