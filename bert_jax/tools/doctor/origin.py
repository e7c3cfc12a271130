"""The model that a run starts from, and the run that its folder holds already."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence

from bert_jax.config import store
from bert_jax.config.run import RunConfig
from bert_jax.files.buckets import local
from bert_jax.formats import format_of, open_checkpoint
from bert_jax.tools.doctor.finding import Finding, listed, note, ok, problem, warning
from bert_jax.training.checkpoints import Checkpoints, has_checkpoints, has_imported_params_only
from bert_jax.training.initial import check_source
from bert_jax.training.run import LABELS, read_labels


@dataclasses.dataclass(frozen=True)
class Begun:
    """What the folder of a run holds.

    Attributes:
      step: of the newest intact checkpoint; 0: none.
      ended_early: whether patience ended the run there.
    """

    step: int = 0
    ended_early: bool = False


def read_begun(workdir: str) -> Begun:
    """Returns what a folder holds; nothing is changed."""
    if not (workdir and has_checkpoints(workdir)):
        return Begun()
    with contextlib.closing(Checkpoints(workdir, read_only=True)) as checkpoints:
        step = checkpoints.newest_good_step() or 0
        meta = checkpoints.read_meta(step) if step else {}
    return Begun(step, bool(meta.get("ended_early")))


def check_folder(config: RunConfig, workdir: str, begun: Begun) -> Iterator[Finding]:
    """Yields findings about the folder of a run: other settings, imported weights.

    Args:
      config: of the run.
      workdir: its folder, which may not exist.
      begun: what is in it.
    """
    if has_imported_params_only(workdir):
        yield problem(
            f"{workdir} holds imported parameters, not a run.",
            f"--config.init_from={workdir} --workdir=NEW",
        )
    elif has_checkpoints(workdir):
        if changed := store.differences(store.load(workdir), config):
            yield problem(
                f"{workdir} was trained with other settings: {'; '.join(changed)}.",
                "Choose another --workdir; or --config.checkpoint.allow_changes=true",
            )
        if not begun.step:
            yield warning(
                f"{workdir} has no intact checkpoint: training would start again.",
                "If it should not: restore the folder `checkpoints`.",
            )
        else:
            yield ok(f"{workdir}: the newest intact checkpoint is that of step {begun.step:,}.")


def check_progress(begun: Begun, steps: int) -> Iterator[Finding]:
    """Yields how much of a run is done.

    Args:
      begun: what its folder holds.
      steps: updates of the whole run.
    """
    if not begun.step:
        yield ok(f"A new run of {steps:,} updates.")
    elif begun.step >= steps or begun.ended_early:
        how = ", which ended early" if begun.ended_early else ""
        yield note(f"The run is complete: {begun.step:,} of {steps:,} updates{how}.")
    else:
        yield note(
            f"The run is not complete: {begun.step:,} of {steps:,} updates are done.",
            "The same command resumes it.",
        )


def check_weights(config: RunConfig) -> Iterator[Finding]:
    """Compares the encoder in config.init_from with the configuration.

    Raises:
      UserError: it does not fit.
    """
    if config.init_from:
        check_source(config)
        yield ok(f"The parameters in {config.init_from} fit config.model.")


def check_labels(config: RunConfig, labels: Sequence[str], workdir: str) -> Iterator[Finding]:
    """Compares the labels of the data with those of the run and of config.init_from.

    Classes have numbers, and a head of as many classes is taken over from config.init_from with the
    numbers that it was trained with.

    Args:
      config: of the run.
      labels: that the run would have, in the order of their numbers.
      workdir: its folder.
    """
    if workdir and os.path.isfile(os.path.join(workdir, LABELS)):
        if (before := read_labels(workdir)) != tuple(labels):
            yield problem(
                f"The labels of {workdir} are {listed(before)}; those of the data are"
                f" {listed(labels)}: the checkpoint's numbers would mean other labels.",
                "Restore the files that it was trained on, or choose another --workdir.",
            )
    of_source = source_labels(config)
    if len(of_source) != len(labels) or not labels:
        return
    if of_source == tuple(labels):
        yield ok(f"config.init_from has a head for the same labels: {listed(labels)}.")
    else:
        same = "the same labels in another order" if set(of_source) == set(labels) else "others"
        yield warning(
            f"config.init_from has a head of {len(labels)} classes, which is taken over, but its"
            f" labels are {same}: {listed(of_source)}; those of the data: {listed(labels)}.",
            "Rename the labels of the files so that they sort in the order of the checkpoint's, or"
            " expect that training unlearns its head first.",
        )


def source_labels(config: RunConfig) -> tuple[str, ...]:
    """Returns the labels of the head in config.init_from; () if it has none for this task."""
    if not (path := local(config.init_from)):
        return ()
    if format_of(path) == "workdir":
        same = store.load(path).task == config.task
        has_labels = os.path.isfile(os.path.join(path, LABELS))
        return read_labels(path) if same and has_labels else ()
    checkpoint = open_checkpoint(path)
    return checkpoint.labels if checkpoint.task == config.task else ()
