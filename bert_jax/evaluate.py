"""Losses and accuracies on the held-out split: the same questions at every evaluation."""

import contextlib
import itertools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax import health, metrics, processes, progress, sharding
from bert_jax.checkpointing import Checkpoints
from bert_jax.config import Phase
from bert_jax.data.loader import evaluation_batches
from bert_jax.experiment import Experiment, open_experiment
from bert_jax.state import abstract_params
from bert_jax.step import make_eval_step

SPLIT = "validation"


def make_evaluator(experiment: Experiment, phase: Phase) -> Callable[[Any], dict[str, float]]:
    """Returns the function params -> metrics, compiled once.

    It goes once through the held-out rows, in their order, with the masks that each batch always
    has; rows that fill up the last batch count nothing. `loss` is the sum of the loss terms, each
    the mean over the whole split.
    """
    config, mesh = experiment.config, experiment.mesh
    task = experiment.task(phase)
    batch_size = config.eval.batch_size or config.microbatch_size or phase.batch_size
    rows = experiment.manifest.rows(SPLIT, phase.sequence_length)
    start, stop = sharding.local_rows(mesh, batch_size)
    step = jax.jit(
        make_eval_step(task, experiment.key("eval_masking")),
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


def evaluate(config: ConfigDict, workdir: str) -> dict[str, float]:
    """Evaluates the newest checkpoint of a run and prints and writes `results.json`.

    Returns:
      The metrics.

    Raises:
      ValueError: if there is no checkpoint, or it does not fit.
    """
    with contextlib.closing(Checkpoints(workdir, read_only=True)) as checkpoints:
        if (step := checkpoints.newest_good_step()) is None:
            raise ValueError(f"{workdir} has no checkpoint yet: train first, with --mode=train.")
        experiment = open_experiment(config, workdir)
        phase = experiment.phase_at(step - 1)
        like = abstract_params(experiment.task(phase), experiment.mesh)
        params = checkpoints.restore_params(step, like)

    values = make_evaluator(experiment, phase)(params)
    report = health.verdict(values, experiment.manifest, phase)
    if processes.is_main():
        print(f"{progress.describe_devices(experiment.mesh)}; checkpoint of step {step}")
        print("held-out  " + "  ".join(progress.named_values(values)))
        print("\n".join(report))
        result = {
            "eval": values,
            "step": step,
            "examples": experiment.manifest.num_rows(SPLIT, phase.sequence_length),
            "sequence_length": phase.sequence_length,
            "data": experiment.manifest.fingerprint,
            "seed": config.seed,
        }
        path = pathlib.Path(workdir, "results.json")
        path.write_text(json.dumps(result, indent=2) + "\n")
    return values
