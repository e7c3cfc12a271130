"""BERT's own task: masked tokens and, unless left out, whether B really follows A.

The host side reads texts whose [MASK]s are to be filled in: a text a line, or a JSON object a line
with `text_a` and, for a pair, `text_b`. A prediction is

    {"next_sentence": {"is_next": 0.97, "random_next": 0.03},
     "masks": [{"position": 3, "candidates": [{"token": "length", "probability": 0.41}, ...]}]}

`position` counts tokens, [CLS] being 0. "[MASK]" in the text is the special token here, unlike in
training text. `next_sentence` is null for a single text, and for a model without that head.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import defaults
from bert_jax.config.data import parse_weights
from bert_jax.config.phases import Phase, most_masks
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.labelled.texts import EncodedTexts, Text, encode_text, read_texts
from bert_jax.files.errors import UserError
from bert_jax.models.heads import (
    PreTrainingModel,
    PreTrainingOutputs,
    word_flops,
)
from bert_jax.models.model import EncoderConfig
from bert_jax.tasks import losses, masking
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.task import (
    Batch,
    Prediction,
    Task,
    TaskRow,
    TaskSettings,
    example_batch,
    windows,
)
from bert_jax.tasks.text_answers import MaskAnswers
from bert_jax.text.tokenization import Tokenizer, count_characters


@dataclasses.dataclass(frozen=True)
class Pretraining(Task):
    """Masked language modelling and next sentence prediction (paper, section 3.1).

    Attributes:
      model: the encoder.
      next_sentence: whether next sentences are predicted.
      rule: how to mask on the device; None: the batches come with masks.
      predictions_per_token: masked positions of a row divided by its length, for FLOPs.
      id_characters: number of characters of each id's piece, for bits per character; (): none.
      top_k: number of candidates for each mask in the answers; 0: there are no answers.
      num_pieces: size of the tokenizer; the model's table may have more rows.
    """

    next_sentence: bool = True
    rule: masking.MaskingRule | None = None
    predictions_per_token: float = 0.0
    id_characters: tuple[int, ...] = ()
    top_k: int = 0
    num_pieces: int = 0

    def make_model(self) -> PreTrainingModel:
        return PreTrainingModel(self.model, self.next_sentence)

    def example_batch(self) -> dict[str, jax.Array]:
        return example_batch() | {"masked_lm_positions": jnp.zeros((1, 1), jnp.int32)}

    def transform(
        self, key: jax.Array, batch: Batch, progress: jax.Array | float = 0.0
    ) -> dict[str, jax.Array]:
        if self.rule is None:
            return dict(batch)
        return masking.mask_batch(key, batch, self.rule, progress)

    def losses(self, outputs: PreTrainingOutputs, batch: Batch) -> Sums:
        sums = losses.masked_lm(outputs.masked_lm_logits, batch)
        if self.id_characters:
            characters = jnp.asarray(self.id_characters, jnp.int32)
            sums |= losses.masked_lm_bits(sums, batch, characters)
        if outputs.next_sentence_logits is not None:
            sums |= losses.next_sentence(outputs.next_sentence_logits, batch)
        if "mask_units" in batch:
            sums["masked_phrases"] = losses.masked_phrases(batch)
        return sums

    def answers(self, outputs: PreTrainingOutputs, batch: Batch) -> dict[str, jax.Array]:
        """float32[batch, masks, top_k] `probabilities`, their `tokens`; float32[batch, N, 2]."""
        if not self.top_k:
            return {}
        logits = outputs.masked_lm_logits[..., : self.num_pieces]
        probabilities, tokens = jax.lax.top_k(jax.nn.softmax(logits), self.top_k)
        answers = {"probabilities": probabilities, "tokens": tokens}
        if outputs.next_sentence_logits is not None:
            answers["next_sentence"] = jax.nn.softmax(outputs.next_sentence_logits)
        return answers

    def head_flops_per_token(self) -> float:
        return self.predictions_per_token * word_flops(self.model)


@dataclasses.dataclass(frozen=True)
class PretrainingData:
    """The host side.

    Attributes:
      metrics: empty: every mean of the device's sums is reported.
      data: `config.data`.
      next_sentence: whether next sentences are predicted.
      judges_pairs: whether that head is trained.
      top_k: candidates for each mask.
      labels: None, there are no classes.
    """

    metrics: tuple[str, ...]
    data: Mapping[str, Any]
    next_sentence: bool
    judges_pairs: bool
    top_k: int
    labels: None = None

    @property
    def can_pack(self) -> bool:
        """Whether a row may have several examples."""
        return True

    @classmethod
    def make(cls, settings: TaskSettings) -> "PretrainingData":
        """Returns the host side for a configuration."""
        untrained = {name.split("/")[0] for name in settings.untrained}
        return cls(
            metrics=settings.metrics,
            data=settings.data,
            next_sentence=settings.model["next_sentence"],
            judges_pairs="next_sentence" not in untrained,
            top_k=settings.top_k,
        )

    def with_labels(self, labels: tuple[str, ...]) -> Self:
        return self

    def make_task(
        self,
        model: EncoderConfig,
        tokenizer: Tokenizer,
        phase: Phase | None = None,
        evaluate: bool = False,
    ) -> Task:
        _check_has_mask(tokenizer)
        task, pieces = Pretraining(model, self.next_sentence), len(tokenizer.pieces)
        if phase is None:
            return dataclasses.replace(task, top_k=min(self.top_k, pieces), num_pieces=pieces)
        if evaluate:
            task = dataclasses.replace(task, id_characters=count_characters(tokenizer.pieces))
        max_predictions = phase.max_predictions_per_seq
        if self.data["mode"] == "dynamic":
            rule = self._masking_rule(tokenizer, phase, evaluate)
            task, max_predictions = dataclasses.replace(task, rule=rule), rule.max_predictions
        return dataclasses.replace(
            task, predictions_per_token=max_predictions / phase.sequence_length
        )

    def _masking_rule(
        self, tokenizer: Tokenizer, phase: Phase, evaluate: bool
    ) -> masking.MaskingRule:
        data, max_predictions = self.data, phase.max_predictions_per_seq
        prob, final_prob = data["masked_lm_prob"], data.get("final_masked_lm_prob", 0.0)
        if evaluate:
            final_prob, eval_prob = 0.0, data.get("eval_masked_lm_prob", 0.0) or prob
            if eval_prob != prob:
                prob = eval_prob
                max_predictions = most_masks(
                    phase.sequence_length,
                    prob,
                    data["mask_rounding"],
                    data.get("max_examples_per_row", 1),
                )
        return masking.MaskingRule(
            masked_lm_prob=prob,
            max_predictions=max_predictions,
            masking=data["masking"],
            vocab_size=len(tokenizer.pieces),
            mask_id=tokenizer.mask_id,
            never_masked=(tokenizer.cls_id, tokenizer.sep_id),
            is_continuation=tuple(tokenizer.is_continuation.tolist()),
            rounding=data["mask_rounding"],
            mask_share=data["mask_share"],
            keep_share=data["keep_share"],
            random_share=data["random_share"],
            unit_weights=self._unit_weights(),
            final_prob=final_prob,
        )

    def _unit_weights(self) -> tuple[float, ...]:
        """Returns the weights by the numbers in `mask_units`: of words, phrases, and classes."""
        if self.data["masking"] != "phrase":
            return ()
        return (1.0, 1.0, *parse_weights(self.data["lexicon_weights"]).values())

    def answers_of(self, rows: CorpusRows) -> "NoAnswers":
        return NoAnswers()

    def evaluate(
        self, rows: CorpusRows, predictions: Sequence[Prediction], means: Mapping[str, float]
    ) -> dict[str, float]:
        return dict(means)

    def describe_evaluation(
        self,
        training: CorpusRows | None,
        evaluation: Sequence[CorpusRows],
        origin: Mapping[str, Any],
    ) -> dict[str, Any]:
        (rows,) = evaluation
        return {
            "examples": rows.rows_per_epoch,
            "sequence_length": rows.sequence_length,
            "data": rows.fingerprint,
        }

    def check_trained(self, untrained: Collection[str], workdir: str) -> None:
        if any(name.startswith("masked_lm/") for name in untrained):
            raise UserError(
                f"The weights in {workdir} were imported without a masked-LM head: they give"
                " features (python -m bert_jax features), but cannot fill in or score words before"
                f" they are trained, with --config.init_from={workdir}."
            )

    def check_rows(self, rows: CorpusRows) -> None:
        pass

    def read(self, path: str, counts: Counter, labelled: bool) -> Iterator[Text]:
        return read_texts(path)

    def check_example(self, example: Text, tokenizer: Tokenizer, model: EncoderConfig) -> None:
        encode_text(example, tokenizer, model.max_position_embeddings, masks=True)

    def windows(self, examples: Iterable[Text]) -> Iterator[list[Text]]:
        return windows(examples)

    def encode(
        self, examples: Sequence[Text], tokenizer: Tokenizer, counts: Counter
    ) -> EncodedTexts:
        rows = [encode_text(text, tokenizer, None, masks=True) for text in examples]
        return EncodedTexts(rows, tokenizer)

    def collect(self, examples: Sequence[Text], rows: EncodedTexts) -> MaskAnswers:
        return MaskAnswers(rows, self.judges_pairs)


def _check_has_mask(tokenizer: Tokenizer) -> None:
    if tokenizer.mask_id < 0:
        raise UserError(
            "The vocabulary has no [MASK], which masked tokens need: set data.vocab to a WordPiece"
            " vocabulary or a SentencePiece model, or train on next tokens (configs/gpt.py)."
        )


class NoAnswers:
    """For an evaluation that needs the means of the sums only."""

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        pass

    def predictions(self) -> list[Prediction]:
        return []


PRETRAINING = TaskRow(
    make=PretrainingData.make,
    default_config=defaults.pretraining,
    head="",
    pools=True,
    fills_masks=True,
    example=Text,
)
