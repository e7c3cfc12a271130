"""Models as pure flax.linen modules; they know nothing of data, losses or devices."""

from bert_jax.models.bert import Bert, BertOutputs
from bert_jax.models.config import BertConfig, parameter_count
from bert_jax.models.heads import (
    BertForPreTraining,
    MaskedLMHead,
    NextSentenceHead,
    PreTrainingOutputs,
)

__all__ = [
    "Bert",
    "BertConfig",
    "BertForPreTraining",
    "BertOutputs",
    "MaskedLMHead",
    "NextSentenceHead",
    "PreTrainingOutputs",
    "parameter_count",
]
