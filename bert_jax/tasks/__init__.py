"""What can be trained: one file for each task, one row in a table."""

from bert_jax.tasks.classification import ClassificationData
from bert_jax.tasks.multiple_choice import MultipleChoiceData
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.span import SpanData
from bert_jax.tasks.tagging import TaggingData
from bert_jax.tasks.task import Task

# The host's side of each task that is fine-tuned, by config.task.
TASK_DATA = {
    "classification": ClassificationData,
    "tagging": TaggingData,
    "span": SpanData,
    "multiple_choice": MultipleChoiceData,
}

__all__ = ["TASK_DATA", "Pretraining", "Task"]
