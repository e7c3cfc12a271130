"""What training, evaluation and prediction set up alike: devices, data, phases, tasks."""

import dataclasses
import pathlib

import jax
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import processes, sharding
from bert_jax.config import Phase
from bert_jax.data.manifest import Manifest
from bert_jax.data.tokenization import Tokenizer, load_tokenizer
from bert_jax.masking import MaskingRule
from bert_jax.models.config import BertConfig
from bert_jax.optim import OptimizerConfig, make_optimizer
from bert_jax.prepare import prepare
from bert_jax.state import make_key
from bert_jax.tasks import TASKS, Task


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A run's settings made concrete on the devices and the data that are here.

    Attributes:
      config: as configs/base.py describes it.
      workdir: folder of the run.
      mesh: all devices.
      manifest: the prepared data.
      tokenizer: that made it.
      phases: with the steps of the whole run shared out.
    """

    config: ConfigDict
    workdir: str
    mesh: Mesh
    manifest: Manifest
    tokenizer: Tokenizer
    phases: tuple[Phase, ...]

    @property
    def steps(self) -> int:
        """Updates of the whole run."""
        return self.phases[-1].last_step

    def rows_of(self, phase: Phase) -> int:
        """Training examples of an epoch."""
        return self.manifest.num_rows("train", phase.sequence_length)

    def steps_of(self, name: str, phase: Phase) -> int:
        """A duration of the configuration in updates."""
        return config_lib.duration_steps(self.config, name, phase, self.rows_of(phase), self.steps)

    def phase_at(self, step: int) -> Phase:
        """The phase that update number `step` (from 0) belongs to; past the end, the last."""
        return next((p for p in self.phases if step < p.last_step), self.phases[-1])

    def key(self, purpose: str) -> jax.Array:
        """The random key for one purpose (state.PURPOSES)."""
        return make_key(self.config.seed, purpose)

    def task(self, phase: Phase) -> Task:
        """The task at the sequence length of a phase."""
        rule = None
        if self.config.data.mode == "dynamic":
            rule = MaskingRule(
                masked_lm_prob=self.config.data.masked_lm_prob,
                max_predictions=phase.max_predictions_per_seq,
                masking=self.config.data.masking,
                vocab_size=len(self.tokenizer.pieces),
                mask_id=self.tokenizer.mask_id,
                never_masked=(self.tokenizer.cls_id, self.tokenizer.sep_id),
                is_continuation=tuple(self.tokenizer.is_continuation.tolist()),
                rounding=self.config.data.mask_rounding,
            )
        return TASKS[self.config.task](
            model=make_model_config(self.config),
            rule=rule,
            sequence_length=phase.sequence_length,
            max_predictions_per_seq=phase.max_predictions_per_seq,
        )

    def optimizer(self) -> tuple[optax.GradientTransformation, optax.Schedule]:
        """The optimizer over the whole run, and its learning rate by step."""
        warmup_steps = self.steps_of("optimizer.warmup", self.phases[0])
        return make_optimizer(_optimizer_config(self.config), self.steps, warmup_steps)


def make_model_config(config: ConfigDict) -> BertConfig:
    """Sizes and numerics of the model."""
    return BertConfig(**config.model.to_dict(), dtype=config.dtype, prng_impl=config.prng_impl)


def _optimizer_config(config: ConfigDict) -> OptimizerConfig:
    values = config.optimizer.to_dict()
    del values["warmup"]
    return OptimizerConfig(**values)


def load_workdir_tokenizer(workdir: str, lowercase: bool) -> Tokenizer:
    """The tokenizer of a run, from the copy of the vocabulary in its folder.

    Raises:
      ValueError: if there is none.
    """
    for path in sorted(pathlib.Path(workdir).glob("vocab.*")):
        return load_tokenizer(path, lowercase)
    raise ValueError(f"{workdir} holds no vocabulary (vocab.txt or vocab.model): train first.")


def open_experiment(config: ConfigDict, workdir: str) -> Experiment:
    """Prepares what is missing and puts everything together. All processes call it.

    Raises:
      ValueError: for a mesh, a batch size, a task, an optimizer or data that cannot be used.
    """
    if config.task not in TASKS:
        raise ValueError(f"Unknown task {config.task!r}. Available: {', '.join(sorted(TASKS))}.")
    make_optimizer(_optimizer_config(config), num_steps=1, warmup_steps=0)  # before long work
    mesh = sharding.make_mesh(**config.mesh.to_dict())
    for phase in config_lib.make_phases(config, steps=0):
        name = "microbatch_size" if config.microbatch_size else "global_batch_size"
        size = config.microbatch_size or phase.batch_size
        sharding.check_batch_size(mesh, name, size)
    if config.eval.batch_size:
        sharding.check_batch_size(mesh, "eval.batch_size", config.eval.batch_size)

    folder = config_lib.data_dir(config, workdir)
    if processes.is_main():
        pathlib.Path(workdir).mkdir(parents=True, exist_ok=True)
        prepare(config_lib.data_config(config), folder, config.data.num_processes).verify()
    processes.barrier("data")
    manifest = Manifest.load(folder)

    lengths = [p.sequence_length for p in config_lib.make_phases(config, steps=0)]
    rows = tuple(manifest.num_rows("train", length) for length in lengths)
    return Experiment(
        config=config,
        workdir=workdir,
        mesh=mesh,
        manifest=manifest,
        tokenizer=manifest.tokenizer(),
        phases=config_lib.make_phases(config, config_lib.total_steps(config, rows)),
    )
