"""What the host sides of the tasks on labelled examples share."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from bert_jax.data.labelled.batching import GENERAL_LENGTHS, bucket_lengths
from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.models.model import EncoderConfig
from bert_jax.tasks.task import (
    Answers,
    LabelledData,
    Prediction,
    TaskSettings,
    windows,
)
from bert_jax.text.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labelled:
    """The host side of a task on labelled files, as far as it does not depend on the task.

    A subclass is a frozen dataclass that adds `read`, `make_task`, `encode` and `score`; where they
    do not fit, it replaces the methods about labels, and `collect`.

    Attributes:
      max_sequence_length: longest row in tokens, special ones included.
      pad_lengths: lengths below it that batches are padded to; (): GENERAL_LENGTHS.
      prediction_batch_size: rows of a batch of predictions, before rounding up to the mesh.
      metrics: names of the scores; the first selects checkpoints.
      labels: names of the classes; () before they are known, and in tasks without classes.
    """

    max_sequence_length: int
    pad_lengths: tuple[int, ...] = ()
    prediction_batch_size: int = 32
    metrics: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @classmethod
    def make(cls, settings: TaskSettings) -> Self:
        """Returns the host side for a configuration, without labels."""
        return cls(**shared_fields(settings))

    def with_labels_of(self, examples: Iterable[Any]) -> Self:
        """Returns the same with the labels of the training examples."""
        return self

    def with_labels(self, labels: tuple[str, ...]) -> Self:
        """Returns the same with these labels."""
        return dataclasses.replace(self, labels=labels)

    def collect(self, examples: Sequence[Any], rows: Any) -> Answers:
        """Returns the collector for the predictions of these examples."""
        return RowAnswers(examples)

    def baseline(self, examples: Sequence[Any]) -> float:
        """Returns the first metric of the same answer to every example."""
        return 0.0

    @property
    def bucket_lengths(self) -> tuple[int, ...]:
        """All lengths in tokens that rows are padded to."""
        lengths = self.pad_lengths or GENERAL_LENGTHS
        return bucket_lengths(lengths, self.max_sequence_length)

    def describe(self) -> tuple[str, ...]:
        """Returns lines for the banner about the head."""
        return ()

    @property
    def can_pack(self) -> bool:
        """Whether a row may have several examples."""
        return False

    def answers_of(self: LabelledData, rows: LabelledRows) -> Answers:
        return self.collect(rows.examples, rows.rows)

    def evaluate(
        self: LabelledData,
        rows: LabelledRows,
        predictions: Sequence[Prediction],
        means: Mapping[str, float],
    ) -> dict[str, float]:
        """The scores, then the loss; of other files than `eval` with their names in front."""
        values = self.score(rows.examples, predictions) | {"loss": means["loss"]}
        prefix = "" if rows.name == "eval" else f"{rows.name}_"
        return {prefix + name: value for name, value in values.items()}

    def describe_evaluation(
        self: LabelledData,
        training: LabelledRows | None,
        evaluation: Sequence[LabelledRows],
        origin: Mapping[str, Any],
    ) -> dict[str, Any]:
        all_rows = (*([training] if training else ()), *evaluation)
        return {
            **origin,
            "baseline": self.baseline(_eval_examples(evaluation)),
            "data": {
                rows.name: {
                    "source": rows.source,
                    "sha256": rows.sha256,
                    "examples": len(rows.examples),
                }
                for rows in all_rows
            },
        }

    def check_trained(self, untrained: Collection[str], workdir: str) -> None:
        pass

    def check_example(self, example: Any, tokenizer: Tokenizer, model: EncoderConfig) -> None:
        pass

    def windows(self, examples: Iterable[Any]) -> Iterator[list[Any]]:
        return windows(examples)


def shared_fields(settings: TaskSettings) -> dict[str, Any]:
    """Returns the fields of `Labelled` that every task takes from the configuration."""
    return {
        "max_sequence_length": settings.max_sequence_length,
        "pad_lengths": tuple(settings.data["bucket_lengths"]),
        "prediction_batch_size": settings.prediction_batch_size,
        "metrics": settings.metrics,
    }


class RowAnswers:
    """Predictions that are the answers themselves, of tasks with an example in each row."""

    def __init__(self, examples: Sequence[Any]):
        self._examples = examples
        self._predictions: list[Prediction] = [{}] * len(examples)

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        for place, number in enumerate(row_numbers.tolist()):
            if number >= 0:
                values = {name: array[place].tolist() for name, array in answers.items()}
                self._predictions[number] = {"id": self._examples[number].id, **values}

    def predictions(self) -> list[Prediction]:
        """`id` and the answers of each example."""
        return self._predictions


def _eval_examples(evaluation: Sequence[LabelledRows]) -> Sequence[Any]:
    return next(rows.examples for rows in evaluation if rows.name == "eval")
