"""Embeddings: text vectors, close for texts that belong together (Reimers and Gurevych 2019)."""

from bert_jax.tasks.embedding.task import Embedding

__all__ = ["Embedding"]
