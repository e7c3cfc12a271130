"""Distillation: a task whose student also learns from the predictions of a teacher.

What is minimized is (1 - weight) x the loss of the labels + weight x the divergence from the
teacher's predictions (Hinton et al. 2015, arXiv 1503.02531).

Tasks do not know a teacher: `Distilled` has the task of the student and that of the teacher, whose
parameters are the collection "teacher" of its model. They get no gradient.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import numpy as np

from bert_jax.config.group import derived
from bert_jax.config.groups import DistillationConfig
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
class DistilledOutputs:
    """The outputs of both models for a batch; those of the teacher have no gradient.

    Attributes:
      student: outputs of the student's model.
      teacher: outputs of the teacher's.
    """

    student: Any
    teacher: Any


@dataclasses.dataclass(frozen=True)
class Distilled(Task):
    """The task of a student with a teacher; answers, masks and names are those of `task`.

    Attributes:
      task: the student's task.
      teacher: the teacher's, of the same kind.
      config: weight and temperature.
    """

    task: Task = derived(None)
    teacher: Task = derived(None)
    config: DistillationConfig = derived(DistillationConfig())

    def make_model(self) -> Any:
        """Returns the model, which has the methods `init` and `apply` of a linen module."""
        return DistilledModel(self)

    def example_batch(self) -> dict[str, jax.Array]:
        return self.task.example_batch()

    def transform(self, key, batch, progress=0.0):
        return self.task.transform(key, batch, progress)

    def losses(self, outputs: DistilledOutputs, batch: Batch) -> Sums:
        """Returns the losses and metrics of `task`, and those of the distillation.

        Each loss NAME_loss of predictions becomes a metric, beside NAME_distilled_loss, the
        divergence from the teacher. What is minimized has "weighted_" in front.
        """
        sums, weight = self.task.all_losses(outputs.student, batch), self.config.weight
        both = outputs.student, outputs.teacher
        found = self.task.distilled_losses(*both, batch, self.config.temperature)
        for name, distilled in found.items():
            sums |= _weighted(name, 1 - weight, sums[name])
            sums |= _weighted(f"{name.removesuffix('_loss')}_distilled_loss", weight, distilled)
        return sums

    def answers(self, outputs: DistilledOutputs, batch: Batch) -> dict[str, jax.Array]:
        return self.task.answers(outputs.student, batch)

    def head_flops_per_token(self) -> float:
        return self.task.head_flops_per_token()


def _weighted(name: str, weight: float, loss: Sum) -> Sums:
    """Returns a loss as a metric and, under another name, with its weight; 0: the metric alone."""
    sums = {name: metric(loss.numerator, loss.denominator)}
    if weight:
        sums[f"weighted_{name}"] = Sum(weight * loss.numerator, loss.denominator)
    return sums


@dataclasses.dataclass(frozen=True)
class DistilledModel:
    """Student and teacher as one model, with the methods of a linen module that training calls.

    Attributes:
      task: decides the models.
    """

    task: Distilled

    def init(self, key: jax.Array, batch: Batch, *, deterministic: bool = True) -> Any:
        """Returns {"params": ...} of the student."""
        return self.task.task.make_model().init(key, batch, deterministic=deterministic)

    def apply(
        self,
        variables: Mapping[str, Any],
        batch: Batch,
        *,
        deterministic: bool = True,
        rngs: Mapping[str, jax.Array] | None = None,
    ) -> DistilledOutputs:
        """Applies both models to a batch, the teacher without dropout.

        Args:
          variables: "params" of the student and "teacher", the parameters of the teacher.
          batch: what the student's model takes.
          deterministic: no dropout in the student; otherwise `rngs` has a key "dropout".
          rngs: see `deterministic`.
        """
        student, teacher = self.task.task.make_model(), self.task.teacher.make_model()
        options = {"deterministic": deterministic, "rngs": rngs}
        outputs = student.apply({"params": variables["params"]}, batch, **options)
        targets = teacher.apply({"params": variables["teacher"]}, batch, deterministic=True)
        return DistilledOutputs(outputs, jax.lax.stop_gradient(targets))
