"""TASKS: what can be trained, a class for each task."""

from importlib.metadata import entry_points

from bert_jax.files.errors import UserError
from bert_jax.tasks.bidirectional_lm import BidirectionalLM
from bert_jax.tasks.causal_lm import CausalLM
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.embedding import Embedding
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.span import Span
from bert_jax.tasks.tagging import Tagging
from bert_jax.tasks.task import Task

# By config.task.
TASKS: dict[str, type[Task]] = {
    "pretraining": Pretraining,
    "causal_lm": CausalLM,
    "bidirectional_lm": BidirectionalLM,
    "classification": Classification,
    "tagging": Tagging,
    "span": Span,
    "multiple_choice": MultipleChoice,
    "embedding": Embedding,
}


def find_task(name: str) -> type[Task]:
    """Returns the class of a task.

    Raises:
      UserError: there is no such task.
    """
    if name not in TASKS:
        for point in entry_points(group="bert_jax.tasks", name=name):  # of installed packages
            TASKS[name] = point.load()
    if name not in TASKS:
        raise UserError(
            f"Unknown config.task={name!r}. Available: {', '.join(TASKS)}. (A task of your own:"
            " name the module that adds it to TASKS by --import.)"
        )
    return TASKS[name]
