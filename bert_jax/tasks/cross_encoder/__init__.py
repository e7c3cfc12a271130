"""Cross-encoders: how well one text answers another, from reading both at once."""

from bert_jax.tasks.cross_encoder.task import CrossEncoder

__all__ = ["CrossEncoder"]
