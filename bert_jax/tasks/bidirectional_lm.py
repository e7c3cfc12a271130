"""ELMo's task: the next word from left to right, and the previous one from right to left.

The data are streams (corpus/streams.py), and the states of the encoder are carried from each batch
to the next one. The host side reads texts, a text a line, or a JSON object a line with `text_a`. A
prediction is the probability of a text on its own, in both directions:

    {"tokens": 5, "forward_log_probability": -30.1, "backward_log_probability": -29.4,
     "perplexity": 142.6}

Both are sums in nats over the tokens of the text and the end of the text (in the backward
direction, its beginning); `perplexity` is exp of their negative mean for one token.
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import defaults
from bert_jax.config.phases import Phase
from bert_jax.corpus.batch import EvaluationBatch
from bert_jax.corpus.rows import CorpusRows
from bert_jax.corpus.streams import StreamFormat
from bert_jax.examples.texts import Text
from bert_jax.models import MODELS, make_encoder
from bert_jax.models.bidirectional_lm import (
    SOFTMAXES,
    BidirectionalLanguageModel,
    BidirectionalOutputs,
)
from bert_jax.models.heads import WordScores
from bert_jax.models.model import EncoderConfig
from bert_jax.models.sampled_softmax import sampled_cross_entropy
from bert_jax.tasks import health
from bert_jax.tasks.objectives import Sum, Sums, cross_entropy_of_scores
from bert_jax.tasks.pretraining import PretrainingData
from bert_jax.tasks.task import Batch, Prediction, TaskRow, TaskSettings
from bert_jax.text.tokenization import Tokenizer

# What an evaluation may report; the rest follow from the first ones.
METRICS = (
    *("bidirectional_lm_loss", "bidirectional_lm_accuracy", "forward_loss", "backward_loss"),
    *("perplexity", "forward_perplexity", "backward_perplexity"),
    *("word_perplexity", "bits_per_character"),
)
# exp of more overflows; a model with such a loss has diverged.
_LARGEST_EXPONENT = 700.0
_SHORTEST = 16


@dataclasses.dataclass(frozen=True)
class BidirectionalLM:
    """The device side.

    Attributes:
      model: the encoder.
      sequence_length: of the batches.
      num_samples: words of the sampled softmax; 0: the softmax of all words.
      vocab_size: of the tokenizer.
      sum_over_time: whether the gradient is that of the loss times the length of a row.
    """

    model: EncoderConfig
    sequence_length: int = 8
    num_samples: int = 0
    vocab_size: int = 0
    sum_over_time: bool = True

    @property
    def loss_terms(self) -> tuple[str, ...]:
        return ("bidirectional_lm_loss",)

    def at_phase(self, phase: Phase) -> "BidirectionalLM":
        return dataclasses.replace(self, sequence_length=phase.sequence_length)

    def make_model(self) -> BidirectionalLanguageModel:
        return BidirectionalLanguageModel(self.model, self.num_samples, self.vocab_size)

    def example_batch(self) -> dict[str, jax.Array]:
        ids = jnp.zeros((1, self.sequence_length), jnp.int32)
        names = ("input_ids", "next_ids", "reverse_ids", "previous_ids")
        batch = dict.fromkeys(names, ids) | {"example_ids": ids + 1}
        return batch | {"target_weights": jnp.ones(ids.shape, jnp.float32)}

    def transform(self, key: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        return dict(batch)

    def denominators(self, batch: Batch) -> dict[str, jax.Array]:
        """Twice the number of slots; bilm-tf multiplies the loss by the length of a row."""
        total = 2 * jnp.maximum(batch["target_weights"].sum(), 1.0)
        length = batch["input_ids"].shape[1] if self.sum_over_time else 1
        return {"bidirectional_lm_loss": total / length}

    def objective(self, outputs: BidirectionalOutputs, batch: Batch) -> Sums:
        """Returns the losses of both directions and their mean; with all words also accuracy."""
        weights = batch["target_weights"]
        total = weights.sum()
        losses, hits = zip(*self._losses(outputs, batch), strict=True)
        forward, backward = ((of_slots * weights).sum() for of_slots in losses)
        sums = {
            "bidirectional_lm_loss": Sum(forward + backward, 2 * total),
            "forward_loss": Sum(forward, total),
            "backward_loss": Sum(backward, total),
        }
        if not outputs.samples:
            num_hits = ((hits[0] + hits[1]) * weights).sum()
            sums["bidirectional_lm_accuracy"] = Sum(num_hits, 2 * total)
        return sums

    def _losses(
        self, outputs: BidirectionalOutputs, batch: Batch
    ) -> Iterator[tuple[jax.Array, jax.Array]]:
        """Yields float32[batch, seq] losses and hits of each direction; a sample has no hits."""
        both = (outputs.forward, batch["next_ids"]), (outputs.backward, batch["previous_ids"])
        for number, (scores, labels) in enumerate(both):
            if not outputs.samples:
                yield cross_entropy_of_scores(scores, labels)
                continue
            sample, words = outputs.samples[number], (scores.table, scores.bias)
            losses = sampled_cross_entropy(scores.features, labels, *words, sample, self.vocab_size)
            yield losses, jnp.zeros_like(losses)

    def answers(self, outputs: BidirectionalOutputs, batch: Batch) -> dict[str, jax.Array]:
        return {}

    def head_flops_per_token(self) -> float:
        """Of both directions."""
        words = self.num_samples or self.model.padded_vocab_size
        return 2 * 2.0 * words * (self.model.hidden_size // 2)

    def init_carry(self, batch_size: int) -> Any:
        encoder: Any = make_encoder(self.model)
        return encoder.init_carry(batch_size)

    def carry_of(self, outputs: BidirectionalOutputs) -> Any:
        return outputs.carry


@dataclasses.dataclass(frozen=True)
class TextProbabilities(BidirectionalLM):
    """The same model, whose answers are the probabilities of whole texts."""

    def answers(self, outputs: BidirectionalOutputs, batch: Batch) -> dict[str, jax.Array]:
        """float32[batch] `forward` and `backward`, in nats."""
        losses = []
        for scores, name in (outputs.forward, "next_ids"), (outputs.backward, "previous_ids"):
            table, bias = scores.table[: self.vocab_size], scores.bias[: self.vocab_size]
            words = WordScores(scores.features, table, bias)
            losses.append(cross_entropy_of_scores(words, batch[name])[0])
        forward, backward = (-(loss * batch["target_weights"]).sum(axis=1) for loss in losses)
        return {"forward": forward, "backward": backward}


@dataclasses.dataclass(frozen=True)
class BidirectionalLMData(PretrainingData):
    """The host side.

    Attributes:
      metrics: what is reported, all of METRICS if empty.
      num_samples, sum_over_time: see `BidirectionalLM`.
    """

    num_samples: int = 0
    sum_over_time: bool = True

    @classmethod
    def make(cls, settings: TaskSettings) -> "BidirectionalLMData":
        """Returns the host side for a configuration.

        Raises:
          ValueError: the encoder carries no state; or a softmax or a metric does not exist.
        """
        name, head = settings.model["name"], settings.head
        if name in MODELS and not hasattr(MODELS[name].encoder, "language_model"):
            raise ValueError(
                "config.task='bidirectional_lm' needs an encoder that carries a state in both"
                f" directions, such as config.model.name='elmo', not {name!r}."
            )
        if head["softmax"] not in SOFTMAXES:
            raise ValueError(
                f"config.head.softmax={head['softmax']!r} is none of {', '.join(SOFTMAXES)}."
            )
        for metric in settings.metrics:
            if metric not in METRICS:
                raise ValueError(f"config.metrics: {metric!r} is none of {', '.join(METRICS)}.")
        return cls(
            metrics=settings.metrics or METRICS,
            data=settings.data,
            next_sentence=False,
            judges_pairs=False,
            top_k=1,
            batch_tokens=settings.batch_tokens,
            num_samples=head["num_samples"] if head["softmax"] == "sampled" else 0,
            sum_over_time=head["sum_over_time"],
        )

    def make_task(self, model: EncoderConfig, tokenizer: Tokenizer) -> BidirectionalLM:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the device side.

        Raises:
          ValueError: more words would be sampled than there are.
        """
        if self.num_samples >= (words := min(len(tokenizer.pieces), model.vocab_size)):
            raise ValueError(
                f"config.head.num_samples={self.num_samples} must be below the number of words,"
                f" {words}: lower it, or set config.head.softmax='full'."
            )
        return BidirectionalLM(
            model,
            num_samples=self.num_samples,
            vocab_size=words,
            sum_over_time=self.sum_over_time,
        )

    def make_predictor(self, model: EncoderConfig, tokenizer: Tokenizer) -> TextProbabilities:  # pyright: ignore[reportIncompatibleMethodOverride]
        return TextProbabilities(model, vocab_size=min(len(tokenizer.pieces), model.vocab_size))

    def check_rows(self, rows: CorpusRows) -> None:
        """Refuses to sample words that are not sorted by frequency.

        Raises:
          ValueError: the log-uniform distribution fits the text worse than a uniform one.
        """
        size = len(rows.manifest.tokenizer().pieces)
        loss = rows.statistics["log_uniform_loss"]
        if self.num_samples and loss > math.log(size):
            raise ValueError(
                f"The words of {rows.manifest.vocabulary_path} are not sorted by frequency, which"
                " config.head.softmax='sampled' assumes: sort them, train a vocabulary with"
                " config.data.vocab='train:words', or set config.head.softmax='full'."
            )

    def evaluate(
        self, rows: CorpusRows, predictions: Sequence[Prediction], means: Mapping[str, float]
    ) -> dict[str, float]:
        values, text = dict(means), rows.text_counts
        for perplexity, loss in (
            ("perplexity", "bidirectional_lm_loss"),
            ("forward_perplexity", "forward_loss"),
            ("backward_perplexity", "backward_loss"),
        ):
            values[perplexity] = _exp(values[loss])
        nats = values["bidirectional_lm_loss"] * text["predicted_tokens"]
        values["word_perplexity"] = _exp(nats / text["words"])
        values["bits_per_character"] = nats / text["characters"] / math.log(2)
        return {"loss": values["loss"], **{name: values[name] for name in self.metrics}}

    def verdict(
        self, values: Mapping[str, float], training: CorpusRows, evaluation: Sequence[CorpusRows]
    ) -> list[str]:
        loss, accuracy = values["loss"], values.get("bidirectional_lm_accuracy")
        return health.next_token_verdict(
            loss, accuracy, training.statistics, evaluation[0].statistics
        )

    def check_trained(self, untrained: Collection[str], workdir: str) -> None:
        if any(name.startswith("softmax/") for name in untrained):
            raise ValueError(
                f"The weights in {workdir} were imported without a softmax: they give features"
                " (python -m bert_jax features), but no probabilities of texts before they are"
                f" trained, with --config.init_from={workdir}."
            )

    def check_example(self, example: Text, tokenizer: Tokenizer, model: EncoderConfig) -> None:
        if example.text_b is not None:
            raise ValueError(
                f"{example.where} is a pair, and a bidirectional language model reads single"
                " texts: leave out `text_b`."
            )

    def encode(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, examples: Sequence[Text], tokenizer: Tokenizer, counts: Counter
    ) -> "EncodedTexts":
        return EncodedTexts([tokenizer.encode(text.text_a) for text in examples], tokenizer)

    def collect(self, examples: Sequence[Text], rows: "EncodedTexts") -> "TextAnswers":  # pyright: ignore[reportIncompatibleMethodOverride]
        return TextAnswers(rows)

    def prediction_batches(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, rows: "EncodedTexts", model: EncoderConfig, shards: int
    ) -> Iterator[EvaluationBatch]:
        """Yields batches of texts, the longest first, padded to powers of two."""
        order = np.argsort([-len(ids) for ids in rows.ids], kind="stable")
        while order.size:
            slots = len(rows.ids[order[0]]) + 1
            length = max(_SHORTEST, 1 << (slots - 1).bit_length())
            size = max(1, self.batch_tokens // length // shards) * shards
            numbers, order = order[:size], order[size:]
            numbers = np.pad(numbers, (0, size - numbers.size), constant_values=-1)
            yield EvaluationBatch(numbers, length, functools.partial(rows.read, numbers, length))


@dataclasses.dataclass(frozen=True)
class EncodedTexts:
    """Texts as ids, without markers, and the tokenizer that made them."""

    ids: list[list[int]]
    tokenizer: Tokenizer

    def read(self, numbers: np.ndarray, length: int, start: int, stop: int) -> dict[str, Any]:
        """Returns texts numbers[start:stop] as rows of streams of `length` slots; -1: padding."""
        first, last = self.tokenizer.cls_id, self.tokenizer.sep_id
        size, pad = len(self.tokenizer.pieces), self.tokenizer.pad_id
        form = StreamFormat(length, vocab_size=size, pad_id=pad, cls_id=first, sep_id=last)
        rows = []
        for number in numbers[start:stop].tolist():
            ids = self.ids[number]
            both = [first, *ids, first], [last, *reversed(ids), last]
            rows.append(form.padding if number < 0 else tuple(map(np.array, both)))
        return form.make_batch(rows)


class TextAnswers:
    """The probabilities of all texts."""

    def __init__(self, texts: EncodedTexts):
        self._texts = texts
        self._predictions: list[Prediction] = [{}] * len(texts.ids)

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        for place, number in enumerate(row_numbers.tolist()):
            if number >= 0:
                forward, backward = (float(answers[x][place]) for x in ("forward", "backward"))
                tokens = len(self._texts.ids[number])
                self._predictions[number] = {
                    "tokens": tokens,
                    "forward_log_probability": forward,
                    "backward_log_probability": backward,
                    "perplexity": _exp(-(forward + backward) / (2 * tokens + 2)),
                }

    def predictions(self) -> list[Prediction]:
        """The log-probabilities and the perplexity of each text."""
        return self._predictions


def _exp(value: float) -> float:
    return math.exp(min(value, _LARGEST_EXPONENT))


BIDIRECTIONAL_LM = TaskRow(
    make=BidirectionalLMData.make,
    default_config=defaults.bidirectional_lm,
    head="",
    pools=False,
    huggingface_class="",
    reads_streams=True,
)
