"""ColBERT: a vector of each token, matched by MaxSim (Khattab and Zaharia 2020)."""

from bert_jax.tasks.colbert.task import Colbert

__all__ = ["Colbert"]
