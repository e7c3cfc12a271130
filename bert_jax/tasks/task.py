"""What a task is: its side on the devices, its side on the host, and its row in TASKS."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.config.phases import Phase
from bert_jax.data.batch import Rows
from bert_jax.models.batch import complete_batch
from bert_jax.models.model import Batch, EncoderConfig
from bert_jax.tasks.losses import Sums
from bert_jax.text.tokenization import Tokenizer

# Examples that are in memory at a time, and after which predictions are on disk.
WINDOW = 1024
# What is written for an example: JSON values.
Prediction = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Task:
    """The device side of a task; a subclass is a frozen dataclass without arrays.

    Attributes:
      model: the encoder's configuration.
    """

    model: EncoderConfig

    def make_model(self) -> nn.Module:
        """Returns the linen module (batch, deterministic) -> outputs."""
        raise NotImplementedError

    def example_batch(self) -> dict[str, jax.Array]:
        """Returns a batch of one row for `make_model().init`; only its names and ranks matter."""
        return example_batch()

    def transform(
        self, key: jax.Array, batch: Batch, progress: jax.Array | float = 0.0
    ) -> dict[str, jax.Array]:
        """Applies random changes on the device, such as masks.

        Args:
          key: of this batch.
          batch: the global batch.
          progress: float32[], the fraction of the run's steps that is done.
        """
        del key, progress
        return dict(batch)

    def losses(self, outputs: Any, batch: Batch) -> Sums:
        """Returns the losses of a batch, or of a microbatch, and metrics such as accuracies.

        The loss that is minimized is the sum of the means. Denominators must depend on the batch
        alone: those of the whole batch are computed before the outputs of its microbatches.

        Args:
          outputs: of the model.
          batch: as `transform` returned it.
        """
        raise NotImplementedError

    def answers(self, outputs: Any, batch: Batch) -> dict[str, jax.Array]:
        """Returns what the host reads from each row, [batch, ...] each; empty if nothing."""
        return {}

    def head_flops_per_token(self) -> float:
        """Returns the forward FLOPs of the heads' large matrix products per input position."""
        return 0.0


class Answers(Protocol):
    """Collects the answers of the rows of a data set, batch by batch, in any order."""

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        """Adds those of a batch; row number -1 is padding."""
        ...

    def predictions(self) -> list[Prediction]:
        """Returns one prediction for each example, in order, once all rows were added."""
        ...


class TaskData(Protocol):
    """The host side of a task: from files to rows, and from answers to scores.

    Attributes:
      metrics: names of the scores; the first is compared with the baseline.
      labels: names of the classes, empty before they are known; None: the task has none to store.
    """

    @property
    def metrics(self) -> tuple[str, ...]: ...

    @property
    def labels(self) -> tuple[str, ...] | None: ...

    @property
    def can_pack(self) -> bool:
        """Whether a row may have several examples."""
        ...

    def with_labels(self, labels: tuple[str, ...]) -> "TaskData":
        """Returns the same with these labels."""
        ...

    def make_task(
        self,
        model: EncoderConfig,
        tokenizer: Tokenizer,
        phase: Phase | None = None,
        evaluate: bool = False,
    ) -> Task:
        """Returns the device side.

        Args:
          model: the encoder's configuration.
          tokenizer: of the run.
          phase: that is trained; None: the `answers` are the predictions for files.
          evaluate: whether held-out rows of the phase are evaluated.
        """
        ...

    def answers_of(self, rows: Rows) -> Answers:
        """Returns the collector for an evaluation of these rows."""
        ...

    def evaluate(
        self, rows: Rows, predictions: Sequence[Prediction], means: Mapping[str, float]
    ) -> dict[str, float]:
        """Returns the metrics of an evaluation, the first that selects checkpoints first.

        Args:
          rows: what was evaluated.
          predictions: of `answers_of(rows)`.
          means: of the device's Sums, `loss` first.
        """
        ...

    def describe_evaluation(
        self, training: Rows | None, evaluation: Sequence[Rows], origin: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns what an evaluation was computed on, for results.json.

        Args:
          training: the rows that the run trains on; None in a run that is evaluated only.
          evaluation: the rows.
          origin: `task` and `init_from` of the configuration.
        """
        ...

    def check_trained(self, untrained: Collection[str], workdir: str) -> None:
        """Raises UserError if a head that is needed has random parameters.

        Args:
          untrained: names of the parameters that an import did not find.
          workdir: of the imported weights.
        """
        ...

    def read(self, path: str, counts: Counter, labelled: bool) -> Iterator[Any]:
        """Yields the examples of a file."""
        ...

    def check_example(self, example: Any, tokenizer: Tokenizer, model: EncoderConfig) -> None:
        """Raises UserError for an example that cannot be predicted."""
        ...

    def windows(self, examples: Iterable[Any]) -> Iterator[list[Any]]:
        """Yields the examples in groups that are predicted and stored together."""
        ...

    def encode(self, examples: Sequence[Any], tokenizer: Tokenizer, counts: Counter) -> Any:
        """Returns the rows of examples."""
        ...

    def collect(self, examples: Sequence[Any], rows: Any) -> Answers:
        """Returns the collector for the predictions of these examples."""
        ...


class CorpusData(TaskData, Protocol):
    """The host side of a task on a corpus."""

    def check_rows(self, rows: Any) -> None:
        """Raises UserError if the task cannot be trained on these CorpusRows."""
        ...


class LabelledData(TaskData, Protocol):
    """The host side of a task on files of labelled examples."""

    @property
    def labels(self) -> tuple[str, ...]: ...

    def with_labels(self, labels: tuple[str, ...]) -> "LabelledData":
        """Returns the same with these labels."""
        ...

    def with_labels_of(self, examples: Iterable[Any]) -> "LabelledData":
        """Returns the same with the labels of the training examples."""
        ...

    def score(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Returns scores of labelled examples, `metrics` first."""
        ...

    def describe(self) -> tuple[str, ...]:
        """Returns lines for the banner about the head."""
        ...

    def baseline(self, examples: Sequence[Any]) -> float:
        """Returns the first metric of the same answer to every example."""
        ...


@dataclasses.dataclass(frozen=True)
class TaskSettings:
    """The part of a configuration that concerns its task, as plain values.

    Attributes:
      model, data, head: the groups of the configuration; `head` is empty where there is none.
      metrics: names of scores; the first is reported first.
      max_sequence_length: of a row in tokens, special ones included.
      frozen_encoder: whether the encoder is not trained.
      prediction_batch_size: rows of a batch of predictions, before rounding up to the mesh.
      top_k: candidates for each masked position.
      untrained: names of the parameters that an import did not find.
    """

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    head: Mapping[str, Any]
    metrics: tuple[str, ...]
    max_sequence_length: int
    frozen_encoder: bool = False
    prediction_batch_size: int = 32
    top_k: int = 5
    untrained: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class OutputForm:
    """A published form of predictions, chosen by the ending of the output's name.

    Attributes:
      write: (host side, JSON lines of predictions, path) writes the file.
      check: (host side, path) raises UserError for a path that the form cannot have.
    """

    write: Callable[[Any, str, str], None]
    check: Callable[[Any, str], Any] = lambda data, path: None


@dataclasses.dataclass(frozen=True)
class TaskRow:
    """A row of TASKS: everything that depends on the name of a task.

    Attributes:
      make: TaskSettings -> the host side, without labels; raises UserError for settings that do
        not exist.
      default_config: the package's defaults for the task.
      head: top-level name of the head's parameters whose bias has a value for each class; "" if
        there is none.
      pools: whether the model has a pooler.
      fills_masks: whether the model has a masked-LM head.
      reads_forward: whether the model predicts each token from those before it.
      reads_streams: whether the rows are those of streams, and states are carried between batches.
      outputs: published forms of predictions by ending of a file name.
      example: the class of the examples that are predicted; None: requests cannot ask for them.
    """

    make: Callable[[TaskSettings], TaskData]
    default_config: Callable[..., ConfigDict]
    head: str = ""
    pools: bool = False
    fills_masks: bool = False
    reads_forward: bool = False
    reads_streams: bool = False
    outputs: Mapping[str, OutputForm] = dataclasses.field(default_factory=dict)
    example: type | None = None


def windows(examples: Iterable[Any]) -> Iterator[list[Any]]:
    """Yields examples in lists of WINDOW, in order."""
    examples = iter(examples)
    while window := list(itertools.islice(examples, WINDOW)):
        yield window


def example_batch(length: int = 8) -> dict[str, jax.Array]:
    """Returns what every encoder takes: a batch of one row without padding."""
    return complete_batch({"input_ids": jnp.zeros((1, length), jnp.int32)})
