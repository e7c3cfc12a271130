"""Cross-encoders: how well a text answers another one, by reading both at once."""

from bert_jax.tasks.cross_encoder.task import CrossEncoder

__all__ = ["CrossEncoder"]
