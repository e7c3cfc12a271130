"""Questions whose answer is a span of a text, or which have none (paper, sections 4.2 and 4.3)."""

from bert_jax.tasks.span.task import METRICS, Span

__all__ = ["METRICS", "Span"]
