"""Multiple choice: which of several endings continues a text (paper, section 4.4)."""

from bert_jax.tasks.multiple_choice.task import METRICS, MultipleChoice

__all__ = ["METRICS", "MultipleChoice"]
