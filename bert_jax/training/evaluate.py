"""Metrics of a run on the held-out rows."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.config.phases import Phase
from bert_jax.config.run import RunConfig
from bert_jax.data.batch import EvaluationBatch, Rows
from bert_jax.devices import processes, sharding
from bert_jax.devices.trees import flatten
from bert_jax.files.atomic import write_json
from bert_jax.files.errors import UserError
from bert_jax.scores.goodput import read_goodput
from bert_jax.tasks.task import Task, add_answers, in_order
from bert_jax.training import metrics
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.listener import Evaluation, Listener
from bert_jax.training.open import open_run
from bert_jax.training.run import Run
from bert_jax.training.state import abstract_params, init_carry
from bert_jax.training.step import eval_step, in_microbatches
from bert_jax.training.suites import make_suite_evaluator
from bert_jax.training.workdir import read_fitted, untrained_params

# Parameters -> their evaluation.
Evaluator = Callable[[Any], Evaluation]


def evaluate(
    config: RunConfig, workdir: str, *, listener: Listener | None = None
) -> dict[str, float]:
    """Evaluates the chosen checkpoint of a run and writes `results.json`.

    Args:
      config: the run's configuration.
      workdir: folder of the run.
      listener: receives `opened` and `evaluation`.

    Returns:
      The metrics.

    Raises:
      UserError: there is no checkpoint, it does not fit, or there are no held-out rows; or a head
        that is evaluated has random parameters.
    """
    listener = listener or Listener()
    config.task.check_trained(untrained_params(workdir), workdir)
    with open_chosen(workdir, config) as (checkpoints, step):
        run = open_run(config, workdir, to_train=False, log=listener.line)
        phase = run.phase_at(step - 1)
        like = abstract_params(run.task_at(phase), run.mesh)
        params = checkpoints.restore_params(step, like)
        fitted = read_fitted(checkpoints, step)

    if fitted:
        run = dataclasses.replace(run, task=run.task.with_fitted(fitted))
    evaluator = make_evaluator(run, phase, fits=not fitted)
    if evaluator is None:
        raise UserError(f"Nothing is held out for {workdir}: there is nothing to evaluate on.")
    evaluation = evaluator(params)
    values = evaluation.values
    if processes.is_main():
        write_results(run, step, values, evaluation.fitted)
        listener.opened(run)
        listener.evaluation(run, step, evaluation, is_last=True, is_chosen=True)
    return values


def make_evaluator(run: Run, phase: Phase, fits: bool = True) -> Evaluator | None:
    """Returns an evaluator of the held-out rows of a phase; None if there are none.

    With `fits`, thresholds and temperature, if the task has any, are fitted on the first file and
    used for all files.

    Padding rows, which fill the last batch and the shares of devices and microbatches, have weight
    0. `loss` is the sum of the losses, each the mean over all rows. A corpus can be evaluated in
    part (`evaluated_batches`). Metrics of `data.general` have the prefix `metrics.GENERAL`; those
    of suites follow the first metric.
    """
    splits = run.evaluation_rows(phase)
    if not splits:
        return None
    config, mesh, task = run.config, run.mesh, run.task_at(phase, evaluate=True)
    batch_size = evaluation_batch_size(config, phase)
    parts = config.num_microbatches(batch_size)
    padded = sharding.padded_rows(mesh, batch_size, parts)
    start, stop = sharding.local_rows(mesh, padded)
    step, key = jitted_eval_step(task, mesh, parts), run.key("eval_masking")
    score_suites = make_suite_evaluator(run, phase)

    def evaluate_params(params: Any) -> Evaluation:
        values, kept, host = {}, [], run.task
        for rows in splits:
            totals, answers = metrics.Totals(), {}
            carry = init_carry(task, mesh, padded)
            for number, batch in evaluated_batches(config, rows, batch_size):
                on_device = run.put_batch(batch.read(start, stop), padded)
                *results, carry = step(params, on_device, key, number, carry)
                sums, outputs = jax.device_get(results)
                totals.add(sums)
                if outputs:
                    add_answers(answers, batch.row_numbers, outputs)
            means = totals.means()
            if fits and rows is splits[0]:
                host = host.fitted(rows, in_order(answers))
            found, predictions = host.evaluate(rows, in_order(answers), means)
            is_general = config.has_corpus and rows is not splits[0]
            values |= {metrics.GENERAL * is_general + name: found[name] for name in found}
            if rows is splits[0]:
                kept = predictions
        # Suites follow the first metric, which selects checkpoints: listeners show the first ones.
        values = dict(itertools.islice(values.items(), 1)) | score_suites(params) | values
        return Evaluation(values, kept, _layer_weights(params), host.fitted_values())

    return evaluate_params


def evaluated_batches(
    config: RunConfig, rows: Rows, batch_size: int
) -> Iterator[tuple[int, EvaluationBatch]]:
    """Yields the numbers and batches that are evaluated.

    For a corpus: the part `config.eval.part`, at least one batch, and at most
    `config.eval.max_batches` of it.
    """
    batches = enumerate(rows.evaluation_batches(batch_size))
    if not config.has_corpus:
        return batches
    numbers = set(evaluated_numbers(config, rows.rows_per_epoch, batch_size))
    return ((number, batch) for number, batch in batches if number in numbers)


def evaluated_numbers(config: RunConfig, num_rows: int, batch_size: int) -> Sequence[int]:
    """Returns the numbers of the batches of a corpus that are evaluated; see `evaluated_batches`.

    Rows are in the order of the text, so `config.eval.max_batches` batches are evenly spaced. A
    stream's are the first ones: each has rows from everywhere in the text and continues the one
    before.

    Args:
      config: the run's configuration.
      num_rows: held-out rows.
      batch_size: rows of a batch.
    """
    count = -(-num_rows // batch_size)
    begin, end = config.eval.part
    first = min(round(begin * count), count - 1)
    last = max(round(end * count), first + 1)
    numbers, most = range(first, last), config.eval.max_batches
    if not 0 < most < len(numbers):
        return numbers
    if config.get("data.segments") == "stream":
        return numbers[:most]
    return [numbers[index * len(numbers) // most] for index in range(most)]


def evaluation_batch_size(config: RunConfig, phase: Phase) -> int:
    """Returns the rows of the batches that a phase is evaluated on; microbatches split them.

    Masks depend on these batches, and thus on neither devices nor microbatches.
    """
    return config.eval.batch_size or phase.batch_size


@functools.lru_cache(maxsize=1)
def jitted_eval_step(task: Task, mesh: Mesh, microbatches: int) -> Callable[..., Any]:
    """Returns a task's `eval_step` with at most `microbatches` parts, compiled for each shape.

    Its results are replicated, but the carry is sharded like a batch.
    """
    step = functools.partial(in_microbatches(mesh, microbatches, eval_step), task=task)
    everywhere = sharding.replicated(mesh)
    where = (everywhere, everywhere, sharding.batch_sharding(mesh))
    return jax.jit(step, out_shardings=where)


def _layer_weights(params: Any) -> tuple[float, ...]:
    """Returns the shares of the layers in the first scalar mix of a model, if it has one."""
    for path, weights in flatten(params).items():
        if path.endswith("scalar_mix/weights"):
            return tuple(map(float, jax.device_get(jax.nn.softmax(weights))))
    return ()


def write_results(run: Run, step: int, values: dict[str, float], fitted: Mapping[str, Any]) -> None:
    """Writes results.json: the metrics of a checkpoint, and what they were computed on and with."""
    phase = run.phase_at(step - 1)
    training: Any = (run.training_rows(phase),) if run.training else ()
    evaluation: Any = run.evaluation_rows(phase)
    host: Any = run.task
    if run.config.has_corpus:
        rows = evaluation[0]
        data = {
            "examples": rows.rows_per_epoch,
            "sequence_length": rows.sequence_length,
            "data": rows.fingerprint,
        }
    else:
        data = {
            "task": run.config.task.name,
            "init_from": run.config.init_from,
            "baseline": host.baseline(evaluation[0].examples),
            "data": {rows.name: rows.origin() for rows in (*training, *evaluation)},
        }
    results = {"eval": values, "step": step, "seed": run.config.seed, **data}
    results |= {"fitted": fitted} if fitted else {}
    results |= {"goodput": found} if (found := read_goodput(run.workdir)) else {}
    path = os.path.join(run.workdir, "results.json")
    write_json(path, results, sort_keys=False)  # the metric that selects checkpoints comes first
