"""Which tasks can be trained together, and the order of their turns."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.config import store
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.phases import LENGTHS
from bert_jax.config.run import RunConfig
from bert_jax.data.permutation import permute
from bert_jax.files.errors import UserError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
# Fields that all tasks have in common, with those of config.model and config.mesh.
_SHARED = ("seed", "init_from", "init_layers", "reinit_layers", "data.vocab", "data.lowercase")
# Fields that must have this value in all tasks: all use the last encoder, and a task may be at its
# step 0 when a run resumes.
_ONLY = {
    "checkpoint.milestones": (),
    "seeds": 1,
    "eval.patience": 0,
    "eval.at_start": False,
    "optimizer.average_fraction": 0,
    "profile": "",
}


def with_steps(config: RunConfig, steps: int) -> RunConfig:
    """Returns a configuration that trains for this number of steps."""
    return config.replace(dict.fromkeys(LENGTHS, 0) | {"steps": steps})


def tempered(steps: Sequence[int], temperature: float) -> list[int]:
    """Returns steps proportional to steps ** (1 / temperature), at least 1, with about equal sum.

    Raises:
      UserError: the temperature is not positive.
    """
    if not temperature > 0:
        raise UserError(f"temperature={temperature} must be above 0; 1 keeps each task's steps.")
    shares = np.array(steps) ** (1 / temperature)
    return np.maximum(1, np.rint(sum(steps) * shares / shares.sum())).astype(int).tolist()


def order_of_turns(steps: Sequence[int], seed: int) -> np.ndarray:
    """Returns int64[all steps], the number of the task whose turn it is.

    Args:
      steps: steps of each task.
      seed: decides the order, a permutation of all steps.
    """
    total = sum(steps)
    task_of_step = np.repeat(np.arange(len(steps)), steps)
    return task_of_step[permute(np.arange(total), total, f"turns {seed}")]


def check_tasks(configs: Mapping[str, RunConfig], workdir: str) -> None:
    """Refuses tasks that cannot be trained together, before anything is read."""
    if len(configs) < 2:
        raise UserError("Several tasks are trained together: give two or more, each with a name.")
    store.check_no_run(workdir)
    first_name, first = next(iter(configs.items()))
    for name, config in configs.items():
        if not _NAME.fullmatch(name) or name in ("checkpoints", "data"):
            raise UserError(
                f"{name!r} is not a valid name of a task: begin with a letter, then use letters,"
                " digits, _ and -; checkpoints and data are taken."
            )
        if not isinstance(config, FinetuningConfig):
            raise UserError(
                f"Task {name}: {config.task.name!r} trains on a corpus; only tasks on"
                " labelled files are trained together."
            )
        for field, only in _ONLY.items():
            if config[field] != only:
                raise UserError(
                    f"Task {name}: {field}={config[field]} cannot be used for tasks that are"
                    f" trained together: set it to {only!r}."
                )
        for field, value in first.fields().items():
            is_shared = field in _SHARED or field.startswith(("model.", "mesh."))
            if is_shared and config.get(field) != value:
                raise UserError(
                    f"Tasks that are trained together have the same {field}: it is {value!r} in"
                    f" {first_name} and {config.get(field)!r} in {name}."
                )
