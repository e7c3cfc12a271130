"""Distillation: a model, the student, also learns from the predictions of a teacher.

The minimized loss is (1 - weight) x the loss on the labels + weight x the divergence from the
teacher's predictions (Hinton et al. 2015, arXiv 1503.02531).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import numpy as np

from bert_jax.tasks.losses import Sum, Sums, metric
from bert_jax.tasks.task import Batch, Task


@dataclasses.dataclass(frozen=True, eq=False)
class Teacher:
    """A trained model that a run's model learns from; it has no optimizer and no checkpoints.

    Attributes:
      task: its task.
      params: its parameters by path, float32 on the host.
      sha256: checksum of their names, shapes and values.
    """

    task: Task
    params: Mapping[str, np.ndarray]
    sha256: str


@flax.struct.dataclass
class BothOutputs:
    """The outputs of both models for a batch; those of the teacher have no gradient.

    Attributes:
      student: outputs of the run's model.
      teacher: outputs of the teacher's model.
    """

    student: Any
    teacher: Any


def apply_both(task: Task, student: Any, params: Mapping[str, Any], batch: Batch) -> BothOutputs:
    """Returns the outputs of the student with those of the teacher, computed without dropout.

    Args:
      task: the run's task.
      student: the outputs of its model.
      params: parameters of the teacher.
      batch: the input of the student's model.
    """
    assert task.taught is not None
    model = task.taught.teacher.make_model()
    outputs = model.apply({"params": params}, batch, deterministic=True)
    return BothOutputs(student, jax.lax.stop_gradient(outputs))


def training_losses(task: Task, outputs: Any, batch: Batch) -> Sums:
    """Returns the losses and metrics of a task, and with a teacher those of the distillation.

    With a teacher, each loss NAME_loss of predictions becomes a metric, beside NAME_distilled_loss,
    the divergence from the teacher. The minimized losses have the prefix "weighted_".
    """
    if task.taught is None:
        return task.all_losses(outputs, batch)
    config = task.taught.config
    sums = task.all_losses(outputs.student, batch)
    both = outputs.student, outputs.teacher
    for name, distilled in task.distilled_losses(*both, batch, config.temperature).items():
        sums |= _weighted(name, 1 - config.weight, sums[name])
        sums |= _weighted(f"{name.removesuffix('_loss')}_distilled_loss", config.weight, distilled)
    return sums


def _weighted(name: str, weight: float, loss: Sum) -> Sums:
    """Returns a loss as a metric and, under another name, with its weight; 0: the metric alone."""
    sums = {name: metric(loss.numerator, loss.denominator)}
    if weight:
        sums[f"weighted_{name}"] = Sum(weight * loss.numerator, loss.denominator)
    return sums
