"""ELMo's task: the next and the previous word of each position (Peters et al. 2018)."""

from bert_jax.tasks.bidirectional_lm.task import METRICS, BidirectionalLM

__all__ = ["METRICS", "BidirectionalLM"]
