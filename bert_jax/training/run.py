"""A run: a configuration with its mesh, data, tokenizer and task."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import optax
from jax.sharding import Mesh

from bert_jax.config.phases import Pace, Phase, duration_steps, points
from bert_jax.config.run import RunConfig
from bert_jax.data.batch import Batch, Rows
from bert_jax.devices import sharding
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.models import MODELS, make_add_fields
from bert_jax.models.model import AddFields, EncoderConfig
from bert_jax.optim.make import make_optimizer
from bert_jax.tasks.auxiliary import LossFunction, add_losses
from bert_jax.tasks.distillation import Teacher
from bert_jax.tasks.task import Task, Taught, make_phase_task
from bert_jax.text.tokenization import Tokenizer
from bert_jax.training.state import abstract_params, make_key

# The task that `causal_share` of the steps train.
NEXT_TOKENS = "causal_lm"


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that training and evaluation need; the same on every process.

    Attributes:
      config: the run's configuration.
      workdir: folder of the run.
      mesh: all devices.
      tokenizer: the tokenizer that made the data.
      vocabulary_path: file or folder of the tokenizer.
      phases: the phases with their steps.
      task: the run's task, with its labels; `task_at` binds it to the encoder.
      training: rows to train on, for each phase; empty in a run that is evaluated only.
      evaluation: rows to evaluate on, for each phase; there may be none.
      fingerprint: equal for equal data.
      losses: further losses by name, see `tasks.auxiliary`.
      teacher: what the model is distilled from; None: it has no teacher, or is evaluated only.
    """

    config: RunConfig
    workdir: str
    mesh: Mesh
    tokenizer: Tokenizer
    vocabulary_path: str
    phases: tuple[Phase, ...]
    task: Task
    training: tuple[Rows, ...]
    evaluation: tuple[tuple[Rows, ...], ...]
    fingerprint: str
    losses: Mapping[str, LossFunction] = dataclasses.field(default_factory=dict)
    teacher: Teacher | None = None

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.phases[-1].last_step

    @functools.cached_property
    def model(self) -> EncoderConfig:
        """Sizes and numerics of the encoder."""
        return self.config.model

    @functools.cached_property
    def add_fields(self) -> AddFields:
        """Completes a batch on the host with the fields that only this encoder reads.

        Raises:
          UserError: the tokenizer does not fit the encoder.
        """
        return make_add_fields(self.model, self.tokenizer)

    def phase_at(self, step: int) -> Phase:
        """Returns the phase of step number `step` (from 0); past the end, the last."""
        return next((p for p in self.phases if step < p.last_step), self.phases[-1])

    def kinds_of_steps(self, phase: Phase) -> dict[Phase, float]:
        """Returns what the phase's steps train -> the share of such steps.

        With `causal_share`, that share trains the same phase with next-token prediction.
        """
        share = self.config.get("causal_share", 0.0)
        if not share or phase.task:
            return {phase: 1.0}
        return {phase: 1 - share, dataclasses.replace(phase, task=NEXT_TOKENS): share}

    def kind_of_step(self, phase: Phase, step: int) -> Phase:
        """Returns which of `kinds_of_steps` step number `step` (from 0) trains."""
        *_, share = (kinds := self.kinds_of_steps(phase)).values()
        return [*kinds][-1 if math.floor((step + 1) * share) > math.floor(step * share) else 0]

    def task_at(self, phase: Phase, evaluate: bool = False) -> Task:
        """Returns the task for the encoder in a phase, as it is trained or evaluated.

        `losses` are added to the run's own task.
        """
        return self._tasks(phase, evaluate)

    @functools.cached_property
    def _tasks(self) -> Callable[[Phase, bool], Task]:
        @functools.cache
        def make(phase: Phase, evaluate: bool) -> Task:
            if phase.task and not evaluate:
                return make_phase_task(self.config, phase.task)
            task = self.task.bind(self.model, self.tokenizer, phase, evaluate)
            task = add_losses(task, self.losses) if self.losses else task
            if self.teacher is None or evaluate:
                return task
            taught = Taught(self.teacher.task, self.config.distillation)
            return dataclasses.replace(task, taught=taught)

        return make

    @functools.cached_property
    def constants(self) -> dict[str, Any]:
        """Collections of the model, on the devices, that training reads and does not change."""
        if self.teacher is None:
            return {}
        params = self.teacher.params
        where = flatten(self.abstract_constants["teacher"])
        return {"teacher": unflatten({p: sharding.put(params[p], where[p]) for p in where})}

    @property
    def abstract_constants(self) -> dict[str, Any]:
        """Shapes, dtypes and shardings of `constants`; the rules are those of their own models."""
        return {"teacher": abstract_params(self.teacher.task, self.mesh)} if self.teacher else {}

    def training_rows(self, phase: Phase) -> Rows:
        """Returns the rows that a phase trains on."""
        return self.training[self.phases.index(phase)]

    def evaluation_rows(self, phase: Phase) -> tuple[Rows, ...]:
        """Returns the rows that a phase is evaluated on."""
        return self.evaluation[self.phases.index(phase)]

    def padded_rows(self, phase: Phase, rows: int) -> int:
        """Returns the rows of a training batch with padding, which no result depends on.

        With it, all microbatches are equal, and the devices share each of them evenly.

        Args:
          phase: the phase.
          rows: rows of the batch.
        """
        parts = self.config.num_microbatches(phase.batch_size)
        return sharding.padded_rows(self.mesh, rows, parts)

    def put_batch(self, local: Batch, batch_size: int) -> dict[str, jax.Array]:
        """Completes this process's rows of a batch for the encoder; puts them on the devices.

        Args:
          local: rows of this process (`sharding.local_rows`).
          batch_size: rows of the global batch.

        Returns:
          Global arrays [batch_size, ...], sharded over `data` and `fsdp`.
        """
        first_row, _ = sharding.local_rows(self.mesh, batch_size)
        return sharding.shard_batch(self.mesh, self.add_fields(local), batch_size, first_row)

    def steps_of(self, name: str, phase: Phase) -> int:
        """Returns a duration of the configuration in steps."""
        return duration_steps(self.config[name], self._pace(phase), self.steps)

    @functools.cached_property
    def milestones(self) -> dict[int, tuple[str, ...]]:
        """Number of steps done -> those of `config.checkpoint.milestones` that are reached then.

        Raises:
          UserError: one is in words, which are not counted.
        """
        paces = [self._pace(phase) for phase in self.phases]
        return points(self.config.checkpoint.milestones, paces, self.steps)

    def _pace(self, phase: Phase) -> Pace:
        rows = self.training_rows(phase)
        return Pace(phase, rows.rows_per_epoch, rows.words_per_epoch)

    def key(self, purpose: str) -> jax.Array:
        """Returns the random key for one purpose (state.PURPOSES)."""
        return make_key(self.config.seed, purpose)

    def optimizer(self) -> tuple[optax.GradientTransformation, optax.Schedule]:
        """Returns the optimizer over the whole run, and its learning rate by step."""
        warmup_steps = self.steps_of("optimizer.warmup", self.phases[0])
        return make_optimizer(self.config.optimizer, self.steps, warmup_steps)

    def flops_per_token(self, phase: Phase, sequence_length: int) -> float:
        """Returns the FLOPs of a step per position, for rows of this length."""
        return flops_per_token(self.task_at(phase), sequence_length)


def flops_per_token(task: Task, sequence_length: int) -> float:
    """Returns the FLOPs of a training step per position, for rows of this length.

    Counts only large matmuls; the backward pass has twice the FLOPs of the forward pass, and a
    teacher has no backward pass.
    """
    encoder = MODELS[task.model.name].flops_per_token(task.model, sequence_length)
    flops = 3 * (encoder + task.head_flops_per_token())
    if task.taught:
        flops += flops_per_token(task.taught.teacher, sequence_length) / 3
    return flops


def make_checked_mesh(config: RunConfig, devices: Sequence[Any] = ()) -> Mesh:
    """Returns the mesh of all devices, as the configuration arranges them.

    Args:
      config: the run's configuration.
      devices: devices to use instead of all.

    Raises:
      UserError: see `sharding.make_mesh`.
    """
    return sharding.make_mesh(**config.mesh.to_dict(), devices=devices)
