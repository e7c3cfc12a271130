"""From nested values to a run's configuration, and config.json, where a workdir keeps it.

A workdir can be moved and copied: its files address what is in it relative to it, as
"{workdir}/split/train.csv", and other files by absolute paths. In memory, a path is one that opens.
"""

import dataclasses
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.config.encoders import make_encoder_config
from bert_jax.config.group import Group, check_known, flatten, named, rules, unflatten
from bert_jax.config.run import RunConfig
from bert_jax.config.task import add_tasks, task_of
from bert_jax.files.atomic import read_json, write_text
from bert_jax.files.buckets import address_of
from bert_jax.files.errors import UserError

NAME = "config.json"
# The names of the tasks that a folder's runs train together, each in the folder of its name.
TASKS = "tasks.json"
# The plan of the runs that a sweep has in a folder.
SWEEP = "sweep.json"
# Fields with a value that leaves them to the run, which keeps what it chooses when it begins.
_CHOSEN: dict[str, Any] = {"data.bucket_lengths": (), "task.class_weights": "auto"}
# What tasks with and without a corpus train on, and a configuration with it.
_NEEDS = {
    True: ("a corpus", "config.data.source, such as configs/base.py"),
    False: ("labelled examples", "config.data.train, such as configs/classification.py"),
}
# In place of the workdir.
_HERE = "{workdir}"


def parse(values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> RunConfig:
    """Returns the configuration of nested values, all of whose fields are given.

    Args:
      values: the values, nested.
      origins: the layer that each value is from, by dotted name.

    Raises:
      UserError: a field is missing, does not exist, or has a value that no run can use.
    """
    import_modules(values.get("imports", ()))
    task = task_of(values["task"])
    kind = task.RUN
    if kind.has_corpus != ("source" in values["data"]):
        needed, example = _NEEDS[kind.has_corpus]
        raise UserError(
            f"config.task.name={values['task']['name']!r} trains on {needed}: use a configuration"
            f" with {example}."
        )
    template = kind()
    with named("config."):
        arguments = _own_values(values, template)
    for name, group in template.groups():
        with named(f"config.{name}."):
            if name == "model":
                group = make_encoder_config(values[name])
            group = task() if name == "task" else group
            own = _own_values(values[name], group)
            arguments[name] = dataclasses.replace(group, **own)
    with named("config."):
        return kind(**arguments, origins=tuple(sorted((origins or {}).items())))


def import_modules(names: Sequence[str]) -> None:
    """Imports the modules of `config.imports`, whose tasks are known by their names then.

    Raises:
      UserError: Python does not find one of them.
    """
    for name in names:
        try:
            add_tasks(importlib.import_module(name))
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise  # it is there, and imports something that is not
            raise UserError(
                f"config.imports: Python finds no module {name!r}: run in the folder that has it,"
                " or add that to PYTHONPATH."
            ) from None


def with_own_modules(config: RunConfig) -> RunConfig:
    """Returns a configuration that imports the modules of one's own task and encoder too.

    A class of a script or a notebook has no module that could be imported, and one that an
    imported module has under its name needs no other.
    """
    imported, new = [sys.modules[name] for name in config.imports], set()
    for kind in (type(config.task), type(config.model)):
        is_own = kind.__module__.partition(".")[0] not in ("bert_jax", "__main__")
        if is_own and not any(getattr(m, kind.__name__, None) is kind for m in imported):
            new.add(kind.__module__)
    return config.replace({"imports": (*config.imports, *sorted(new))}) if new else config


def _own_values(found: Mapping[str, Any], group: Group) -> dict[str, Any]:
    """Returns the values of a group without those of the groups in it.

    A field may be missing, as in a run of an earlier version, if no number of a run depends on it
    or if the version computed what its default does.
    """
    known = group.to_dict()
    own = rules(type(group)).items()
    may_miss = {name for name, rule in own if rule.free or rule.added_later}
    found = {name: known[name] for name in known if name in may_miss} | dict(found)
    if missing := sorted(known.keys() - found.keys()):
        raise UserError(f"{missing[0]} is missing.")
    check_known(found, known)
    return {name: found[name] for name in known if not isinstance(known[name], dict)}


def save(config: RunConfig, workdir: str, folder: str = "") -> None:
    """Writes the resolved configuration to workdir/config.json.

    Args:
      config: the configuration.
      workdir: folder of the run.
      folder: where the workdir is until it is complete; "": at `workdir`.
    """
    text = json.dumps(to_json(config, workdir), indent=2, sort_keys=True)
    write_text(os.path.join(folder or workdir, NAME), f"{text}\n")


def to_json(config: RunConfig, workdir: str) -> dict[str, Any]:
    """Returns the nested values of a configuration as the files of a workdir have them."""
    fields = config.fields()
    for name in config.marked("is_path") & fields.keys():
        fields[name] = _from_here(fields[name], workdir)
    return unflatten(fields)


def from_json(values: Mapping[str, Any], workdir: str) -> RunConfig:
    """Returns the configuration that `to_json` describes, for the workdir as it is called now."""
    fields = flatten(values)
    return parse(unflatten({name: _placed(value, workdir) for name, value in fields}))


def _from_here(value: Any, workdir: str) -> Any:
    """Returns a path relative to the workdir if it is in it, an absolute one otherwise.

    What exists as no file, such as the name of a model or of a dataset, stays as it is.
    """
    if isinstance(value, tuple):  # NAME=FILE
        parts = (item.partition("=") for item in value)
        return tuple(f"{name}{sign}{_from_here(path, workdir)}" for name, sign, path in parts)
    if not (os.path.isabs(value) or os.path.exists(value)):
        return value
    path, folder = os.path.abspath(value), os.path.abspath(workdir)
    if workdir and path.startswith(f"{folder}{os.sep}"):
        return _HERE + path.removeprefix(folder)
    return address_of(path) or path


def _placed(value: Any, workdir: str) -> Any:
    """Returns the path that `_from_here` describes."""
    if isinstance(value, list | tuple):
        return type(value)(_placed(item, workdir) for item in value)
    return value.replace(_HERE, workdir, 1) if isinstance(value, str) else value


def load(workdir: str) -> RunConfig:
    """Returns the configuration in workdir/config.json.

    Raises:
      UserError: there is none, it is corrupt, or it is that of another program or version.
    """
    path = pathlib.Path(workdir, NAME)
    check_workdir(workdir)
    if not path.is_file():
        raise UserError(f"{workdir} holds no run: there is no config.json in it.")
    try:
        return from_json(json.loads(path.read_text()), workdir)
    except UserError as error:
        raise UserError(
            f"{path} does not fit this version of the program ({error}): train again with --config."
        ) from None
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is corrupt ({error}): train again with --config, which writes it."
        ) from None


def has_begun(init_from: str, workdir: str) -> bool:
    """Returns whether `workdir` holds a run that started from the same source of parameters.

    Such a run does not need the source of its parameters any more.
    """
    if not (workdir and os.path.isfile(os.path.join(workdir, NAME))):
        return False
    return _from_here(load(workdir).init_from, "") == _from_here(init_from, "")


def check_workdir(workdir: str) -> None:
    """Refuses a folder that is not that of one run, which would overwrite what is in it.

    Raises:
      UserError: the folder's config.json is another program's, or it holds several tasks or a
        sweep.
    """
    if workdir and os.path.isfile(path := os.path.join(workdir, TASKS)):
        folders = [os.path.join(workdir, name) for name in read_json(path)]
        raise UserError(
            f"{workdir} holds several tasks: name the folder of one, {' or '.join(folders)}."
        )
    if workdir and os.path.isfile(os.path.join(workdir, SWEEP)):
        raise UserError(f"{workdir} holds a sweep: name the folder of one of its runs.")
    try:
        values = json.loads(pathlib.Path(workdir, NAME).read_text())
    except (OSError, ValueError):
        return  # There is none, or it is corrupt.
    if isinstance(values, dict) and "model" not in values:
        raise UserError(
            f"{workdir} is not a workdir: its config.json is another program's. Choose another"
            " folder; to import a BERT into a new workdir, run"
            f" bert_jax convert from_hf {workdir} NEW."
        )


def check_one_run(config: RunConfig, workdir: str) -> None:
    """Raises UserError if a folder holds the runs of several seeds."""
    if config.get("seeds", 1) > 1:
        raise UserError(
            f"{workdir} holds the runs of several seeds: name the folder of one,"
            f" {workdir}/seed-{config.seed}."
        )


def check_no_run(workdir: str) -> None:
    """Raises UserError if a folder holds a run, whose files those of several tasks would join."""
    if os.path.exists(os.path.join(workdir, NAME)):
        raise UserError(f"{workdir} holds a run: choose another folder for several tasks.")


def is_run(workdir: str) -> bool:
    """Returns whether a folder has the configuration of a run, if only of one that began."""
    try:
        values = json.loads(pathlib.Path(workdir, NAME).read_text())
    except (OSError, ValueError):
        return False  # There is none, or it is corrupt.
    return isinstance(values, dict) and "model" in values


def differences(old: RunConfig, new: RunConfig) -> list[str]:
    """Returns a line `name: old -> new` for each difference that a resumed run must not have.

    What is left to the run is as it has chosen.
    """
    if old.task.name != new.task.name:
        return [f"task: {old.task.name!r} -> {new.task.name!r}"]
    before, after = (dict(flatten(to_json(config, ""))) for config in (old, new))
    free = new.marked("free")
    for name, left in _CHOSEN.items():
        if after.get(name) == left:
            after[name] = before.get(name)
    return [
        f"{name}: {before.get(name, 'missing')!r} -> {after.get(name, 'missing')!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and name not in free
    ]
