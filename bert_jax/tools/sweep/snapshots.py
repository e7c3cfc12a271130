"""A checkpoint in the middle of a run as a workdir of its own, which other runs start from."""

import os
import pathlib
import shutil

from bert_jax.files.atomic import whole_folder
from bert_jax.files.errors import UserError
from bert_jax.tools.sweep.record import folder_of
from bert_jax.training.seals import checksum_file


def make(job: str, step: int, workdir: str) -> pathlib.Path:
    """Returns a workdir with one checkpoint of a run, whose files it shares by hard links.

    Raises:
      UserError: the run did not keep that checkpoint.
    """
    target = pathlib.Path(workdir, "snapshots", f"{job}-step{step}")
    if target.is_dir():
        return target
    run = folder_of(job, workdir)
    checkpoint = run / "checkpoints" / str(step)
    if not checksum_file(checkpoint).is_file():
        names = (path.name for path in checkpoint.parent.glob("*") if path.name.isdecimal())
        found = ", ".join(sorted(names, key=int)) or "none"
        raise UserError(
            f"{run} has no checkpoint of step {step} (it has {found}): its config.checkpoint.every"
            " must divide the step, and config.checkpoint.keep be large enough."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(target) as temporary:
        for path in (run / "config.json", *run.glob("vocab.*"), *run.glob("labels.json")):
            shutil.copy(path, temporary)
        copied = pathlib.Path(temporary, "checkpoints", str(step))
        shutil.copytree(checkpoint, copied, copy_function=_link)
        _link(checksum_file(checkpoint), checksum_file(copied))
    return target


def _link(source: str | os.PathLike, target: str | os.PathLike) -> None:
    """Links a file, or copies it where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
