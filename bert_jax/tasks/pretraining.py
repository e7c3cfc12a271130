"""BERT's own task: masked words and, unless left out, whether B really follows A."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.models.config import BertConfig
from bert_jax.models.heads import BertForPreTraining
from bert_jax.tasks import masking, objectives
from bert_jax.tasks.objectives import Sums
from bert_jax.tasks.task import Batch


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """Masked language modelling and next sentence prediction (paper, section 3.1).

    Attributes:
      model: the encoder.
      rule: how to mask on the device; None when the batches come with masks (static).
      sequence_length, max_predictions_per_seq: of the batches.
    """

    model: BertConfig
    rule: masking.MaskingRule | None
    sequence_length: int
    max_predictions_per_seq: int

    @property
    def loss_terms(self) -> tuple[str, ...]:
        has_pairs = self.model.next_sentence
        return ("masked_lm_loss", "next_sentence_loss") if has_pairs else ("masked_lm_loss",)

    def make_model(self) -> BertForPreTraining:
        return BertForPreTraining(self.model)

    def example_batch(self) -> dict[str, jax.Array]:
        tokens = jnp.zeros((1, self.sequence_length), jnp.int32)
        examples = jnp.zeros((1, 1), jnp.int32)
        predictions = jnp.zeros((1, self.max_predictions_per_seq), jnp.int32)
        return {
            "input_ids": tokens,
            "token_type_ids": tokens,
            "position_ids": tokens,
            "example_ids": tokens + 1,
            "cls_positions": examples,
            "next_sentence_labels": examples,
            "next_sentence_weights": examples.astype(jnp.float32),
            "masked_lm_positions": predictions,
            "masked_lm_ids": predictions,
            "masked_lm_weights": predictions.astype(jnp.float32),
        }

    def transform(self, key: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        return dict(batch) if self.rule is None else masking.mask_batch(key, batch, self.rule)

    def denominators(self, batch: Batch) -> dict[str, jax.Array]:
        weights = {name: batch[name.replace("loss", "weights")] for name in self.loss_terms}
        return {name: jnp.maximum(array.sum(), 1.0) for name, array in weights.items()}

    def objective(self, outputs: Any, batch: Batch) -> Sums:
        sums = objectives.masked_lm(outputs.masked_lm_logits, batch)
        if self.model.next_sentence:
            sums |= objectives.next_sentence(outputs.next_sentence_logits, batch)
        return sums
