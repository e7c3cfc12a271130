"""BERT's own task: masked tokens and, unless disabled, whether B really follows A.

The task reads texts whose [MASK]s are to be filled in: one per line, or one JSON object per line
with `text_a` and, for a pair, `text_b`. A prediction is

    {"next_sentence": {"is_next": 0.97, "random_next": 0.03},
     "masks": [{"position": 3, "candidates": [{"token": "length", "probability": 0.41}, ...]}]}

`position` counts tokens, [CLS] being 0. "[MASK]" in the text is the special token here, unlike in
training text. `next_sentence` is null for a single text, and for a model without that head.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.data import parse_weights
from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.config.group import derived
from bert_jax.config.phases import Phase, max_masks
from bert_jax.config.run import RunConfig
from bert_jax.data.labelled.texts import EncodedTexts, Text, TextRow, encode_text
from bert_jax.files.errors import UserError
from bert_jax.models.bert import feed_forward_flops, query_flops
from bert_jax.models.copy_head import copy_flops
from bert_jax.models.heads import PreTrainingModel, PreTrainingOutputs, word_flops
from bert_jax.tasks import losses
from bert_jax.tasks.losses import Sum, Sums, metric
from bert_jax.tasks.pretraining import masking
from bert_jax.tasks.pretraining.copying import cross_entropy_of_copies
from bert_jax.tasks.task import (
    Answer,
    Batch,
    CorpusTask,
    Prediction,
    example_batch,
)
from bert_jax.text.lexicon import PHRASE
from bert_jax.text.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining(CorpusTask):
    """Masked language modelling and next sentence prediction (paper, section 3.1).

    Attributes:
      metrics: empty: every mean of the device's sums is reported.
      next_sentence: whether next sentences are predicted.
      judges_pairs: whether the next-sentence head is trained.
      top_k: candidates for each mask in the answers.
      rule: masking on the device; None: the batches come with masks. This and what follows is set
        by `bind`.
      mask_id: id of [MASK], for a copy head.
      sequence_length, max_predictions: positions and slots of a row, for FLOPs.
      id_characters: number of characters of each id's piece, for bits per character; (): none.
      num_pieces: size of the tokenizer; the model's table may have more rows. 0: there are no
        answers.
    """

    name: str = "pretraining"
    next_sentence: bool = derived(True)
    judges_pairs: bool = derived(True)
    top_k: int = derived(5)
    rule: masking.MaskingRule | None = derived(None)
    mask_id: int = derived(-1)
    sequence_length: int = derived(1)
    max_predictions: int = derived(0)
    id_characters: tuple[int, ...] = derived(())
    num_pieces: int = derived(0)

    POOLS = True
    FILLS_MASKS = True
    EXAMPLE = Text

    def for_run(self, config: RunConfig) -> Self:
        next_sentence = config.model.next_sentence
        return dataclasses.replace(super().for_run(config), next_sentence=next_sentence)

    def with_untrained(self, untrained):
        heads = {path.split("/")[0] for path in untrained}
        return dataclasses.replace(self, judges_pairs="next_sentence" not in heads)

    def check_example(self, example, tokenizer, model):
        encode_text(example, tokenizer, model.max_position_embeddings, masks=True)

    def check_question(self, example, tokenizer, model):
        row = encode_text(example, tokenizer, model.max_position_embeddings, masks=True)
        if row.masked or (row.is_pair and self.next_sentence and self.judges_pairs):
            return
        pairs = ", and this model judges no pairs" if row.is_pair else ""
        raise UserError(
            f"{example.where} has no [MASK]{pairs}: nothing to predict. Write [MASK] for each token"
            " to fill in; for vectors use encode, for labels fine-tune the model."
        )

    def encode(self, examples, tokenizer, counts) -> EncodedTexts:
        rows = [encode_text(text, tokenizer, None, masks=True) for text in examples]
        return EncodedTexts(rows, tokenizer)

    def bind(self, model, tokenizer, phase=None, evaluate=False):
        if tokenizer.mask_id < 0:
            raise UserError(
                "The vocabulary has no [MASK], which masked tokens need: set data.vocab to a"
                " WordPiece vocabulary or a SentencePiece model, or train on next tokens"
                " (configs/gpt.py)."
            )
        pieces = len(tokenizer.pieces)
        bound = {"model": model, "mask_id": tokenizer.mask_id, "top_k": min(self.top_k, pieces)}
        task = dataclasses.replace(self, **bound)
        if phase is None:
            return dataclasses.replace(task, num_pieces=pieces)
        if evaluate:
            task = dataclasses.replace(task, id_characters=tokenizer.piece_lengths())
        max_predictions = phase.max_predictions_per_seq
        if self.data.mode == "dynamic":
            rule = self._masking_rule(tokenizer, phase, evaluate)
            task, max_predictions = dataclasses.replace(task, rule=rule), rule.max_predictions
        length = phase.sequence_length
        return dataclasses.replace(task, sequence_length=length, max_predictions=max_predictions)

    def _masking_rule(
        self, tokenizer: Tokenizer, phase: Phase, evaluate: bool
    ) -> masking.MaskingRule:
        data, max_predictions = self.data, phase.max_predictions_per_seq
        prob, final_prob = data.masked_lm_prob, data.final_masked_lm_prob
        is_exact = (rounding := data.mask_rounding) == "row"
        if is_exact:  # the phase has the rate of its stage
            final_prob = 0.0
        if evaluate:
            final_prob, eval_prob = 0.0, data.eval_masked_lm_prob or prob
            rounding = "half_even" if is_exact else rounding
            if is_exact or eval_prob != prob:
                prob, per_row = eval_prob, data.max_examples_per_row
                max_predictions = max_masks(phase.sequence_length, prob, rounding, per_row)
        return masking.MaskingRule(
            masked_lm_prob=prob,
            max_predictions=max_predictions,
            masking=data.masking,
            vocab_size=len(tokenizer.pieces),
            mask_id=tokenizer.mask_id,
            never_masked=(tokenizer.cls_id, tokenizer.sep_id),
            is_continuation=tuple(tokenizer.is_continuation.tolist()),
            rounding=rounding,
            mask_share=data.mask_share,
            random_share=data.random_share,
            unit_weights=self._unit_weights(),
            final_prob=final_prob,
        )

    def _unit_weights(self) -> tuple[float, ...]:
        """Returns the weights by the numbers in `mask_units`: of words, phrases, and classes."""
        if self.data.masking != "phrase":
            return ()
        return (1.0, 1.0, *parse_weights(self.data.lexicon_weights).values())

    def make_model(self) -> PreTrainingModel:
        return PreTrainingModel(self.model, self.next_sentence, self.mask_id)

    def example_batch(self) -> dict[str, jax.Array]:
        return example_batch() | {"masked_lm_positions": jnp.zeros((1, 1), jnp.int32)}

    def transform(self, key, batch, progress=0.0):
        if self.rule is None:
            return dict(batch)
        return masking.mask_batch(key, batch, self.rule, progress)

    def losses(self, outputs: PreTrainingOutputs, batch: Batch) -> Sums:
        ids, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
        logits, copies = outputs.masked_lm_logits, outputs.copies
        if copies is None:
            sums = losses.classify("masked_lm", logits, ids, weights)
        else:
            values, hits = cross_entropy_of_copies(logits, copies, ids)
            sums = losses.weighted_sums("masked_lm", values, hits, weights)
        if self.id_characters:  # a loss that can be compared between vocabularies
            characters = (jnp.asarray(self.id_characters, jnp.int32)[ids] * weights).sum()
            bits = sums["masked_lm_loss"].numerator / np.log(2)
            sums["masked_lm_bits_per_character"] = metric(bits, characters)
        if outputs.next_sentence_logits is not None:
            labels, weights = batch["next_sentence_labels"], batch["next_sentence_weights"]
            sums |= losses.classify("next_sentence", outputs.next_sentence_logits, labels, weights)
        if "mask_units" in batch:
            sums["masked_phrases"] = _masked_phrases(batch)
        return sums

    def distilled_losses(self, outputs, teacher, batch, temperature):
        """The divergences of masked tokens and, where they are predicted, of next sentences."""
        words = self.model.vocab_size  # without the rows that pad the table
        logits, targets = (x.masked_lm_logits[..., :words] for x in (outputs, teacher))
        values = losses.divergence(logits, targets, temperature)
        sums = {"masked_lm_loss": losses.weighted_sum(values, batch["masked_lm_weights"])}
        if outputs.next_sentence_logits is not None:
            pairs = outputs.next_sentence_logits, teacher.next_sentence_logits
            values, weights = losses.divergence(*pairs, temperature), batch["next_sentence_weights"]
            sums["next_sentence_loss"] = losses.weighted_sum(values, weights)
        return sums

    def answers(self, outputs: PreTrainingOutputs, batch: Batch) -> dict[str, jax.Array]:
        """[batch, masks, top_k] `probabilities`, float32, `tokens`, int32; also `next_sentence`."""
        if not self.num_pieces:
            return {}
        probabilities = outputs.probabilities(self.num_pieces)
        probabilities, tokens = jax.lax.top_k(probabilities, self.top_k)
        answers = {"probabilities": probabilities, "tokens": tokens}
        if outputs.next_sentence_logits is not None:
            answers["next_sentence"] = jax.nn.softmax(outputs.next_sentence_logits)
        return answers

    def head_flops_per_token(self) -> float:
        length, predictions = self.sequence_length, self.max_predictions
        flops = predictions * word_flops(self.model)
        if self.model.has_copy_head:
            flops += copy_flops(self.model, length, predictions)
        if isinstance(self.model, TransformerConfig) and self.model.last_layer_predicted_only:
            # What the encoder's own FLOPs overcount.
            copies = self.model.has_copy_head
            unread = feed_forward_flops(self.model) if copies else query_flops(self.model, length)
            flops -= (length - predictions) * unread
        return flops / length

    def collect(self, examples, rows: EncodedTexts, answers):
        """`next_sentence` and `masks` of each text."""
        pieces = rows.tokenizer.pieces
        return [self._fill(*both, pieces) for both in zip(rows.rows, answers, strict=True)]

    def _fill(self, row: TextRow, answer: Answer, pieces: Sequence[str]) -> Prediction:
        masks = [
            {
                "position": position,
                "candidates": [
                    {"token": pieces[token], "probability": float(probability)}
                    for token, probability in zip(tokens, probabilities, strict=True)
                ],
            }
            for position, tokens, probabilities in zip(
                row.masked, answer["tokens"], answer["probabilities"], strict=False
            )
        ]
        pair = None
        if row.is_pair and self.judges_pairs and "next_sentence" in answer:
            is_next, random_next = map(float, answer["next_sentence"])
            pair = {"is_next": is_next, "random_next": random_next}
        return {"next_sentence": pair, "masks": masks}


def mask_log_probabilities(
    network: nn.Module, num_pieces: int, params: Any, batch: Batch
) -> jax.Array:
    """Returns float32[batch, masks], ln p of `masked_lm_ids`, the pieces under the masks.

    The table of the model may have more rows than the vocabulary has pieces, `num_pieces`.
    """
    outputs: Any = network.apply({"params": params}, batch, deterministic=True)
    log_probs = outputs.log_probabilities(num_pieces)
    answers = batch["masked_lm_ids"][:, :, None]
    return jnp.take_along_axis(log_probs, answers, axis=2)[:, :, 0]


def _masked_phrases(batch: Batch) -> Sum:
    """Returns the share of the phrases that are masked."""
    begins = batch["mask_units"] >= PHRASE  # int8[batch, seq]
    masked = jnp.take_along_axis(begins, batch["masked_lm_positions"], axis=1)
    numerator = (masked * batch["masked_lm_weights"]).sum()
    return metric(numerator, begins.sum().astype(jnp.float32))
