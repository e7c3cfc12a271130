"""TASKS: what can be trained, a file and a row for each task."""

from bert_jax.files.errors import UserError
from bert_jax.tasks.bidirectional_lm import BIDIRECTIONAL_LM
from bert_jax.tasks.causal_lm import CAUSAL_LM
from bert_jax.tasks.classification import CLASSIFICATION
from bert_jax.tasks.embedding import EMBEDDING
from bert_jax.tasks.multiple_choice import MULTIPLE_CHOICE
from bert_jax.tasks.pretraining import PRETRAINING
from bert_jax.tasks.span import SPAN
from bert_jax.tasks.tagging import TAGGING
from bert_jax.tasks.task import TaskRow

# By config.task.
TASKS: dict[str, TaskRow] = {
    "pretraining": PRETRAINING,
    "causal_lm": CAUSAL_LM,
    "bidirectional_lm": BIDIRECTIONAL_LM,
    "classification": CLASSIFICATION,
    "tagging": TAGGING,
    "span": SPAN,
    "multiple_choice": MULTIPLE_CHOICE,
    "embedding": EMBEDDING,
}


def find_task(name: str) -> TaskRow:
    """Returns the row of a task.

    Raises:
      UserError: there is no such task.
    """
    if name not in TASKS:
        raise UserError(
            f"Unknown config.task={name!r}. Available: {', '.join(TASKS)}. (A task of your own:"
            " import the module that adds it to TASKS first.)"
        )
    return TASKS[name]
