"""GPT's task: the next token (Radford et al. 2018)."""

from bert_jax.tasks.causal_lm.task import METRICS, CausalLM

__all__ = ["METRICS", "CausalLM"]
