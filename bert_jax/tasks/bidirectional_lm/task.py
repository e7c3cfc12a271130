"""ELMo's task: the next word from left to right, and the previous one from right to left.

The data are streams (corpus/streams.py), and the states of the encoder are carried from each batch
to the next one. The task reads texts, one per line, or one JSON object per line with `text_a`. A
prediction is the probability of a text on its own, in both directions:

    {"tokens": 5, "forward_log_probability": -30.1, "backward_log_probability": -29.4,
     "perplexity": 142.6}

Both are sums in nats over the tokens of the text and the end of the text (in the backward
direction, its beginning); `perplexity` is exp of their negative mean per token.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.data import DataConfig
from bert_jax.config.encoders import ElmoConfig
from bert_jax.config.group import derived, setting
from bert_jax.config.groups import OptimizerConfig
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.corpus.streams import StreamFormat
from bert_jax.data.labelled.texts import Text, TextRow
from bert_jax.files.errors import UserError
from bert_jax.models import MODELS
from bert_jax.models.heads import WordScores
from bert_jax.scores.language_model import perplexity, text_scores
from bert_jax.tasks.bidirectional_lm.model import (
    BidirectionalLanguageModel,
    BidirectionalOutputs,
)
from bert_jax.tasks.bidirectional_lm.sampled_softmax import sampled_cross_entropy
from bert_jax.tasks.losses import Sum, Sums, cross_entropy_of_scores, metric
from bert_jax.tasks.task import (
    Batch,
    CorpusTask,
    example_batch,
)
from bert_jax.text.tokenization import Tokenizer

# What an evaluation may report; the rest follow from the first ones.
METRICS = (
    *("bidirectional_lm_loss", "bidirectional_lm_accuracy", "forward_loss", "backward_loss"),
    *("perplexity", "forward_perplexity", "backward_perplexity"),
    *("word_perplexity", "bits_per_character"),
)


@dataclasses.dataclass(frozen=True)
class WholeTexts:
    """Texts as ids, without markers, and the tokenizer that made them."""

    ids: list[list[int]]
    tokenizer: Tokenizer

    @property
    def lengths(self) -> np.ndarray:
        """int64[texts] in slots of a stream, one more than the text has tokens."""
        return np.array([len(ids) + 1 for ids in self.ids], np.int64)

    def take(self, row_numbers: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns texts as rows of streams of `length` slots; -1: padding."""
        first, last = self.tokenizer.cls_id, self.tokenizer.sep_id
        size, others = len(self.tokenizer.pieces), (self.tokenizer.pad_id, self.tokenizer.unk_id)
        form = StreamFormat(length, size, others[0], first, last, others[1], num_words=size)
        rows = []
        for number in row_numbers.tolist():
            ids = self.ids[number]
            both = [first, *ids, first], [last, *reversed(ids), last]
            rows.append(form.padding if number < 0 else tuple(map(np.array, both)))
        return form.make_batch(rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BidirectionalLM(CorpusTask):
    """The next and the previous word of each position.

    Attributes:
      metrics: metrics to report; all of METRICS if empty.
      num_words: number of words that are predicted, those with the first ids; the others count as
        `unk_id`. `bind` lowers it to the size of the tokenizer, if that is smaller.
      unk_id: id of the unknown word, set by `bind`.
      predicts: whether the answers are the probabilities of whole texts, set by `bind`.
    """

    name: str = "bidirectional_lm"
    # Softmax of the training loss: `full`, or `sampled` from a vocabulary that is sorted by
    # frequency. Evaluations use the full softmax.
    softmax: str = setting("sampled", choices=("full", "sampled"))
    # Negative samples per step of the sampled softmax.
    num_samples: int = setting(8192)
    # Whether to sum the loss over the positions of a row, as in bilm-tf, which matters for clipping
    # and Adagrad; otherwise it is the mean over all words.
    sum_over_time: bool = setting(True)
    num_words: int = derived(0)
    unk_id: int = derived(0)
    predicts: bool = derived(False)

    LM_HEAD = ("softmax/", "a softmax")
    HAS_LIKELIHOOD = READS_STREAMS = True
    EXAMPLE = Text

    @classmethod
    def default_config(cls) -> RunConfig:
        """Returns the defaults for ELMo's pre-training, the settings of bilm-tf's `train_elmo.py`.

        The model has 93.6 million parameters, and the softmax 407 million (Peters et al. 2018). A
        row's length is the number of time steps over which the gradient is computed; states are
        carried from row to row.
        """
        return PretrainingConfig(
            task=cls(),
            epochs=10.0,
            phases=((20, 1.0),),
            global_batch_size=3 * 128,
            model=ElmoConfig(),
            data=DataConfig(
                line_format="sentences", segments="stream", vocab="train:words", lowercase=False
            ),
            optimizer=OptimizerConfig(
                name="adagrad",
                learning_rate=0.2,
                schedule="constant",
                warmup="0",
                weight_decay=0.0,
                initial_accumulator=1.0,
                clip_norm=10.0,
            ),
            metrics=METRICS,
        )

    @property
    def known_metrics(self) -> tuple[str, ...]:
        return METRICS

    def for_run(self, config: RunConfig) -> Self:
        """Returns the task with the metrics and the words of a run.

        Raises:
          UserError: the encoder carries no state; or a metric does not exist.
        """
        name = config.model.name
        if name in MODELS and not hasattr(MODELS[name].encoder, "language_model"):
            raise UserError(
                "task.name='bidirectional_lm' needs an encoder that carries a state in both"
                f" directions, such as config.model.name='elmo', not {name!r}."
            )
        return dataclasses.replace(
            super().for_run(config),
            metrics=config.metrics or METRICS,
            num_words=config.model.vocab_size,
        )

    @property
    def num_sampled(self) -> int:
        """Words of the sampled softmax; 0: the softmax of all words."""
        return self.num_samples if self.softmax == "sampled" and not self.predicts else 0

    def check_rows(self, rows: CorpusRows) -> None:
        """Refuses to sample words that are not sorted by frequency, and data for other words.

        Raises:
          UserError: the log-uniform distribution fits the text worse than a uniform one; or the
            data were prepared to predict another number of words.
        """
        manifest = rows.manifest
        form = manifest.content["formats"][str(rows.sequence_length)]
        if form["num_words"] != (words := min(self.num_words, form["vocab_size"])):
            raise UserError(
                f"The data in {manifest.folder} were prepared to predict {form['num_words']} words,"
                f" not {words}: set config.model.vocab_size={form['num_words']}, or prepare them"
                " again in another config.data.dir."
            )
        if self.num_sampled and rows.statistics["log_uniform_loss"] > math.log(words):
            raise UserError(
                f"The words of {manifest.vocabulary_path} are not sorted by frequency, which"
                " config.task.softmax='sampled' assumes: sort them, train a vocabulary with"
                " config.data.vocab='train:words', or set config.task.softmax='full'."
            )

    def check_example(self, example, tokenizer, model):
        if example.text_b is not None:
            raise UserError(
                f"{example.where} is a pair, and a bidirectional language model reads single"
                " texts: leave out `text_b`."
            )

    def encode(self, examples, tokenizer, counts) -> WholeTexts:
        return WholeTexts([tokenizer.encode(text.text_a) for text in examples], tokenizer)

    def bind(self, model, tokenizer, phase=None, evaluate=False):
        """Returns the task for an encoder.

        Raises:
          UserError: `num_samples` is not below the number of words.
        """
        # A tokenizer of words may know more of them than its vocabulary has.
        size = getattr(tokenizer, "vocabulary_size", len(tokenizer.pieces))
        bound = {"model": model, "num_words": min(size, model.vocab_size)}
        task = dataclasses.replace(self, unk_id=tokenizer.unk_id, **bound)
        if phase is None:
            return dataclasses.replace(task, predicts=True)
        if self.num_sampled >= task.num_words:
            raise UserError(
                f"config.task.num_samples={self.num_samples} must be below the number of words,"
                f" {task.num_words}: lower it, or set config.task.softmax='full'."
            )
        return task

    def make_model(self) -> BidirectionalLanguageModel:
        return BidirectionalLanguageModel(self.model, self.num_sampled, self.num_words)

    def example_batch(self) -> dict[str, jax.Array]:
        batch = example_batch()
        return batch | {"reverse_ids": batch["input_ids"]}

    def losses(self, outputs: BidirectionalOutputs, batch: Batch) -> Sums:
        """Returns the mean loss of both directions, and as metrics the loss of each.

        A full softmax also gives the accuracy. bilm-tf multiplies the loss by the length of a row.
        """
        weights, length = batch["target_weights"], batch["input_ids"].shape[1]
        total = weights.sum()
        values, hits = zip(*self._losses(outputs, batch), strict=True)
        forward, backward = ((of_slots * weights).sum() for of_slots in values)
        scale = float(length) if self.sum_over_time else 1.0
        sums = {
            "bidirectional_lm_loss": Sum(forward + backward, 2 * total, scale),
            "forward_loss": metric(forward, total),
            "backward_loss": metric(backward, total),
        }
        if not outputs.samples:
            num_hits = ((hits[0] + hits[1]) * weights).sum()
            sums["bidirectional_lm_accuracy"] = metric(num_hits, 2 * total)
        return sums

    def _losses(
        self, outputs: BidirectionalOutputs, batch: Batch
    ) -> Iterator[tuple[jax.Array, jax.Array]]:
        """Yields float32[batch, seq] losses and hits of each direction; a sample has no hits."""
        for number, (scores, labels) in enumerate(self._scored(outputs, batch)):
            if not outputs.samples:
                yield cross_entropy_of_scores(scores, labels)
                continue
            sample, words = outputs.samples[number], (scores.table, scores.bias)
            losses = sampled_cross_entropy(scores.features, labels, *words, sample, self.num_words)
            yield losses, jnp.zeros_like(losses)

    def _scored(
        self, outputs: BidirectionalOutputs, batch: Batch
    ) -> Iterator[tuple[WordScores, jax.Array]]:
        """Yields the scores of each direction, and int32[batch, seq], the words to predict."""
        for scores, name in (outputs.forward, "next_ids"), (outputs.backward, "previous_ids"):
            yield scores, jnp.where(batch[name] < self.num_words, batch[name], self.unk_id)

    def answers(self, outputs: BidirectionalOutputs, batch: Batch) -> dict[str, jax.Array]:
        """float32[batch] `forward` and `backward`, in nats."""
        if not self.predicts:
            return {}
        values = self._log_probabilities(outputs, batch)
        forward, backward = (
            (of_words * batch["target_weights"]).sum(axis=1) for of_words in values
        )
        return {"forward": forward, "backward": backward}

    def _log_probabilities(
        self, outputs: BidirectionalOutputs, batch: Batch
    ) -> Iterator[jax.Array]:
        """Yields float32[batch, seq] of each direction; words outside the vocabulary have none."""
        for scores, labels in self._scored(outputs, batch):
            table, bias = scores.table[: self.num_words], scores.bias[: self.num_words]
            words = WordScores(scores.features, table, bias)
            yield -cross_entropy_of_scores(words, labels)[0]

    def begin(self, row: TextRow, tokenizer: Tokenizer) -> TextRow:
        """Returns the text unchanged: it already has the markers of the training rows."""
        return row

    def log_probabilities(self, params: Any, batch: Batch) -> jax.Array:
        """float32[batch, seq]: ln p of the token after each position, the mean of both directions.

        One direction conditions on the tokens before it, the other on those after it.

        Args:
          params: the parameters of the module that `make_model` returns.
          batch: texts with their markers, one in each row.
        """
        turned = functools.partial(_turn, batch["example_ids"])
        names = {"input_ids": "reverse_ids", "character_ids": "reverse_character_ids"}
        batch = {**batch, **{names[n]: turned(batch[n]) for n in names if n in batch}}
        labels = {"next_ids": batch["input_ids"], "previous_ids": batch["reverse_ids"]}
        labels = {name: jnp.roll(ids, -1, axis=1) for name, ids in labels.items()}
        outputs: Any = self.make_model().apply({"params": params}, batch, deterministic=True)
        forward, backward = self._log_probabilities(outputs, labels)
        # In the backward direction, position i has the token i + 2 before the end.
        backward = jnp.roll(turned(jnp.roll(backward, 1, axis=1)), -1, axis=1)
        return (forward + backward) / 2

    def init_carry(self, batch_size: int) -> Any:
        return self.make_model().init_carry(batch_size)

    def carry(self, outputs: BidirectionalOutputs) -> Any:
        return outputs.carry

    def head_flops_per_token(self) -> float:
        """Counts both directions."""
        words = self.num_sampled or self.model.padded_vocab_size
        return 2 * 2.0 * words * (self.model.hidden_size // 2)

    def collect(self, examples, rows: WholeTexts, answers):
        """The log-probabilities and the perplexity of each text."""
        predictions = []
        for ids, answer in zip(rows.ids, answers, strict=True):
            forward, backward = float(answer["forward"]), float(answer["backward"])
            predictions.append(
                {
                    "tokens": len(ids),
                    "forward_log_probability": forward,
                    "backward_log_probability": backward,
                    "perplexity": perplexity(-(forward + backward) / (2 * len(ids) + 2)),
                }
            )
        return predictions

    def evaluate(self, rows: CorpusRows, answers, means):
        values = dict(means)
        for name, loss in (
            ("perplexity", "bidirectional_lm_loss"),
            ("forward_perplexity", "forward_loss"),
            ("backward_perplexity", "backward_loss"),
        ):
            values[name] = perplexity(values[loss])
        values |= text_scores(values["bidirectional_lm_loss"], rows.text_counts)
        return {"loss": values["loss"], **{name: values[name] for name in self.metrics}}, []


def _turn(example_ids: jax.Array, values: jax.Array) -> jax.Array:
    """[batch, seq, ...] -> the same with the text of each row (not its padding) reversed."""
    lengths = (example_ids > 0).sum(axis=1, keepdims=True)
    order = (lengths - 1 - jnp.arange(values.shape[1])[None]) % values.shape[1]
    return jnp.take_along_axis(
        values, order.reshape(*order.shape, *[1] * (values.ndim - 2)), axis=1
    )
