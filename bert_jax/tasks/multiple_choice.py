"""Multiple choice: which of several endings continues a text (paper, section 4.4)."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import jax
import numpy as np

from bert_jax.config import defaults
from bert_jax.config.phases import Phase
from bert_jax.data.labelled.choices import ChoiceColumns, read_choices
from bert_jax.data.labelled.encode_texts import encode_choices
from bert_jax.data.labelled.examples import ChoiceExample
from bert_jax.data.labelled.sequences import GroupedRows
from bert_jax.files.errors import UserError
from bert_jax.models.model import EncoderConfig
from bert_jax.models.reading import HeadConfig
from bert_jax.models.task_heads import ClassificationOutputs, MultipleChoiceModel
from bert_jax.scores import classification as scores
from bert_jax.tasks import losses
from bert_jax.tasks.auxiliary import Losses
from bert_jax.tasks.head_settings import check_head, describe_pooling, make_head
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.supervised import Labelled, shared_fields
from bert_jax.tasks.task import Batch, Prediction, Task, TaskRow, TaskSettings
from bert_jax.text.tokenization import Tokenizer

METRICS = ("accuracy",)


@dataclasses.dataclass(frozen=True)
class MultipleChoice(Task):
    """The device side.

    Attributes:
      model: the encoder.
      head: what is read of it.
    """

    head: HeadConfig = HeadConfig()

    def make_model(self) -> MultipleChoiceModel:
        return MultipleChoiceModel(self.model, self.head)

    def example_batch(self) -> dict[str, jax.Array]:
        return {name: array[:, None] for name, array in super().example_batch().items()}

    def losses(self, outputs: ClassificationOutputs, batch: Batch) -> Sums:
        return losses.classification(outputs.logits, batch)

    def answers(self, outputs: ClassificationOutputs, batch: Batch) -> dict[str, jax.Array]:
        return {"probabilities": jax.nn.softmax(outputs.logits)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceData(Labelled):
    """The host side.

    Attributes:
      metrics: of METRICS.
      max_sequence_length: longer texts are truncated and counted.
      columns: of the files.
      head: what is read of the encoder.
      losses: further losses.
      labels: none; endings have numbers.
    """

    columns: ChoiceColumns
    head: HeadConfig
    losses: Losses

    @classmethod
    def make(cls, settings: TaskSettings) -> "MultipleChoiceData":
        """Returns the host side for a configuration, without labels.

        Raises:
          UserError: for a metric or a head that does not exist, or without a column of the
            context.
        """
        data = settings.data
        if settings.metrics != METRICS:
            raise UserError(f"metrics={settings.metrics} must be {METRICS} for multiple choice.")
        if not data["text_a"]:
            raise UserError("data.text_a is missing: the column of the context.")
        columns = ChoiceColumns(
            context=data["text_a"],
            start=data["text_b"] or None,
            endings=tuple(data["endings"]),
            label=data["label"],
            id=data["id"] or None,
        )
        return cls(
            **shared_fields(settings),
            columns=columns,
            head=make_head(settings, "multiple_choice"),
            losses=Losses.make(settings),
        )

    def read(self, path: str, counts: Counter, labelled: bool) -> Iterator[ChoiceExample]:
        return read_choices(path, counts, labelled, self.columns)

    def make_task(
        self,
        model: EncoderConfig,
        tokenizer: Tokenizer,
        phase: Phase | None = None,
        evaluate: bool = False,
    ) -> Task:
        check_head(self.head, model, pools=True)
        return self.losses.add_to(MultipleChoice(model, self.head))

    def describe(self) -> tuple[str, ...]:
        return (describe_pooling(self.head), *self.losses.describe())

    def encode(
        self, examples: Iterable[ChoiceExample], tokenizer: Tokenizer, counts: Counter
    ) -> GroupedRows:
        return encode_choices(examples, tokenizer, self.max_sequence_length, counts)

    def collect(self, examples: Sequence[ChoiceExample], rows: GroupedRows) -> "ChoiceAnswers":
        return ChoiceAnswers(examples, rows.max_sequences)

    def score(
        self, examples: Sequence[ChoiceExample], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        gold = np.array([example.label for example in examples])
        found = np.array([prediction["choice"] for prediction in predictions])
        return {"accuracy": scores.accuracy(gold, found)}

    def baseline(self, examples: Sequence[ChoiceExample]) -> float:
        gold = np.array([example.label for example in examples])
        return scores.majority_class_score(scores.accuracy, gold)


class ChoiceAnswers:
    """The probabilities of all endings; a row is an example."""

    def __init__(self, examples: Sequence[ChoiceExample], num_choices: int):
        self._examples = examples
        self._probabilities = np.zeros((len(examples), num_choices), np.float32)

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        is_row = row_numbers >= 0
        self._probabilities[row_numbers[is_row]] = answers["probabilities"][is_row]

    def predictions(self) -> list[Prediction]:
        """`choice`, its number and `ending`, and the `probabilities` of all."""
        return [
            {
                "id": example.id,
                "choice": (choice := int(probabilities[: len(example.endings)].argmax())),
                "ending": example.endings[choice],
                "probabilities": [float(value) for value in probabilities[: len(example.endings)]],
            }
            for example, probabilities in zip(self._examples, self._probabilities, strict=True)
        ]


MULTIPLE_CHOICE = TaskRow(
    make=MultipleChoiceData.make,
    default_config=defaults.multiple_choice,
    head="classifier",
    pools=True,
    example=ChoiceExample,
)
