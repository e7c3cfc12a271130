"""Pre-training as an experiment: its data, its task, how it is evaluated."""

import dataclasses
import itertools
import pathlib
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax.commands.prepare import prepare
from bert_jax.config import settings as config_lib
from bert_jax.config.phases import Phase, make_phases, total_steps
from bert_jax.corpus.loader import Loader, evaluation_batches
from bert_jax.corpus.manifest import Manifest
from bert_jax.devices import processes, sharding
from bert_jax.tasks import Pretraining
from bert_jax.tasks.masking import MaskingRule
from bert_jax.training import health, metrics
from bert_jax.training.experiment import (
    Evaluator,
    Experiment,
    make_checked_mesh,
    make_model_config,
    optimizer_config,
)
from bert_jax.training.feed import Feed
from bert_jax.training.step import make_eval_step

SPLIT = "validation"


@dataclasses.dataclass(frozen=True)
class PretrainingExperiment(Experiment):
    """Masked words and next sentences of prepared text.

    Attributes:
      manifest: the prepared data.
    """

    manifest: Manifest

    @property
    def data_fingerprint(self) -> str:
        return self.manifest.fingerprint

    @property
    def vocabulary_path(self) -> str:
        return self.manifest.vocabulary_path

    def rows_of(self, phase: Phase) -> int:
        return self.manifest.num_rows("train", phase.sequence_length)

    def predicted_share(self, phase: Phase) -> float:
        return phase.max_predictions_per_seq / phase.sequence_length

    def task(self, phase: Phase) -> Pretraining:
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
        return Pretraining(
            model=make_model_config(self.config),
            rule=rule,
            sequence_length=phase.sequence_length,
            max_predictions_per_seq=phase.max_predictions_per_seq,
        )

    def feed(self, phase: Phase) -> Feed:
        rows = self.manifest.rows("train", phase.sequence_length)
        return Feed(self.mesh, phase, Loader(rows, phase.batch_size, self.config.seed).batch)

    def evaluator(self, phase: Phase) -> Evaluator | None:
        """It goes once through the held-out rows, in their order, always with the same masks.

        Rows that fill up the last batch count nothing. `loss` is the sum of the loss terms, each
        the mean over the whole split.
        """
        if SPLIT not in self.manifest.splits:
            return None
        config, mesh, task = self.config, self.mesh, self.task(phase)
        batch_size = config.eval.batch_size or config.microbatch_size or phase.batch_size
        rows = self.manifest.rows(SPLIT, phase.sequence_length)
        start, stop = sharding.local_rows(mesh, batch_size)
        step = jax.jit(
            make_eval_step(task, self.key("eval_masking")),
            out_shardings=sharding.replicated(mesh),
        )

        def evaluate_params(params: Any) -> dict[str, float]:
            totals = metrics.Totals()
            batches = evaluation_batches(rows, batch_size, start, stop)
            for number, local in enumerate(itertools.islice(batches, config.eval.batches or None)):
                batch = sharding.shard_batch(mesh, local, batch_size, start)
                totals.add(jax.device_get(step(params, batch, number)))
            return metrics.with_loss(totals.means(), task.loss_terms)

        return evaluate_params

    def verdict(self, values: dict[str, float], phase: Phase) -> list[str]:
        return health.verdict(values, self.manifest, phase)

    def describe_data(self) -> list[str]:
        lines = []
        for phase in self.phases:
            rows = self.rows_of(phase)
            updates = phase.last_step - phase.first_step
            lines.append(
                f"phase      steps {phase.first_step}-{phase.last_step}: {phase.batch_size} x"
                f" {phase.sequence_length} tokens a step, {phase.max_predictions_per_seq}"
                f" predictions a sequence; {rows:,} sequences,"
                f" {updates * phase.batch_size / rows:.1f} epochs"
            )
        return [
            *lines,
            f"data       {self.config.data.source} in {self.manifest.folder},"
            f" fingerprint {self.manifest.fingerprint[:12]}, {len(self.tokenizer.pieces):,} tokens"
            " in the vocabulary",
        ]

    def describe_evaluation(self, phase: Phase) -> dict[str, Any]:
        return {
            "examples": self.manifest.num_rows(SPLIT, phase.sequence_length),
            "sequence_length": phase.sequence_length,
            "data": self.manifest.fingerprint,
        }


def open_pretraining(
    config: ConfigDict, workdir: str, to_train: bool = True
) -> PretrainingExperiment:
    """Prepares the data that is missing and puts everything together. All processes call it.

    Raises:
      ValueError: for a mesh, a batch size, an optimizer or data that cannot be used.
    """
    del to_train  # the statistics of the training text are the yardstick of an evaluation too
    optimizer_config(config)  # its mistakes come before long work
    mesh = make_checked_mesh(config)
    folder = config_lib.data_dir(config, workdir)
    if processes.is_main():
        pathlib.Path(workdir).mkdir(parents=True, exist_ok=True)
        prepare(config_lib.data_config(config), folder, config.data.num_processes).verify()
    processes.barrier("data")
    manifest = Manifest.load(folder)

    lengths = [p.sequence_length for p in make_phases(config, steps=0)]
    rows = tuple(manifest.num_rows("train", length) for length in lengths)
    return PretrainingExperiment(
        config=config,
        workdir=workdir,
        mesh=mesh,
        tokenizer=manifest.tokenizer(),
        phases=make_phases(config, total_steps(config, rows)),
        manifest=manifest,
    )
