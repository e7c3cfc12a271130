"""SPLADE: sparse vectors of texts, weights of words (Formal et al. 2021, arXiv 2109.10086)."""

from bert_jax.tasks.splade.task import Splade

__all__ = ["Splade"]
