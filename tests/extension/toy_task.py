"""A task in one file: how many words a text has, from a sum over its tokens.

A file has a text a line. Its label is computed from the text.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import defaults
from bert_jax.config.phases import Phase
from bert_jax.data.labelled.encode_texts import TextRows, encode_texts
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.texts import read_texts
from bert_jax.models import make_encoder
from bert_jax.models.model import EncoderConfig
from bert_jax.models.task_heads import LinearHead
from bert_jax.scores import classification as scores
from bert_jax.tasks import losses
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.supervised import Labelled
from bert_jax.tasks.task import Batch, Prediction, Task, TaskRow, TaskSettings
from bert_jax.text.tokenization import Tokenizer


class CountModel(nn.Module):
    """An encoder, and a number for each token, whose sum is the number of words."""

    model: EncoderConfig

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool) -> jax.Array:
        """What the encoder takes -> float32[batch]."""
        encoder = make_encoder(self.model, name=self.model.name)
        hidden = encoder(batch, deterministic=deterministic).hidden
        counts = LinearHead(self.model, 1, name="classifier")(hidden)[..., 0]
        return (counts * (batch["example_ids"] > 0)).sum(-1)


@dataclasses.dataclass(frozen=True)
class CountWords(Task):
    """The device side."""

    def make_model(self) -> CountModel:
        return CountModel(self.model)

    def losses(self, outputs: jax.Array, batch: Batch) -> Sums:
        return losses.regression(outputs, batch)

    def answers(self, outputs: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        return {"words": jnp.round(outputs)}


@dataclasses.dataclass(frozen=True)
class CountWordsData(Labelled):
    """The host side."""

    max_sequence_length: int
    pad_lengths: tuple[int, ...]
    prediction_batch_size: int
    metrics: tuple[str, ...] = ("accuracy",)
    labels: tuple[str, ...] = ()

    @classmethod
    def make(cls, settings: TaskSettings) -> "CountWordsData":
        lengths = tuple(settings.data["bucket_lengths"])
        return cls(settings.max_sequence_length, lengths, settings.prediction_batch_size)

    def read(self, path: str, counts: Counter, labelled: bool) -> Iterator[TextExample]:
        for number, text in enumerate(read_texts(path)):
            label = (str(len(text.text_a.split())),) if labelled else None
            yield TextExample(text.where, str(number), text.text_a, labels=label)

    def with_labels_of(self, examples: Iterable[TextExample]) -> "CountWordsData":
        return self

    def with_labels(self, labels: tuple[str, ...]) -> "CountWordsData":
        return self

    def make_task(
        self,
        model: EncoderConfig,
        tokenizer: Tokenizer,
        phase: Phase | None = None,
        evaluate: bool = False,
    ) -> CountWords:
        return CountWords(model)

    def encode(
        self, examples: Iterable[TextExample], tokenizer: Tokenizer, counts: Counter
    ) -> TextRows:
        return encode_texts(
            examples, tokenizer, self.max_sequence_length, None, "regression", counts
        )

    def collect(self, examples: Sequence[TextExample], rows: TextRows) -> "Counts":
        return Counts(examples)

    def score(
        self, examples: Sequence[TextExample], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        found = np.array([prediction["words"] for prediction in predictions])
        return {"accuracy": scores.accuracy(_gold(examples), found)}

    def baseline(self, examples: Sequence[TextExample]) -> float:
        return scores.majority_class_score(scores.accuracy, _gold(examples))


def _gold(examples: Sequence[TextExample]) -> np.ndarray:
    return np.array([int(label) for example in examples for label in example.labels or ()])


class Counts:
    """The numbers of all texts; a row is an example."""

    def __init__(self, examples: Sequence[TextExample]):
        self._examples, self._words = examples, np.zeros(len(examples), int)

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        is_row = row_numbers >= 0
        self._words[row_numbers[is_row]] = answers["words"][is_row]

    def predictions(self) -> list[Prediction]:
        """`words` of each text."""
        found = zip(self._examples, self._words.tolist(), strict=True)
        return [{"id": example.id, "words": words} for example, words in found]


COUNT_WORDS = TaskRow(
    make=CountWordsData.make,
    default_config=lambda: defaults.finetuning("count_words"),
    head="classifier",
    pools=False,
    huggingface_class="",
)
