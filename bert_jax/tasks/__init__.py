"""TASKS: what can be trained, a class for each task."""

from bert_jax.config.task import TASKS, default_config, find_task

__all__ = ["TASKS", "default_config", "find_task"]
