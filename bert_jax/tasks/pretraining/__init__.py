"""BERT's own task: masked tokens and, unless disabled, whether B really follows A."""

from bert_jax.tasks.pretraining.task import Pretraining

__all__ = ["Pretraining"]
