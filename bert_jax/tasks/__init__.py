"""What can be trained: one file for each task, one row in TASKS."""

from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.task import Task

TASKS: dict[str, type[Pretraining]] = {"pretraining": Pretraining}

__all__ = ["TASKS", "Pretraining", "Task"]
