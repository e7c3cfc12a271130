"""ELMo's encoder: characters of words, and LSTMs in both directions (Peters et al. 2018)."""

from bert_jax.models.elmo.encoder import ELMO, RULES, Elmo, ElmoConfig, flops_per_token

__all__ = ["ELMO", "RULES", "Elmo", "ElmoConfig", "flops_per_token"]
