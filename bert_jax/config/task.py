"""The tasks by name. Their classes are in bert_jax/tasks, each with its fields of `config.task`."""

import importlib
import types
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from bert_jax.config.run import TaskConfig
from bert_jax.files.errors import UserError

# A class, or where it is: "module:class". The modules import jax, and this one does not.
TASKS: dict[str, type[TaskConfig] | str] = {
    "pretraining": "bert_jax.tasks.pretraining.task:Pretraining",
    "causal_lm": "bert_jax.tasks.causal_lm.task:CausalLM",
    "bidirectional_lm": "bert_jax.tasks.bidirectional_lm.task:BidirectionalLM",
    "classification": "bert_jax.tasks.classification.task:Classification",
    "tagging": "bert_jax.tasks.tagging.task:Tagging",
    "span": "bert_jax.tasks.span.task:Span",
    "multiple_choice": "bert_jax.tasks.multiple_choice.task:MultipleChoice",
    "embedding": "bert_jax.tasks.embedding.task:Embedding",
    "splade": "bert_jax.tasks.splade.task:Splade",
    "colbert": "bert_jax.tasks.colbert.task:Colbert",
    "cross_encoder": "bert_jax.tasks.cross_encoder.task:CrossEncoder",
}


def find_task(name: str) -> type[Any]:
    """Returns the class of a task.

    Raises:
      UserError: there is no such task.
    """
    if name not in TASKS:
        for point in entry_points(group="bert_jax.tasks", name=name):  # of installed packages
            TASKS[name] = point.load()
    if name not in TASKS:
        raise UserError(
            f"Unknown config.task.name={name!r}. Available: {', '.join(TASKS)}. (A task of your"
            " own: name the module that adds it to TASKS by --import.)"
        )
    found = TASKS[name]
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        found = TASKS[name] = getattr(importlib.import_module(module), attribute)
    return found


def add_tasks(module: types.ModuleType) -> None:
    """Adds the tasks that a module defines to TASKS, by their names, unless these are taken."""
    for value in vars(module).values():
        is_task = isinstance(value, type) and issubclass(value, TaskConfig)
        if is_task and value.__module__ == module.__name__ and value.name:
            TASKS.setdefault(value.name, value)


def add_task(kind: type[TaskConfig]) -> str:
    """Adds the task of a script or a notebook to TASKS, and returns its name.

    It replaces one of the same name that the package does not have: a cell that ran again.

    Raises:
      UserError: it is no task with a name, or the package has a task of that name.
    """
    if not issubclass(kind, TaskConfig) or not kind.name:
        raise UserError(f"task={kind.__name__} is a task without a name: see docs/extending.md.")
    if kind.name in TASKS:
        known = find_task(kind.name)
        if known is not kind and known.__module__.startswith("bert_jax."):
            raise UserError(
                f"task={kind.__name__} has the name of a task of the package, {kind.name!r}: choose"
                " another."
            )
    TASKS[kind.name] = kind
    return kind.name


def task_of(values: Mapping[str, Any]) -> type[Any]:
    """Returns the class of the task that `config.task` names.

    Raises:
      UserError: there is no such task.
    """
    if isinstance(values, str):
        raise UserError(f"config.task={values!r} must be a group of fields, one of them the name.")
    return find_task(values.get("name", ""))


def default_config(name: str, *variant: str) -> Any:
    """Returns the package's defaults for a task, of which experiments in configs/ change values.

    docs/configuration.md lists the fields.

    Args:
      name: name of the task.
      variant: "words" for tagging, "scored" for embedding.
    """
    return find_task(name).default_config(*variant)
