"""What training, evaluation and prediction set up alike: devices, data, phases, tasks."""

import abc
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.config import settings as config_lib
from bert_jax.config.phases import Phase, duration_steps, make_phases
from bert_jax.devices import sharding
from bert_jax.models.config import BertConfig
from bert_jax.tasks import Task
from bert_jax.text.tokenization import Tokenizer, load_tokenizer
from bert_jax.training.feed import Feed
from bert_jax.training.optim import OptimizerConfig, make_optimizer
from bert_jax.training.progress import training_flops_per_token
from bert_jax.training.state import make_key

# From parameters to the metrics of the split that is held out.
Evaluator = Callable[[Any], dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Experiment(abc.ABC):
    """A run's settings made concrete on the devices and the data that are here.

    Attributes:
      config: as configs/base.py describes it.
      workdir: folder of the run.
      mesh: all devices.
      tokenizer: that made the data.
      phases: with the steps of the whole run shared out.
    """

    config: ConfigDict
    workdir: str
    mesh: Mesh
    tokenizer: Tokenizer
    phases: tuple[Phase, ...]

    @property
    def steps(self) -> int:
        """Updates of the whole run."""
        return self.phases[-1].last_step

    def steps_of(self, name: str, phase: Phase) -> int:
        """A duration of the configuration in updates."""
        return duration_steps(
            config_lib.value_of(self.config, name), name, phase, self.rows_of(phase), self.steps
        )

    def phase_at(self, step: int) -> Phase:
        """The phase that update number `step` (from 0) belongs to; past the end, the last."""
        return next((p for p in self.phases if step < p.last_step), self.phases[-1])

    def key(self, purpose: str) -> jax.Array:
        """The random key for one purpose (state.PURPOSES)."""
        return make_key(self.config.seed, purpose)

    def optimizer(self) -> tuple[optax.GradientTransformation, optax.Schedule]:
        """The optimizer over the whole run, and its learning rate by step."""
        warmup_steps = self.steps_of("optimizer.warmup", self.phases[0])
        return make_optimizer(optimizer_config(self.config), self.steps, warmup_steps)

    def save_to_workdir(self) -> None:
        """Copies there what predictions need beside the parameters."""
        config_lib.save(self.config, self.workdir)
        name = os.path.basename(self.vocabulary_path)
        name = "vocab" + os.path.splitext(name)[1]
        copy = os.path.join(self.workdir, name)
        if not (os.path.exists(copy) and os.path.samefile(copy, self.vocabulary_path)):
            shutil.copy(self.vocabulary_path, copy)

    def flops_per_token(self, phase: Phase, sequence_length: int) -> float:
        """FLOPs of an update by token slot, for rows of this length."""
        return training_flops_per_token(
            make_model_config(self.config), sequence_length, self.predicted_share(phase)
        )

    @property
    @abc.abstractmethod
    def data_fingerprint(self) -> str:
        """Equal for equal data."""

    @property
    @abc.abstractmethod
    def vocabulary_path(self) -> str:
        """The file that the tokenizer is made of."""

    @abc.abstractmethod
    def rows_of(self, phase: Phase) -> int:
        """Training rows of an epoch."""

    @abc.abstractmethod
    def predicted_share(self, phase: Phase) -> float:
        """Share of the token slots that meet the vocabulary."""

    @abc.abstractmethod
    def task(self, phase: Phase) -> Task:
        """The task at the sequence length of a phase."""

    @abc.abstractmethod
    def feed(self, phase: Phase) -> Feed:
        """The training batches of a phase."""

    @abc.abstractmethod
    def evaluator(self, phase: Phase) -> Evaluator | None:
        """What evaluates parameters, compiled once; None where nothing is held out."""

    @abc.abstractmethod
    def verdict(self, values: dict[str, float], phase: Phase) -> list[str]:
        """Lines that say what an evaluation is worth."""

    @abc.abstractmethod
    def describe_data(self) -> list[str]:
        """Lines of the banner about the data and the phases."""

    @abc.abstractmethod
    def describe_evaluation(self, phase: Phase) -> dict[str, Any]:
        """What an evaluation was computed on, for results.json."""


def make_model_config(config: ConfigDict) -> BertConfig:
    """Sizes and numerics of the model."""
    return BertConfig(**config.model.to_dict(), dtype=config.dtype, prng_impl=config.prng_impl)


def optimizer_config(config: ConfigDict) -> OptimizerConfig:
    """Settings of the optimizer.

    Raises:
      ValueError: for an optimizer or a schedule that does not exist.
    """
    values = config.optimizer.to_dict()
    del values["warmup"]
    return OptimizerConfig(**values)


def make_checked_mesh(config: ConfigDict) -> Mesh:
    """The mesh of all devices, on which every batch of the run can be split evenly.

    Raises:
      ValueError: if one cannot.
    """
    mesh = sharding.make_mesh(**config.mesh.to_dict())
    for phase in make_phases(config, steps=0):
        name = "microbatch_size" if config.microbatch_size else "global_batch_size"
        size = config.microbatch_size or phase.batch_size
        sharding.check_batch_size(mesh, name, size)
    if config.eval.batch_size:
        sharding.check_batch_size(mesh, "eval.batch_size", config.eval.batch_size)
    return mesh


def load_workdir_tokenizer(workdir: str, lowercase: bool) -> Tokenizer:
    """The tokenizer of a run, from the copy of the vocabulary in its folder.

    Raises:
      ValueError: if there is none.
    """
    for path in sorted(pathlib.Path(workdir).glob("vocab.*")):
        return load_tokenizer(path, lowercase)
    raise ValueError(f"{workdir} holds no vocabulary (vocab.txt or vocab.model): train first.")
