"""Next-token prediction: GPT's task (Radford et al. 2018), and BERT's as "LTR & No NSP".

The encoder's mask is causal, and each position predicts the token after it. The task reads texts,
one per line, or one JSON object per line with `text_a` and, for a pair, `text_b`. A prediction is
the probability of the text, given only its beginning marker:

    {"tokens": 5, "log_probability": -9.1, "perplexity": 6.2}

`log_probability` is in nats, the sum over the tokens of the text without markers and separators;
`perplexity` is exp(-log_probability / tokens), null for a text without tokens.
"""

import dataclasses
import math
from typing import Any, Self

import jax
import numpy as np

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.config.encoders import BertConfig
from bert_jax.config.group import derived
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.labelled.texts import EncodedTexts, Text, TextRow, encode_text
from bert_jax.files.errors import UserError
from bert_jax.models.heads import WordScores, word_flops
from bert_jax.models.model import EncoderConfig
from bert_jax.scores.language_model import perplexity, text_scores
from bert_jax.tasks.causal_lm.model import CausalLMModel
from bert_jax.tasks.losses import Sums, cross_entropy_of_scores, next_tokens, weighted_sums
from bert_jax.tasks.task import Batch, CorpusTask
from bert_jax.text.tokenization import Tokenizer

# What an evaluation reports, the first two from the device; the others follow from the loss.
METRICS = ("causal_lm_loss", "causal_lm_accuracy", "perplexity")
# Metrics that also need counts of the text, which the preparation of running text stores.
OF_RUNNING_TEXT = ("word_perplexity", "bits_per_character")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CausalLM(CorpusTask):
    """The token after each position.

    Attributes:
      metrics: some of METRICS and OF_RUNNING_TEXT.
      num_pieces: size of the tokenizer, whose pieces get probabilities; the model's table may have
        more rows. 0: there are no answers. Set by `bind`.
    """

    name: str = "causal_lm"
    num_pieces: int = derived(0)

    LM_HEAD = ("masked_lm/", "a head that predicts tokens")
    READS_FORWARD = HAS_LIKELIHOOD = True
    CAN_BE_PHASE = True
    EXAMPLE = Text

    @classmethod
    def default_config(cls) -> RunConfig:
        """Returns the defaults for predicting next tokens with BERT.

        Data, sizes and settings are those of `pretraining` (paper, section 5.1, "LTR & No NSP").
        With rows of running text, evaluations may also report word_perplexity and
        bits_per_character.
        """
        return PretrainingConfig(
            task=cls(),
            model=BertConfig(attention_pattern="causal", next_sentence=False),
            metrics=("causal_lm_loss", "causal_lm_accuracy", "perplexity"),
        )

    @property
    def known_metrics(self) -> tuple[str, ...]:
        return METRICS + OF_RUNNING_TEXT

    def for_run(self, config: RunConfig) -> Self:
        """Returns the task with the metrics and the data of a run.

        Raises:
          UserError: the model is not causal, or predicts next sentences; a metric does not exist,
            or not for such data.
        """
        _check_model(config.model)
        task, segments = super().for_run(config), config["data.segments"]
        if segments == "running_text":
            return dataclasses.replace(task, metrics=config.metrics or self.known_metrics)
        for name in config.metrics:
            if name in OF_RUNNING_TEXT:
                raise UserError(
                    f"metrics: {name} needs config.data.segments='running_text', not"
                    f" {segments!r}, whose rows are not each text once."
                )
        return dataclasses.replace(task, metrics=config.metrics or METRICS)

    @classmethod
    def as_phase(cls, model: EncoderConfig) -> "CausalLM":
        """Returns the task of a phase in which a masked language model is trained on next tokens.

        All its parameters are those of the model, in the same places: the encoder, whose attention
        is causal in this phase, and the head (arXiv 2507.00994 trains encoders this way, first on
        next tokens).

        Raises:
          UserError: the model has other heads or another attention pattern.
        """
        is_bidirectional = getattr(model, "attention_pattern", "") == "bidirectional"
        fields = ("next_sentence", "copy_head")
        if wrong := [name for name in fields if getattr(model, name, False)]:
            raise UserError(
                "phases and config.causal_share: 'causal_lm' trains the head for tokens only;"
                f" set config.model.{wrong[0]}=False."
            )
        if not isinstance(model, TransformerConfig) or not is_bidirectional:
            raise UserError(
                "phases and config.causal_share: 'causal_lm' needs an encoder with"
                " config.model.attention_pattern='bidirectional': leave them out."
            )
        return cls(model=dataclasses.replace(model, reads_forward=True))

    def check_example(self, example, tokenizer, model):
        encode_text(example, tokenizer, model.max_position_embeddings)

    def encode(self, examples, tokenizer, counts) -> EncodedTexts:
        rows = [self.begin(encode_text(text, tokenizer, None), tokenizer) for text in examples]
        return EncodedTexts(rows, tokenizer)

    def begin(self, row: TextRow, tokenizer: Tokenizer) -> TextRow:
        """Returns a text with the marker that texts begin with in the training rows."""
        if self.data.segments != "running_text" or tokenizer.cls_id < 0:
            return row
        ids = row.input_ids.copy()
        ids[0] = tokenizer.sep_id
        return dataclasses.replace(row, input_ids=ids)

    def bind(self, model, tokenizer, phase=None, evaluate=False):
        num_pieces = 0 if phase else len(tokenizer.pieces)
        return dataclasses.replace(self, model=model, num_pieces=num_pieces)

    def make_model(self) -> CausalLMModel:
        return CausalLMModel(self.model)

    def losses(self, outputs: WordScores, batch: Batch) -> Sums:
        """Cross-entropy and accuracy of the token after each position."""
        labels, weights = next_tokens(batch)
        losses, hits = cross_entropy_of_scores(outputs, labels)
        return weighted_sums("causal_lm", losses, hits, weights)

    def answers(self, outputs: WordScores, batch: Batch) -> dict[str, jax.Array]:
        """float32[batch, seq] `log_probabilities` of the token after each position."""
        if not self.num_pieces:
            return {}
        table, bias = outputs.table[: self.num_pieces], outputs.bias[: self.num_pieces]
        labels, _ = next_tokens(batch)
        scores = dataclasses.replace(outputs, table=table, bias=bias)
        values, _ = cross_entropy_of_scores(scores, labels)
        return {"log_probabilities": -values}

    def log_probabilities(self, params: Any, batch: Batch) -> jax.Array:
        """float32[batch, seq]: ln p of the token after each position, given those up to it."""
        outputs: Any = self.make_model().apply({"params": params}, batch, deterministic=True)
        return self.answers(outputs, batch)["log_probabilities"]

    def head_flops_per_token(self) -> float:
        return word_flops(self.model)

    def collect(self, examples, rows: EncodedTexts, answers):
        """`tokens`, `log_probability` and `perplexity` of each text."""
        predictions = []
        for row, answer in zip(rows.rows, answers, strict=True):
            values = answer["log_probabilities"][predicted_positions(row) - 1].tolist()
            predictions.append(
                {
                    "tokens": len(values),
                    "log_probability": (total := math.fsum(values)),
                    "perplexity": perplexity(-total / len(values)) if values else None,
                }
            )
        return predictions

    def evaluate(self, rows: CorpusRows, answers, means):
        loss = means["causal_lm_loss"]
        values = {**means, "perplexity": perplexity(loss)}
        if "word_perplexity" in self.metrics or "bits_per_character" in self.metrics:
            values |= text_scores(loss, rows.text_counts)
        return {"loss": values["loss"], **{name: values[name] for name in self.metrics}}, []


def predicted_positions(row: TextRow) -> np.ndarray:
    """int32[...]: the positions of a text's tokens, except a first one with nothing before it."""
    return row.word_positions[row.word_positions > 0]


def _check_model(model: EncoderConfig) -> None:
    if model.next_sentence:
        raise UserError(
            "model.next_sentence=True: config.task.name='causal_lm' predicts next tokens only;"
            " set config.model.next_sentence=False."
        )
    if not model.is_causal:
        mask = getattr(model, "attention_pattern", None)
        found = f"not {mask!r}" if mask else f"which config.model.name={model.name!r} lacks"
        raise UserError(
            "task.name='causal_lm' predicts each token from those before it and needs"
            f" config.model.attention_pattern='causal', {found}."
        )
