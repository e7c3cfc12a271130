"""A tag for each word, such as named entities (paper, section 5.3)."""

from bert_jax.tasks.tagging.task import METRICS, Tagging

__all__ = ["METRICS", "Tagging"]
