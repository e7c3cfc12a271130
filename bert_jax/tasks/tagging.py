"""A tag for each word, such as named entities (paper, section 5.3)."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import defaults
from bert_jax.config.phases import Phase
from bert_jax.data.labelled.conll import is_conll, read_plain_words, read_tagged
from bert_jax.data.labelled.encode_words import WordRows, documents, encode_words
from bert_jax.data.labelled.examples import Labels, TaggedExample
from bert_jax.data.labelled.reading import ending_of
from bert_jax.data.labelled.tables import parse_column
from bert_jax.data.labelled.tags import as_iob2
from bert_jax.files.errors import UserError
from bert_jax.models import crf
from bert_jax.models.model import EncoderConfig
from bert_jax.models.reading import HeadConfig
from bert_jax.models.task_heads import TAGGING_HEADS, TaggingModel, TaggingOutputs
from bert_jax.scores import classification as scores
from bert_jax.scores import entities as entity_scores
from bert_jax.tasks import losses
from bert_jax.tasks.auxiliary import Losses
from bert_jax.tasks.head_settings import check_head, make_head
from bert_jax.tasks.losses import Sum, Sums
from bert_jax.tasks.outputs import CONLL_FORM
from bert_jax.tasks.supervised import Labelled, shared_fields
from bert_jax.tasks.task import WINDOW, Batch, Prediction, Task, TaskRow, TaskSettings
from bert_jax.text.tokenization import Tokenizer

# By whether tags are those of entities.
METRICS = {True: ("f1", "precision", "recall", "accuracy"), False: ("accuracy",)}


@dataclasses.dataclass(frozen=True)
class Tagging(Task):
    """The device side.

    Attributes:
      model: the encoder.
      num_classes: tags.
      head: what is read of the encoder.
    """

    num_classes: int
    head: HeadConfig = HeadConfig()

    def make_model(self) -> TaggingModel:
        return TaggingModel(self.model, self.num_classes, self.head)

    def example_batch(self) -> dict[str, jax.Array]:
        batch = super().example_batch()
        is_word = jnp.ones_like(batch["input_ids"], dtype=bool)
        return batch | {"word_positions": batch["position_ids"], "is_word": is_word}

    def losses(self, outputs: TaggingOutputs, batch: Batch) -> Sums:
        sums = losses.classification(outputs.logits, batch)
        if outputs.crf is None:
            return sums
        likelihood = crf.log_likelihood(
            outputs.crf, outputs.logits, batch["labels"], batch["is_word"]
        )
        weights = self._weights(batch)
        return {"task_loss": Sum(-(likelihood * weights[:, 0]).sum(), weights.sum())}

    def _weights(self, batch: Batch) -> jax.Array:
        """float32[batch, words]; with a CRF those of all words, if the row predicts any.

        The CRF's likelihood is that of whole rows; divided by their words it has the magnitude of
        the linear head's loss.
        """
        weights = batch["weights"]
        if self.head.has_crf:
            weights = batch["is_word"] * weights.max(axis=1, keepdims=True)
        return weights

    def answers(self, outputs: TaggingOutputs, batch: Batch) -> dict[str, jax.Array]:
        if outputs.crf is not None:
            return {"tags": crf.decode(outputs.crf, outputs.logits, batch["is_word"])}
        probabilities = jax.nn.softmax(outputs.logits)
        return {"tags": probabilities.argmax(-1), "probabilities": probabilities.max(-1)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingData(Labelled):
    """The host side.

    Attributes:
      metrics: of METRICS[entities].
      entities: whether tags are those of entities.
      max_sequence_length: longer sentences take several rows.
      words, tags: columns or fields of the files.
      document_context: whether rows are filled with the sentences around.
      by_character: whether each character of a plain text is a word.
      head: what is read of the encoder.
      losses: further losses.
      labels: the tags.
    """

    entities: bool
    words: str | int
    tags: str | int
    document_context: bool
    by_character: bool
    head: HeadConfig
    losses: Losses

    @property
    def between_words(self) -> str:
        """What stands between the words of a text."""
        return "" if self.by_character else " "

    @property
    def can_pack(self) -> bool:
        """A CRF, a BiLSTM, and further losses, read whole rows."""
        return self.head.head == "linear" and self.losses == Losses()

    @classmethod
    def make(cls, settings: TaskSettings) -> "TaggingData":
        """Returns the host side for a configuration, without labels.

        Raises:
          UserError: for a head, layers or a metric that does not exist, or another set than
            MSRA's.
        """
        data, head, metrics = settings.data, settings.head, settings.metrics
        if (published := data["published"]) not in ("", "msra_ner"):
            raise UserError(f"Unknown data.published={published!r}. Available: msra_ner.")
        for metric in metrics:
            if metric not in (allowed := METRICS[head["entities"]]):
                raise UserError(f"metrics: {metric!r} is none of {', '.join(allowed)}.")
        return cls(
            entities=head["entities"],
            **shared_fields(settings),
            words=_or(parse_column(data["text_a"]), "tokens"),
            tags=_or(parse_column(data["label"]), "tags"),
            document_context=head["document_context"],
            by_character=published == "msra_ner",
            head=make_head(settings, "tagging", TAGGING_HEADS),
            losses=Losses.make(settings),
        )

    def read(self, path: str, counts: Counter, labelled: bool) -> Iterator[TaggedExample]:
        if not labelled and ending_of(path) == ".txt" and not is_conll(path):
            return read_plain_words(path, counts, self.by_character)
        return read_tagged(path, counts, labelled, self.words, self.tags, not self.entities)

    def with_labels_of(self, examples: Iterable[TaggedExample]) -> "TaggingData":
        names = Labels.find_tags(tag for e in examples for tag in e.tags or ()).names
        return self.with_labels(names)

    def make_task(
        self,
        model: EncoderConfig,
        tokenizer: Tokenizer,
        phase: Phase | None = None,
        evaluate: bool = False,
    ) -> Task:
        check_head(self.head, model)
        task = Tagging(model, len(self.labels), self.head)
        return self.losses.add_to(task)

    def describe(self) -> tuple[str, ...]:
        return self.losses.describe()

    def encode(
        self, examples: Iterable[TaggedExample], tokenizer: Tokenizer, counts: Counter
    ) -> WordRows:
        return encode_words(
            examples,
            tokenizer,
            self.max_sequence_length,
            Labels(self.labels),
            counts,
            self.document_context,
        )

    def windows(self, examples: Iterable[TaggedExample]) -> Iterator[list[TaggedExample]]:
        """Examples that are read as context of each other are never separated."""
        window = []
        for document in documents(examples, self.document_context):
            window += document
            if len(window) >= WINDOW:
                yield window
                window = []
        if window:
            yield window

    def collect(self, examples: Sequence[TaggedExample], rows: WordRows) -> "TagAnswers":
        return TagAnswers(examples, rows, self.labels, self.entities, self.between_words)

    def score(
        self, examples: Sequence[TaggedExample], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Entity-level, as conlleval, `TYPE_f1` of each type too; of other tags the accuracy."""
        gold = [example.tags or () for example in examples]
        found = [prediction["tags"] for prediction in predictions]
        if not self.entities:
            return {"accuracy": entity_scores.token_accuracy(gold, found)}
        by_type = entity_scores.entity_counts(gold, found)
        total = scores.micro(by_type)
        values = {
            "f1": total.f1,
            "precision": total.precision,
            "recall": total.recall,
            "accuracy": entity_scores.token_accuracy(gold, found),
        }
        ordered = {name: values.pop(name) for name in self.metrics}
        return ordered | values | {f"{name}_f1": count.f1 for name, count in by_type.items()}

    def baseline(self, examples: Sequence[TaggedExample]) -> float:
        if self.metrics[0] != "accuracy":
            return 0.0  # no entity at all
        tags = [tag for example in examples for tag in example.tags or ()]
        return scores.majority_class_score(scores.accuracy, np.array(tags))


def _or(column: str | int | None, default: str) -> str | int:
    return default if column is None else column


class TagAnswers:
    """The tags of all words; a sentence may take several rows."""

    def __init__(
        self,
        examples: Sequence[TaggedExample],
        rows: WordRows,
        labels: tuple[str, ...],
        entities: bool = True,
        between_words: str = " ",
    ):
        self._examples, self._rows, self._labels = examples, rows, labels
        self._entities, self._between_words = entities, between_words
        num_words = int(rows.example_starts[-1])
        self._tags = np.zeros(num_words, np.int32)
        self._probabilities = np.full(num_words, np.nan, np.float32)

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        words = self._rows.predicted_words(row_numbers, length)
        is_predicted = words >= 0
        self._tags[words[is_predicted]] = answers["tags"][is_predicted]
        if "probabilities" in answers:
            self._probabilities[words[is_predicted]] = answers["probabilities"][is_predicted]

    def predictions(self) -> list[Prediction]:
        """`words`, `tags`, `entities`, and `probabilities` of the tags where the head has them."""
        starts, predictions = self._rows.example_starts, []
        for number, example in enumerate(self._examples):
            here = slice(int(starts[number]), int(starts[number + 1]))
            tags = [self._labels[tag] for tag in self._tags[here]]
            prediction: Prediction = {"id": example.id, "words": list(example.words), "tags": tags}
            if self._entities:
                prediction["entities"] = self._find_entities(example.words, tags)
            if not np.isnan(self._probabilities[here]).any():
                prediction["probabilities"] = [float(value) for value in self._probabilities[here]]
            predictions.append(prediction)
        return predictions

    def _find_entities(self, words: Sequence[str], tags: Sequence[str]) -> list[dict[str, Any]]:
        """In order; an imported model's tags may be of any scheme."""
        return [
            {
                "type": kind,
                "start": start,
                "end": end + 1,
                "text": self._between_words.join(words[start : end + 1]),
            }
            for kind, start, end in sorted(
                entity_scores.entities(as_iob2(tags)), key=lambda e: e[1]
            )
        ]


TAGGING = TaskRow(
    make=TaggingData.make,
    default_config=defaults.tagging,
    head="classifier",
    pools=False,
    outputs={".conll": CONLL_FORM},
    example=TaggedExample,
)
