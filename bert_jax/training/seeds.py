"""One configuration with several seeds: mean, spread, and the number of degenerate runs.

Fine-tuning of BERT on small sets is unstable: some seeds end no better than the majority class
(Devlin et al. 2019, section 4.1; Mosbach et al. 2021). A single seed is not a result.
"""

import dataclasses
import os
from collections.abc import Mapping

from bert_jax.config import store
from bert_jax.config.run import RunConfig
from bert_jax.devices import processes
from bert_jax.files.atomic import read_json, write_json
from bert_jax.scores.spread import summarize_seeds
from bert_jax.tasks.auxiliary import LossFunction
from bert_jax.training.listener import Listener
from bert_jax.training.resume import check_workdir
from bert_jax.training.train import TrainResult, train


def train_seeds(
    config: RunConfig,
    workdir: str,
    *,
    listener: Listener | None = None,
    losses: Mapping[str, LossFunction] | None = None,
) -> TrainResult:
    """Trains with seeds `seed`, `seed` + 1, ..., each in workdir/seed-N, and summarizes them.

    Complete seeds are not trained again; a request to stop ends the whole command. `results.json`
    has the means of all scores as `eval`, and the spread of the first metric.

    Args:
      config: the runs' configuration; `seeds` is their number.
      workdir: folder of all seeds.
      listener: receives what each run reports.
      losses: further losses by name, see `train`.

    Returns:
      The result of the last seed that was trained; `stopped_by` is about all seeds.

    Raises:
      UserError: as `train`.
    """
    listener = listener if listener and processes.is_main() else Listener()
    with processes.lock(workdir, listener.line):
        check_workdir(config, workdir)
        return _train_seeds(config, workdir, listener, losses)


def _train_seeds(
    config: RunConfig,
    workdir: str,
    listener: Listener,
    losses: Mapping[str, LossFunction] | None,
) -> TrainResult:
    result, results = None, {}
    for seed in range(config.seed, config.seed + config["seeds"]):
        run = config.replace({"seed": seed, "seeds": 1})
        folder = os.path.join(workdir, f"seed-{seed}")
        listener.line("")
        listener.line(f"seed {seed}, in {folder}")
        result = train(run, folder, listener=listener, losses=losses)
        if result.stopped_by:
            return result
        processes.barrier(f"results of seed {seed}")  # process 0 writes them
        results[seed] = read_json(os.path.join(folder, "results.json"))
    if processes.is_main():
        store.save(config, workdir)
        summary = summarize(config, results)
        write_json(os.path.join(workdir, "results.json"), summary, sort_keys=False)
        spread = summary["spread"]
        listener.line("")
        listener.line(
            f"{spread['metric']} over {spread['runs']} seeds: mean {spread['mean']:.4f}, standard"
            f" deviation {spread['standard_deviation']:.4f}, best {spread['best']:.4f}"
            f" (seed {spread['best_seed']}), {spread['degenerate']} degenerate"
        )
    assert result is not None  # `seeds` is at least 1
    return result


def summarize(config: RunConfig, results: dict[int, dict]) -> dict:
    """Returns the results.json of several seeds, from the results.json of each."""
    first, metric = next(iter(results.values())), config.metrics[0]
    scores = {seed: result["eval"][metric] for seed, result in results.items()}
    names = [name for name in first["eval"] if all(name in r["eval"] for r in results.values())]
    return {
        "eval": {
            name: sum(r["eval"][name] for r in results.values()) / len(results) for name in names
        },
        "spread": {
            "metric": metric,
            **dataclasses.asdict(summarize_seeds(list(scores.values()), first["baseline"])),
            "best_seed": max(scores, key=scores.__getitem__),
        },
        "seeds": {
            str(seed): {"eval": result["eval"], "step": result["step"]}
            for seed, result in results.items()
        },
        "data": first["data"],
        "init_from": first["init_from"],
    }
