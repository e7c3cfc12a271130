"""Scores of a run on the split that was held out."""

import os

from ml_collections import ConfigDict

from bert_jax.devices import processes
from bert_jax.files.atomic import write_json
from bert_jax.inference.model import check_has_masked_lm
from bert_jax.training import progress
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.experiment import Experiment
from bert_jax.training.experiments import open_experiment
from bert_jax.training.state import abstract_params


def evaluate(config: ConfigDict, workdir: str) -> dict[str, float]:
    """Evaluates a run's newest checkpoint, or its best one, and prints and writes `results.json`.

    Returns:
      The metrics.

    Raises:
      ValueError: if there is no checkpoint, or it does not fit, or nothing is held out; or the
        weights were imported without a masked-LM head.
    """
    if config.task == "pretraining":
        check_has_masked_lm(config, workdir)
    with open_chosen(workdir, config.checkpoint) as (checkpoints, step):
        experiment = open_experiment(config, workdir, to_train=False)
        phase = experiment.phase_at(step - 1)
        like = abstract_params(experiment.task(phase), experiment.mesh)
        params = checkpoints.restore_params(step, like)

    evaluator = experiment.evaluator(phase)
    if evaluator is None:
        raise ValueError(f"Nothing is held out for {workdir}: there is nothing to evaluate on.")
    values = evaluator(params)
    if processes.is_main():
        print(f"{progress.describe_devices(experiment.mesh)}; checkpoint of step {step}")
        print("held-out  " + "  ".join(progress.named_values(values)))
        print("\n".join(experiment.verdict(values, phase)))
        write_results(experiment, step, values)
    return values


def write_results(experiment: Experiment, step: int, values: dict[str, float]) -> None:
    """Writes results.json: the scores of a checkpoint, and what they were computed on."""
    results = {
        "eval": values,
        "step": step,
        "seed": experiment.config.seed,
        **experiment.describe_evaluation(experiment.phase_at(step - 1)),
    }
    path = os.path.join(experiment.workdir, "results.json")
    write_json(path, results, sort_keys=False)  # the metric that chooses is the first
