"""Multiple choice: which of several endings continues a text (paper, section 4.4)."""

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.group import setting
from bert_jax.data.labelled.choices import ChoiceColumns, read_choices
from bert_jax.data.labelled.encode_texts import encode_choices
from bert_jax.data.labelled.examples import ChoiceExample
from bert_jax.data.labelled.sequences import GroupedRows
from bert_jax.files.errors import UserError
from bert_jax.models.task_heads import ClassificationOutputs, MultipleChoiceModel
from bert_jax.scores import classification as scores
from bert_jax.tasks import losses
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.multiple_choice.review import make_review
from bert_jax.tasks.supervised import Pooled
from bert_jax.tasks.task import Batch

METRICS = ("accuracy",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoice(Pooled):
    """Which of several endings continues a text.

    Attributes:
      labels: none; endings have numbers.
    """

    name: str = "multiple_choice"
    # Column of the context.
    text_a: str = setting("sent1")
    # Column of the text before each ending; empty: none.
    text_b: str = setting("sent2")
    # Columns of the endings, in order; (): ending0, ending1, ...
    endings: tuple[str, ...] = setting(())
    # Column of the number of the correct ending, from 0, or of its letter.
    label: str = setting("label")
    # Column of an ID, which predictions repeat.
    id: str = setting("")
    # Whether all choices of an example share a dropout mask, as in GPT's released code.
    share_dropout: bool = setting(False)

    HEAD = "classifier"
    EXAMPLE = ChoiceExample
    COLUMNS = {"text_a": "context", "text_b": "start"}

    @classmethod
    def default_config(cls) -> FinetuningConfig:
        """Returns the defaults for the choice of an ending (paper, section 4.4)."""
        return FinetuningConfig(task=cls(), global_batch_size=16)

    def check(self) -> None:
        super().check()
        if not self.text_a:
            raise UserError("text_a is missing: the column of the context.")

    @property
    def known_metrics(self) -> tuple[str, ...]:
        return METRICS

    @property
    def columns(self) -> ChoiceColumns:
        """The columns of the files."""
        return ChoiceColumns(
            self.text_a, self.text_b or None, self.endings, self.label, self.id or None
        )

    def read(self, path, counts, labelled) -> Iterator[ChoiceExample]:
        return read_choices(path, counts, labelled, self.columns)

    def encode(self, examples, tokenizer, counts) -> GroupedRows:
        return encode_choices(examples, tokenizer, self.max_sequence_length, counts)

    def make_model(self) -> MultipleChoiceModel:
        return MultipleChoiceModel(self.model, self, self.share_dropout)

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
        """`choice`, the number of an ending, its text `ending`, and all `probabilities`."""
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

    has_tables = True

    def cells(self, prediction):
        choice = prediction["choice"]
        return [
            {
                "predicted_choice": choice,
                "predicted_ending": prediction["ending"],
                "probability": prediction["probabilities"][choice],
            }
        ]

    def review(self, examples, predictions):
        return make_review(self, examples, predictions)

    def score(self, examples, predictions):
        gold = np.array([example.label for example in examples])
        found = np.array([prediction["choice"] for prediction in predictions])
        return {"accuracy": scores.accuracy(gold, found)}

    def baseline(self, examples):
        gold = np.array([example.label for example in examples])
        return scores.majority_class_score(scores.accuracy, gold)
