"""Where training begins: a checkpoint of the run, other weights, or random parameters."""

import functools
import importlib.metadata
import json
import os
import pathlib
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.config import store
from bert_jax.config.layers import DEFAULT
from bert_jax.config.run import RunConfig
from bert_jax.devices.sharding import describe_devices
from bert_jax.files.atomic import AppendFile
from bert_jax.files.buckets import address_of
from bert_jax.files.errors import UserError
from bert_jax.models import MODELS
from bert_jax.training import metrics
from bert_jax.training.checkpoints import (
    Checkpoints,
    has_checkpoints,
    has_imported_params_only,
)
from bert_jax.training.initial import initial_params, special_tokens, spectral_tables
from bert_jax.training.listener import Listener
from bert_jax.training.run import Run
from bert_jax.training.state import TrainState, abstract_state, init_some, init_state, swapped

# What changes the number of words in a step, or the number of steps, in `check_unchanged`.
_PACE = ("phases", "global_batch_size:", "data:", "steps in total:")
# A line for each start of a run, in its folder.
STARTS = "starts.jsonl"


def restore_or_init(
    run: Run, checkpoints: Checkpoints, listener: Listener
) -> tuple[TrainState, dict[str, Any]]:
    """Returns the state that training begins with, and the `checkpoint_meta` it was saved with.

    Raises:
      UserError: the checkpoint has other settings or data, or the weights do not fit.
    """
    config, mesh = run.config, run.mesh
    step = checkpoints.newest_good_step()
    phase = run.phase_at(max(0, (step or 0) - 1))  # of the last step
    task, (tx, _) = run.task_at(phase), run.optimizer()
    like = abstract_state(task, tx, mesh, phase.batch_size)
    # 1. The newest intact checkpoint of this run.
    if step is not None:
        check_unchanged(run, checkpoints.read_meta(step))
        state, meta = checkpoints.restore(step, like)
        listener.line(f"resumed    after step {step} of {run.steps}")
        return swapped(state), meta
    # 2. The parameters of another run or program, with a new optimizer state.
    key = run.key("init")
    if config.init_from:
        model = config.model
        params, origin = initial_params(
            config.init_from,
            like.params,
            functools.partial(init_some, task, mesh, key),
            encoder=model.name,
            vocab_size=model.vocab_size,
            layers=config.init_layers,
            reinit=config.reinitialized_pattern(),
            special_tokens=special_tokens(run.tokenizer),
            renew_special_tokens=MODELS[model.name].renews_special_tokens and not config.has_corpus,
            extend_positions=config.extend_positions,
            tokenizer=run.tokenizer if config.get("data.extra_tokens") else None,
            task=config.task.name,
            labels=run.task.labels,
        )
        listener.line(f"start      {', '.join(origin)}")
        return init_state(task, tx, mesh, key, params, phase.batch_size), {}
    # 3. Random parameters.
    origin, embeddings = f"random parameters, seed {config.seed}", {}
    if config.get("init_embeddings") == "spectral":
        rows = run.training_rows(phase)
        embeddings, pairs = spectral_tables(rows, like.params, config.model.name)
        origin += f", with spectral embeddings from {pairs:,} pairs of adjacent tokens"
    listener.line(f"start      from {origin}")
    state = init_state(task, tx, mesh, key, batch_size=phase.batch_size, embeddings=embeddings)
    return state, {}


def checkpoint_meta(
    run: Run, totals: metrics.Totals, ended_early: bool, fitted: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns what a checkpoint holds in addition to the state.

    Args:
      run: the run.
      totals: sums since the last report.
      ended_early: whether early stopping has ended the run.
      fitted: `Evaluation.fitted` of an evaluation at this step.
    """
    meta = {"fitted": dict(fitted)} if fitted else {}
    return meta | {
        "config": store.to_json(run.config, run.workdir),
        "steps": run.steps,
        "data": run.fingerprint,
        "evaluation": _evaluation(run),
        "losses": sorted(run.losses),
        "teacher": run.teacher.sha256 if run.teacher else "",
        "totals": totals.to_json(),
        "ended_early": ended_early,
        "versions": _versions(),
    }


def _evaluation(run: Run) -> dict[str, str]:
    """Returns the fingerprints of labelled examples that the run is evaluated on, by name."""
    if run.config.has_corpus:  # `run.fingerprint` is that of all splits
        return {}
    return {rows.name: rows.fingerprint for rows in run.evaluation_rows(run.phases[-1])}


def record_start(run: Run, step: int) -> None:
    """Adds a line to starts.jsonl: after which step the run starts or resumes, and where."""
    line = {
        "step": step,
        "steps": run.steps,
        "devices": describe_devices(run.mesh),
        "versions": {"python": platform.python_version(), **_versions()},
        "origins": {name: origin for name, origin in run.config.origins if origin != DEFAULT},
    }
    with AppendFile(os.path.join(run.workdir, STARTS)) as file:
        file.write_line(json.dumps(line))


def _versions() -> dict[str, str]:
    packages = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint")
    return {name: importlib.metadata.version(name) for name in packages}


def check_workdir(
    config: RunConfig, workdir: str, files: Mapping[str, bytes] | None = None
) -> None:
    """Refuses a folder that holds anything but this run, before anything is written there.

    Args:
      config: configuration of the run that is to start or to be resumed.
      workdir: its folder.
      files: content of files that it needs in the folder, by path.

    Raises:
      UserError: it holds another run, or a model that the run reads.
    """
    store.check_workdir(workdir)
    for name in ("init_from", "distillation.teacher"):
        path = config[name]
        is_here = os.path.isdir(path) and os.path.realpath(path) == os.path.realpath(workdir)
        if is_here or (path and path == address_of(workdir)):
            raise UserError(
                f"config.{name}={path} is the folder of the new run too: choose another --workdir."
            )
    if has_imported_params_only(workdir):
        raise UserError(
            f"{workdir} holds imported parameters, not a run: start one from them with"
            f" --config.init_from={workdir} --workdir=NEW."
        )
    if not store.is_run(workdir):
        return
    before = store.load(workdir)
    if (before.get("seeds", 1) > 1) != (config.get("seeds", 1) > 1):
        raise UserError(
            f"{workdir} holds {'several seeds' if before.get('seeds', 1) > 1 else 'one run'}, and"
            f" this is seeds={config.get('seeds', 1)}: choose another --workdir."
        )
    if not has_checkpoints(workdir):
        return  # there is nothing to lose
    changed = store.differences(before, config)
    for path, content in (files or {}).items():
        if not os.path.isfile(path) or pathlib.Path(path).read_bytes() != content:
            changed.append(f"{os.path.relpath(path, workdir)}: other content")
    _refuse(changed, config, workdir)


def check_unchanged(run: Run, meta: dict[str, Any]) -> None:
    """Refuses to resume with settings or data that differ from those of the checkpoint.

    Raises:
      UserError: listing what differs.
    """
    changed = store.differences(store.from_json(meta["config"], run.workdir), run.config)
    if meta["data"] != run.fingerprint:
        changed.append(f"data: {meta['data'][:12]} -> {run.fingerprint[:12]}")
    evaluated = _evaluation(run)
    for name, before in meta.get("evaluation", {}).items():  # earlier versions have none
        if (now := evaluated.get(name)) and now != before:
            changed.append(f"examples to evaluate on ({name}): {before[:12]} -> {now[:12]}")
    if meta["losses"] != sorted(run.losses):
        changed.append(f"losses: {meta['losses']} -> {sorted(run.losses)}")
    ours, theirs = run.teacher.sha256 if run.teacher else "", meta["teacher"]
    if ours != theirs:
        changed.append(f"weights of the teacher: {theirs[:12] or None} -> {ours[:12] or None}")
    if meta["steps"] != run.steps:
        changed.append(f"steps in total: {meta['steps']} -> {run.steps}")
    _refuse(changed, run.config, run.workdir)
    paced = [line for line in changed if line.startswith(_PACE)]
    if paced and run.config.checkpoint.milestones:
        raise UserError(
            f"config.checkpoint.milestones would count from the first step as if {paced[0]} had"
            ' always held: set --config.checkpoint.milestones="()", which keeps the present ones.'
        )


def _refuse(changed: Sequence[str], config: RunConfig, workdir: str) -> None:
    """Raises UserError for differences that the configuration does not allow."""
    if changed and not config.checkpoint.allow_changes:
        raise UserError(
            f"{workdir} was trained with other settings: {'; '.join(changed)}. Choose another"
            " --workdir, or resume regardless with --config.checkpoint.allow_changes=true."
        )
