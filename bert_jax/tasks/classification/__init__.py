"""Classification and regression of texts and pairs of texts (paper, section 4.1)."""

from bert_jax.tasks.classification.task import METRICS, Classification

__all__ = ["METRICS", "Classification"]
