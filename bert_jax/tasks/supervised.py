"""What the tasks on labelled examples share on the devices and on the host."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_jax.data.batch import EvaluationBatch
from bert_jax.data.labelled.batching import GENERAL_LENGTHS, bucket_lengths
from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.models.model import EncoderConfig
from bert_jax.scores.review import MOST_ERRORS
from bert_jax.tasks.task import (
    Answers,
    LabelledData,
    Prediction,
    windows,
)
from bert_jax.text.tokenization import Tokenizer


class Labelled:
    """The parts of a `LabelledData` that do not depend on the task.

    A subclass is a dataclass with these fields.

    Attributes:
      max_sequence_length: of a row in tokens, special ones included.
      pad_lengths: lengths below it that batches are padded to; (): GENERAL_LENGTHS.
      prediction_batch_size: rows of a batch of predictions, before rounding up to the mesh.
    """

    max_sequence_length: int
    pad_lengths: tuple[int, ...]
    prediction_batch_size: int

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

    def verdict(
        self: LabelledData,
        values: Mapping[str, float],
        training: Any,
        evaluation: Sequence[LabelledRows],
    ) -> list[str]:
        name, baseline = self.metrics[0], self.baseline(_eval_examples(evaluation))
        lines = [f"  {name} {values[name]:.4f}   the same answer to everything {baseline:.4f}"]
        if values[name] > baseline:
            return [*lines, "health: good, it has learned to tell examples apart."]
        return [
            *lines,
            "health: degenerate, no better than always the same answer: try another seed, a smaller"
            " learning rate or more epochs, and bias correction (optimizer.name=adamw).",
        ]

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

    def review(
        self: LabelledData, rows: LabelledRows, predictions: Sequence[Prediction]
    ) -> dict[str, Any]:
        found = self.review_examples(rows.examples, predictions)
        errors = found.pop("errors", [])
        return {
            "examples": len(rows.examples),
            **found,
            "wrong": len(errors),
            "errors": errors[:MOST_ERRORS],
        }

    def review_examples(
        self, examples: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, Any]:
        """Returns the parts of a review that the task has: `errors` in order, the worst first."""
        return {}

    def check_trained(self, untrained: Collection[str], workdir: str) -> None:
        pass

    def check_example(self, example: Any, tokenizer: Tokenizer, model: EncoderConfig) -> None:
        pass

    def windows(self, examples: Iterable[Any]) -> Iterator[list[Any]]:
        return windows(examples)

    def prediction_batches(
        self, rows: Any, model: EncoderConfig, shards: int
    ) -> Iterator[EvaluationBatch]:
        batch_size = -(-self.prediction_batch_size // shards) * shards
        unnamed = LabelledRows("", "", "", (), rows, {}, self.bucket_lengths)
        return unnamed.evaluation_batches(batch_size)


def _eval_examples(evaluation: Sequence[LabelledRows]) -> Sequence[Any]:
    return next(rows.examples for rows in evaluation if rows.name == "eval")
