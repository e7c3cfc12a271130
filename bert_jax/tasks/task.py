"""What training and evaluation ask of a task: on the devices, and on the host."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import flax.linen as nn
import jax
import numpy as np

from bert_jax.models.config import BertConfig
from bert_jax.tasks.objectives import Sums
from bert_jax.text.tokenization import Tokenizer

Batch = Mapping[str, jax.Array]
# What is written of an example: JSON values.
Prediction = dict[str, Any]


class Task(Protocol):
    """A frozen dataclass that knows model, masks and losses; it holds no arrays."""

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """Names of the Sums that are losses: the loss is the sum of numerator / denominator."""
        ...

    def make_model(self) -> nn.Module:
        """The linen module (batch, deterministic) -> outputs."""
        ...

    def example_batch(self) -> dict[str, jax.Array]:
        """A small batch of the right form, for shapes and initial parameters."""
        ...

    def transform(self, key: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        """Random work on the batch that belongs on the device, such as masks."""
        ...

    def denominators(self, batch: Batch) -> dict[str, jax.Array]:
        """float32[] for each loss term, from the whole (transformed) global batch."""
        ...

    def objective(self, outputs: Any, batch: Batch) -> Sums:
        """Losses and accuracies of a batch or of a part of it, as sums."""
        ...


class FinetuningTask(Task, Protocol):
    """A task whose answers the host reads."""

    def answers(self, outputs: Any, batch: Batch) -> dict[str, jax.Array]:
        """What the host needs to know of each row, [batch, ...] each."""
        ...


class Answers(Protocol):
    """The answers of the rows of a data set, batch by batch, in any order."""

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        """Takes those of a batch; row number -1 is none."""
        ...

    def predictions(self) -> list[Prediction]:
        """One for each example, in their order, once all rows were added."""
        ...


class TaskData(Protocol):
    """The host's side of a task: from files to rows, and from answers to scores.

    Attributes:
      metrics: names of its scores; the first is compared with the baseline.
      labels: names of the classes; empty where there are none, or before they are known.
    """

    @property
    def metrics(self) -> tuple[str, ...]: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    def make_task(self, model: BertConfig) -> FinetuningTask:
        """The devices' side."""
        ...

    def read(self, path: str, counts: Counter, labelled: bool) -> Iterator[Any]:
        """Streams the examples of a file."""
        ...

    def with_labels_of(self, examples: Iterable[Any]) -> "TaskData":
        """The same, with the labels of the training examples."""
        ...

    def with_labels(self, labels: tuple[str, ...]) -> "TaskData":
        """The same, with these labels."""
        ...

    def encode(self, examples: Iterable[Any], tokenizer: Tokenizer, counts: Counter) -> Any:
        """Rows of examples, data.rows.TaskRows."""
        ...

    def collect(self, examples: Sequence[Any], rows: Any) -> Answers:
        """Where the answers of these rows go."""
        ...

    def score(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Scores of labelled examples, `metrics` first."""
        ...

    def baseline(self, examples: Sequence[Any]) -> float:
        """The first metric of the same answer to all: what a run that learned nothing reaches."""
        ...
