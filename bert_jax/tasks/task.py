"""What a task is: one object that reads, encodes, computes losses, predicts and scores."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.data import DataConfig
from bert_jax.config.group import derived
from bert_jax.config.groups import DistillationConfig
from bert_jax.config.phases import Phase
from bert_jax.config.run import PretrainingConfig, RunConfig, TaskConfig
from bert_jax.config.task import TASKS, find_task
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.labelled.examples import Example
from bert_jax.data.labelled.table_rows import read_rows
from bert_jax.data.labelled.texts import read_texts
from bert_jax.files.errors import UserError
from bert_jax.models.model import Batch, EncoderConfig, complete_batch
from bert_jax.tasks.losses import Sums
from bert_jax.text.tokenization import Tokenizer

# Examples that are in memory at a time, and after which predictions are on disk.
WINDOW = 1024
# What the devices return for a row, and what is written for an example, as JSON values.
Answer = Mapping[str, np.ndarray]
Prediction = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(TaskConfig):
    """A task: what is read, computed, minimized, predicted and scored.

    A subclass is a frozen dataclass without arrays, and hashable: programs are compiled once for
    equal tasks. Its fields are those of `config.task`, except `derived` ones. `Labelled` is the
    base of tasks on files of labelled examples, `CorpusTask` that of tasks on a corpus. A run has
    one task, whose `bind` returns the task for an encoder: modules, losses and answers are methods
    of the bound task.

    Attributes:
      name: its name in TASKS.
      model: the encoder's configuration, set by `bind`.
      metrics: names of the scores; the first is compared with the baseline.
      labels: names of the classes, () before they are known; None: the task has none to store.
      further: functions (outputs, batch) -> Sums, whose losses are added to the task's own.
      taught: what is learned from a teacher; None: nothing.
    """

    model: EncoderConfig = derived(None)
    labels: tuple[str, ...] | None = derived(None)
    further: tuple[Callable[[Any, Batch], Sums], ...] = derived(())
    taught: "Taught | None" = derived(None)

    # Top-level name of the head's parameters whose bias has a value for each class; "": none.
    HEAD: ClassVar[str] = ""
    # Another task, as whose class programs store a model with this head; "": none.
    STORED_AS: ClassVar[str] = ""
    # Whether the model has a pooler.
    POOLS: ClassVar[bool] = False
    # Whether the model has a masked-LM head.
    FILLS_MASKS: ClassVar[bool] = False
    # Whether the model predicts each token from those before it.
    READS_FORWARD: ClassVar[bool] = False
    # Whether it gives the tokens of a text probabilities without masks; see `log_probabilities`.
    HAS_LIKELIHOOD: ClassVar[bool] = False
    # Whether the rows are those of streams: row b of a batch continues row b of the one before.
    READS_STREAMS: ClassVar[bool] = False
    # What the model is trained to give for a text: a `dense` vector, or a `sparse` one, the weights
    # of the words of the vocabulary, or `multi`, a vector of each token; "": none.
    EMBEDS: ClassVar[str] = ""
    # Whether a phase of another task's run can train it; see `as_phase`.
    CAN_BE_PHASE: ClassVar[bool] = False
    # The class of the examples that are predicted; None: requests cannot ask for them.
    EXAMPLE: ClassVar[type[Example] | None] = None
    # Fields with names of columns -> the inputs of an example that these columns give.
    COLUMNS: ClassVar[Mapping[str, str]] = {}
    # What stands between the words of a text.
    between_words = " "
    # Whether an example is a pair of texts.
    reads_pairs = False

    @property
    def title(self) -> str:
        """The name of the task in `finetune` and `train`."""
        return self.name

    @property
    def column_inputs(self) -> dict[str, str]:
        """Column name in the files -> the input of an example that the column gives.

        The input is "" for columns that only training reads. Columns without a name, or named like
        an input, are left out.
        """
        names = {item.name for item in self.EXAMPLE.inputs()} if self.EXAMPLE else {}
        columns = {str(getattr(self, field, "")): "" for field in ("label", "negative")}
        columns |= {str(getattr(self, field)): name for field, name in self.COLUMNS.items()}
        return {c: columns[c] for c in columns if c and not c.isdecimal() and c not in names}

    # The title of the page's form, and a sentence that says what it shows.
    view = ("Answer", "What the model answers.")

    def sample(self, example: Example) -> dict[str, Any]:
        """Returns what is entered in the page's form for an example."""
        return example.to_inputs()

    # ---------------------------------------------------------------- the configuration

    @classmethod
    def default_config(cls) -> RunConfig:
        """Returns the package's defaults for a run with the task."""
        return cls.RUN(task=cls())

    @classmethod
    def as_phase(cls, model: EncoderConfig) -> "Task":
        """Returns the task that trains a masked language model's parameters in a phase of its run.

        Raises:
          UserError: the encoder cannot be trained this way.
        """
        raise NotImplementedError

    def describe(self) -> Iterator[str]:
        """Yields lines for the banner of a run, such as what the head reads."""
        yield from ()

    def with_labels(self, labels: tuple[str, ...]) -> Self:
        """Returns the task with these labels, or as it is if it has none to store."""
        return self if self.labels is None else dataclasses.replace(self, labels=labels)

    def with_untrained(self, untrained: Collection[str]) -> Self:
        """Returns the task of a model whose parameters at these paths are untrained."""
        return self

    def relevance(self, prediction: Prediction) -> float:
        """Returns how well the second text of a pair answers the first, given their prediction.

        Raises:
          UserError: the task does not rank texts.
        """
        raise UserError(
            f"config.task.name={self.name!r} does not rank texts: take a cross-encoder"
            " (task='cross_encoder'), or a model of pairs with scores or two classes."
        )

    def check_trained(self, untrained: Collection[str], workdir: str) -> None:
        """Raises UserError if a head that is needed has random parameters.

        Args:
          untrained: names of the parameters that an import did not find.
          workdir: folder of the imported weights.
        """

    # ---------------------------------------------------------------- examples and rows

    # Whether a row may have several examples.
    can_pack = False

    def read(self, path: str, counts: Counter, labelled: bool) -> Iterator[Any]:
        """Yields the examples of a file; counts what is left out or repaired."""
        raise NotImplementedError

    def check_example(self, example: Any, tokenizer: Tokenizer, model: EncoderConfig) -> None:
        """Raises UserError for an example that does not fit the model."""

    def check_question(self, example: Any, tokenizer: Tokenizer, model: EncoderConfig) -> None:
        """Raises UserError for an example that does not fit the model, or asks nothing of it."""
        self.check_example(example, tokenizer, model)

    def windows(self, examples: Iterable[Any]) -> Iterator[list[Any]]:
        """Yields the examples in groups that are predicted and stored together, in order."""
        examples = iter(examples)
        while window := list(itertools.islice(examples, WINDOW)):
            yield window

    def encode(self, examples: Sequence[Any], tokenizer: Tokenizer, counts: Counter) -> Any:
        """Returns the rows of examples; counts what is truncated."""
        raise NotImplementedError

    # ---------------------------------------------------------------- on the devices

    def bind(
        self,
        model: EncoderConfig,
        tokenizer: Tokenizer,
        phase: Phase | None = None,
        evaluate: bool = False,
    ) -> "Task":
        """Returns the task for an encoder and a phase.

        Args:
          model: the encoder's configuration.
          tokenizer: the run's tokenizer.
          phase: phase to train; None: the `answers` are the predictions for files.
          evaluate: whether held-out rows of the phase are evaluated.

        Raises:
          UserError: the encoder or the tokenizer lacks what the task needs.
        """
        return dataclasses.replace(self, model=model)

    # Whether the losses of an example depend on the outputs of other examples. Such losses need the
    # outputs of the whole batch, arrays [batch, ...]: losses of microbatches do not add up to them.
    # See `gradient.compute_gradient`.
    couples_examples = False

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
          key: random key of this batch.
          batch: the global batch.
          progress: float32[], the fraction of the run's steps that are done.
        """
        del key, progress
        return dict(batch)

    def losses(self, outputs: Any, batch: Batch) -> Sums:
        """Returns the task's own losses of a batch or microbatch, and metrics such as accuracies.

        Denominators must depend only on the batch: those of the whole batch are computed before the
        outputs of its microbatches.

        Args:
          outputs: the model's outputs.
          batch: the batch that `transform` returned.
        """
        raise NotImplementedError

    def all_losses(self, outputs: Any, batch: Batch) -> Sums:
        """Returns `losses` and the `further` ones; the sum of their means is minimized.

        Raises:
          UserError: two of them have the same name.
        """
        sums = self.losses(outputs, batch)
        for function in self.further:
            more = function(outputs, batch)
            if taken := sums.keys() & more.keys():
                raise UserError(
                    f"losses: {', '.join(sorted(taken))} is a loss or a metric of the task itself:"
                    " choose another name."
                )
            sums |= more
        return sums

    def distilled_losses(
        self, outputs: Any, teacher: Any, batch: Batch, temperature: float
    ) -> Sums:
        """Returns the divergences of the predictions from a teacher's, by the names of `losses`.

        Only tasks that override this can have teachers. Denominators are those of `losses`.

        Args:
          outputs: the model's outputs.
          teacher: outputs of a teacher with the same task, labels and vocabulary.
          batch: the batch that `transform` returned.
          temperature: divisor of the logits of both.
        """
        raise NotImplementedError

    def misfits(self, teacher: Self) -> Iterator[str]:
        """Yields why predictions cannot be compared with a teacher's, and what to do."""
        yield from ()

    def answers(self, outputs: Any, batch: Batch) -> dict[str, jax.Array]:
        """Returns what the host reads from each row, [batch, ...] each; empty if nothing."""
        return {}

    def init_carry(self, batch_size: int) -> Any:
        """Returns what the first batch gets as `carry`: a tree of zeros, float32[batch_size, ...].

        (): the model carries nothing from a batch to the next one.
        """
        return ()

    def carry(self, outputs: Any) -> Any:
        """Returns the carry after a batch from the model's outputs."""
        return ()

    def head_flops_per_token(self) -> float:
        """Returns the forward FLOPs of the heads' large matrix products per input position."""
        return 0.0

    # ---------------------------------------------------------------- predictions and scores

    def collect(
        self, examples: Sequence[Any], rows: Any, answers: Sequence[Answer]
    ) -> list[Prediction]:
        """Returns a prediction for each example.

        Args:
          examples: the encoded examples.
          rows: the result of `encode`.
          answers: the `answers` for each row.
        """
        raise NotImplementedError

    # Whether tables of predictions have rows of `example_row`, and not those of the input.
    TABLES_OF_EXAMPLES: ClassVar[bool] = False

    # Whether predictions can stand in the columns of a table.
    has_tables = False

    def input_rows(self, path: str) -> Iterator[dict[Any, Any]]:
        """Yields the columns of each example in a file, for `cells` beside them."""
        return (row for _, row in read_rows(path, Counter()))

    def example_row(self, example: Any) -> dict[str, Any]:
        """Returns the columns of an example, if `TABLES_OF_EXAMPLES`."""
        raise NotImplementedError

    def cells(self, prediction: Prediction) -> list[dict[str, Any]]:
        """Returns the columns that a prediction adds, for each of its rows in a table."""
        raise NotImplementedError

    def fitted(self, rows: Any, answers: Sequence[Answer]) -> Self:
        """Returns the task with the values that the configuration fits on evaluated rows.

        Args:
          rows, answers: what `evaluate` takes.
        """
        return self

    def fitted_values(self) -> dict[str, Any]:
        """Returns the values that `fitted` found, as JSON values; {} if nothing is fitted."""
        return {}

    def with_fitted(self, values: Mapping[str, Any]) -> Self:
        """Returns the task with the `fitted_values` of a checkpoint."""
        return self

    def evaluate(
        self, rows: Any, answers: Sequence[Answer], means: Mapping[str, float]
    ) -> tuple[dict[str, float], list[Prediction]]:
        """Returns the metrics of an evaluation, the one that selects checkpoints first.

        Args:
          rows: the evaluated LabelledRows or CorpusRows.
          answers: the `answers` for each row.
          means: the means of the device's Sums, `loss` first.

        Returns:
          The metrics, and the predictions for the examples, if there are any.
        """
        raise NotImplementedError


class Taught(NamedTuple):
    """What a task learns from a teacher.

    Attributes:
      teacher: the teacher's task.
      config: weight and temperature of its predictions.
    """

    teacher: Task
    config: DistillationConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusTask(Task):
    """A task on a corpus, whose examples for predictions are texts.

    Attributes:
      data: `config.data`.
    """

    data: DataConfig = derived(DataConfig())

    RUN = PretrainingConfig

    # What `check_trained` looks for: the head's parameters, and its name in the message.
    LM_HEAD: ClassVar = ("masked_lm/", "a masked-LM head")

    def for_run(self, config: RunConfig) -> Self:
        if self.READS_STREAMS != (config["data.segments"] == "stream"):
            needed = "needs" if self.READS_STREAMS else "cannot read"
            raise UserError(
                f"task.name={self.name!r} {needed} config.data.segments='stream', and it is"
                f" {config['data.segments']!r}: change one of the two."
            )
        for phase in config.make_phases(0):
            if phase.task:
                make_phase_task(config, phase.task)
        return dataclasses.replace(super().for_run(config), data=config.data)

    can_pack = True

    def check_rows(self, rows: CorpusRows) -> None:
        """Raises UserError if the task cannot be trained on these rows."""

    def evaluate(self, rows, answers, means):
        return dict(means), []

    def read(self, path, counts, labelled):
        return read_texts(path)

    def check_trained(self, untrained, workdir):
        parameters, name = self.LM_HEAD
        if any(path.startswith(parameters) for path in untrained):
            raise UserError(
                f"The weights in {workdir} were imported without {name}: they give features"
                " (bert_jax encode), but no predictions and no scores of texts before"
                f" they are trained: bert_jax finetune FILE --model={workdir}."
            )


def make_phase_task(config: RunConfig, name: str) -> Task:
    """Returns a task other than the run's, which a phase or some of its steps train.

    Raises:
      UserError: the task cannot be trained in a phase, or not in a phase of this run.
    """
    kind = find_task(name) if name in TASKS else None
    if kind is None or not kind.CAN_BE_PHASE:
        available = [name for name in TASKS if find_task(name).CAN_BE_PHASE]
        raise UserError(
            f"phases has the task {name!r}: available are {', '.join(available)}, and no name for"
            " the run's own."
        )
    if not config.task.FILLS_MASKS or config["data.mode"] != "dynamic":
        raise UserError(
            f"phases and config.causal_share: {name!r} needs a run on masked tokens with"
            " config.data.mode='dynamic': leave them out."
        )
    if config.eval.patience and any(phase.task for phase in config.make_phases(0)):
        raise UserError(
            f"eval.patience={config.eval.patience} could end the run in its phase of {name!r},"
            " which does not train the loss that is evaluated: set it to 0."
        )
    return kind.as_phase(config.model)


def example_batch() -> dict[str, jax.Array]:
    """Returns what every encoder takes: a batch of one row without padding."""
    return complete_batch({"input_ids": jnp.zeros((1, 8), jnp.int32)})


def add_answers(
    found: dict[int, Answer], row_numbers: np.ndarray, outputs: Mapping[str, Any]
) -> None:
    """Adds the answers of a batch, [batch, ...] each, by row number; -1 is padding."""
    for place, number in enumerate(row_numbers.tolist()):
        if number >= 0:
            found[number] = {name: array[place] for name, array in outputs.items()}


def in_order(found: Mapping[int, Answer]) -> list[Answer]:
    """Returns the answers of all rows by row number."""
    return [found[number] for number in range(len(found))]
