"""Reads and writes config.json, the resolved configuration in the folder of a run."""

import json
import os
import pathlib

from bert_jax.config.run import RunConfig, parse
from bert_jax.files.atomic import write_text
from bert_jax.files.errors import UserError

NAME = "config.json"
# Chosen when a run begins, if it is empty, and kept in its configuration.
CHOSEN_LENGTHS = "data.bucket_lengths"


def save(config: RunConfig, workdir: str) -> None:
    """Writes the resolved configuration to workdir/config.json."""
    text = json.dumps(config.to_dict(), indent=2, sort_keys=True)
    write_text(os.path.join(workdir, NAME), f"{text}\n")


def load(workdir: str) -> RunConfig:
    """Returns the configuration in workdir/config.json.

    Raises:
      UserError: there is none, it is corrupt, or it is another program's.
    """
    path = pathlib.Path(workdir, NAME)
    if not path.is_file():
        raise UserError(f"{workdir} holds no run: there is no config.json in it.")
    check_workdir(workdir)
    try:
        return parse(json.loads(path.read_text()))
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} is corrupt ({error}): give the configuration with --config."
        ) from None


def has_begun(init_from: str, workdir: str) -> bool:
    """Returns whether `workdir` holds a run that started from the same source of parameters.

    Such a run does not need the source of its parameters any more.
    """
    if not (workdir and os.path.isfile(os.path.join(workdir, NAME))):
        return False
    return load(workdir).init_from == init_from


def check_workdir(workdir: str) -> None:
    """Refuses a folder in which another program keeps a model: a run would overwrite its files.

    Raises:
      UserError: the folder's config.json is another program's.
    """
    try:
        values = json.loads(pathlib.Path(workdir, NAME).read_text())
    except (OSError, ValueError, RecursionError):
        return  # There is none, or it is corrupt.
    if isinstance(values, dict) and "model" not in values:
        raise UserError(
            f"{workdir} is not a workdir: its config.json is another program's. Choose another"
            " folder; to import a BERT into a new workdir, run"
            f" python -m bert_jax convert from_hf {workdir} NEW."
        )


def differences(old: RunConfig, new: RunConfig) -> list[str]:
    """Returns a line `name: old -> new` for each difference that a resumed run must not have.

    Lengths that are left to the run are those that it has.
    """
    before, after, free = old.fields(), new.fields(), new.free_fields()
    if after.get(CHOSEN_LENGTHS) == ():
        after[CHOSEN_LENGTHS] = before.get(CHOSEN_LENGTHS)
    return [
        f"{name}: {before.get(name, 'missing')!r} -> {after.get(name, 'missing')!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and name not in free
    ]
