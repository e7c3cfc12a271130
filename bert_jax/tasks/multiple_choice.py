"""Multiple choice: which of several endings continues a text (paper, section 4.4)."""

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np

from bert_jax.config import defaults
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.data.labelled.choices import ChoiceColumns, read_choices
from bert_jax.data.labelled.encode_texts import encode_choices
from bert_jax.data.labelled.examples import ChoiceExample
from bert_jax.data.labelled.sequences import GroupedRows
from bert_jax.files.errors import UserError
from bert_jax.models.task_heads import ClassificationOutputs, MultipleChoiceModel
from bert_jax.scores import classification as scores
from bert_jax.tasks import losses
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.supervised import Labelled, shared_fields
from bert_jax.tasks.task import Batch

METRICS = ("accuracy",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoice(Labelled):
    """Which of several endings continues a text.

    Attributes:
      columns: the columns of the files.
      labels: none; endings have numbers.
    """

    columns: ChoiceColumns = ChoiceColumns()

    HEAD = "classifier"
    POOLS = True
    EXAMPLE = ChoiceExample

    default_config = staticmethod(defaults.multiple_choice)

    @classmethod
    def make(cls, config: FinetuningConfig) -> "MultipleChoice":
        """Returns the task of a configuration, without labels.

        Raises:
          UserError: for a metric or a head that does not exist, or without a column of the
            context.
        """
        data = config.data
        if config.metrics != METRICS:
            raise UserError(f"metrics={config.metrics} must be {METRICS} for multiple choice.")
        if data.long_texts != "truncate":
            raise UserError(
                f"data.long_texts={data.long_texts!r} is not for multiple choice: set it to"
                " truncate."
            )
        if not data.text_a:
            raise UserError("data.text_a is missing: the column of the context.")
        columns = ChoiceColumns(
            context=data.text_a,
            start=data.text_b or None,
            endings=tuple(data.endings),
            label=data.label,
            id=data.id or None,
        )
        return cls(**shared_fields(config, "multiple_choice"), columns=columns)

    def read(self, path, counts, labelled) -> Iterator[ChoiceExample]:
        return read_choices(path, counts, labelled, self.columns)

    def encode(self, examples, tokenizer, counts) -> GroupedRows:
        return encode_choices(examples, tokenizer, self.max_sequence_length, counts)

    def make_model(self) -> MultipleChoiceModel:
        return MultipleChoiceModel(self.model, self.head)

    def example_batch(self) -> dict[str, jax.Array]:
        return {name: array[:, None] for name, array in super().example_batch().items()}

    def losses(self, outputs: ClassificationOutputs, batch: Batch) -> Sums:
        return losses.classify("task", outputs.logits, batch["labels"], batch["weights"])

    def distilled_losses(self, outputs, teacher, batch, temperature):
        values = losses.divergence(outputs.logits, teacher.logits, temperature)
        return {"task_loss": losses.weighted_sum(values, batch["weights"])}

    def answers(self, outputs: ClassificationOutputs, batch: Batch) -> dict[str, jax.Array]:
        return {"probabilities": jax.nn.softmax(outputs.logits)}

    def collect(self, examples, rows, answers):
        """`choice`, its number and `ending`, and the `probabilities` of all."""
        predictions = []
        for example, answer in zip(examples, answers, strict=True):
            probabilities = answer["probabilities"][: len(example.endings)]
            choice = int(probabilities.argmax())
            predictions.append(
                {
                    "id": example.id,
                    "choice": choice,
                    "ending": example.endings[choice],
                    "probabilities": [float(value) for value in probabilities],
                }
            )
        return predictions

    def score(self, examples, predictions):
        gold = np.array([example.label for example in examples])
        found = np.array([prediction["choice"] for prediction in predictions])
        return {"accuracy": scores.accuracy(gold, found)}

    def baseline(self, examples):
        gold = np.array([example.label for example in examples])
        return scores.majority_class_score(scores.accuracy, gold)
