"""Base classes of the tasks on labelled examples."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.group import derived
from bert_jax.config.run import RunConfig
from bert_jax.files.errors import UserError
from bert_jax.models.heads import word_flops
from bert_jax.models.layer_choice import LAYER_CHOICES
from bert_jax.models.model import EncoderConfig
from bert_jax.models.reading import HeadConfig, PooledHeadConfig
from bert_jax.scores.sampling import sampling_error
from bert_jax.tasks.auxiliary import Losses
from bert_jax.tasks.task import Prediction, Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labelled(Task):
    """Base class of the tasks on labelled files.

    A subclass is a frozen dataclass that adds `read`, `encode`, `make_model`, `losses`, `answers`
    and `score`, and overrides `find_labels`, `bind`, `collect` and `baseline` where they do not
    fit.

    Attributes:
      max_sequence_length: maximum length of a row in tokens, special tokens included.
      metrics: names of the scores; the first selects checkpoints.
      labels: names of the classes; () before they are known, and in tasks without classes.
    """

    max_sequence_length: int = derived(128)
    labels: tuple[str, ...] = derived(())

    RUN = FinetuningConfig
    # Whether the task can tell the examples of a row apart.
    PACKS: ClassVar = False
    # Whether losses compare the examples of a batch: then a batch has texts of any length, since
    # only texts of similar length would otherwise be told apart.
    COMPARES_EXAMPLES: ClassVar = False

    def for_run(self, config: RunConfig) -> Self:
        return dataclasses.replace(
            super().for_run(config), max_sequence_length=config["max_length"]
        )

    @property
    def can_pack(self) -> bool:
        return self.PACKS

    def for_evaluation(self, source: str) -> Self:
        """Returns the task for an evaluation file, which may lack what only training reads."""
        return self

    # ---------------------------------------------------------------- what a plan asks

    # Whether labels are numbers and not names of classes.
    reads_numbers = False

    # Whether texts that are longer than a row are read in windows.
    splits_texts = False

    def row_texts(self, example: Any) -> tuple[tuple[str, ...], ...]:
        """Returns the texts of each row of an example that may be cut off; (): none."""
        return ()

    def mean_rows(self, lengths: Sequence[int], max_length: int) -> float:
        """Returns the mean number of rows that an example has in an epoch.

        Args:
          lengths: lengths of examples in tokens, special tokens included.
          max_length: maximum length of a row in tokens.
        """
        return 1.0

    # ---------------------------------------------------------------- training and scores

    def find_labels(self, examples: Iterable[Any]) -> tuple[str, ...]:
        """Returns the labels of the training examples, in the order of their numbers."""
        return self.labels

    def collect(self, examples, rows, answers):
        """`id` and the answers of each example, for tasks with one example in each row."""
        return [
            {"id": example.id, **{name: array.tolist() for name, array in answer.items()}}
            for example, answer in zip(examples, answers, strict=True)
        ]

    # Fields that a teacher must have too, since predictions are compared.
    TAUGHT: ClassVar[tuple[str, ...]] = ()

    def misfits(self, teacher):
        for name in self.TAUGHT:
            value, expected = getattr(teacher, name), getattr(self, name)
            if value != expected:
                yield (
                    f"has config.task.{name}={value!r}, and the run {expected!r}: choose another"
                    " teacher."
                )
        if teacher.labels != self.labels:
            names = [", ".join(labels) or "no names" for labels in (teacher.labels, self.labels)]
            yield f"has the labels {names[0]}, and the run {names[1]}: choose another teacher."

    def balanced_weights(self, examples: Iterable[Any]) -> dict[str, Any]:
        """Returns the `task.class_weights` that auto stands for, given the training examples."""
        raise NotImplementedError

    def score(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Returns scores of labelled examples, `metrics` first."""
        raise NotImplementedError

    # The best possible score.
    TOP: ClassVar[float] = 1.0

    def counts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> Mapping:
        """Returns the `Counts` of each class by name; {} without classes."""
        return {}

    def error(
        self, examples: Sequence[Any], predictions: Sequence[Prediction], metric: str
    ) -> float:
        """Returns the standard error of a score over examples that are drawn like these."""
        return sampling_error(lambda *of: self.score(*of)[metric], examples, predictions)

    def difference_error(
        self,
        examples: Sequence[Any],
        predictions: Sequence[Prediction],
        others: Sequence[Prediction],
        metric: str,
    ) -> float:
        """Returns the standard error of the difference of two scores of the same examples."""

        def difference(examples: Sequence[Any], pairs: Sequence[Any]) -> float:
            ours, theirs = zip(*pairs, strict=True)
            return self.score(examples, ours)[metric] - self.score(examples, theirs)[metric]

        return sampling_error(difference, examples, list(zip(predictions, others, strict=True)))

    def review(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Returns what the report shows of an evaluation, as `tasks.review_parts` describes it."""
        return {}

    def decision_scores(self, examples: Sequence[Any], rows: Any, answers: Any) -> dict[str, float]:
        """Returns the scores that fitted decisions change; see `collect` for the arguments."""
        return {}

    def baseline(self, examples: Sequence[Any]) -> float | None:
        """Returns the first metric of the majority-class baseline; None: there is no such value."""
        return None

    def predict_without_encoder(
        self, train: Sequence[Any], examples: Sequence[Any]
    ) -> Sequence[Prediction] | None:
        """Returns what a simple model, trained on the training examples, predicts for others.

        The predictions have what `score` reads; the verdict says what the encoder adds to them.
        None: there is no such model.
        """
        return None

    def evaluate(self, rows, answers, means):
        """The scores, then the loss; for files other than `eval`, prefixed with their names."""
        predictions = self.collect(rows.examples, rows.rows, answers)
        values = self.score(rows.examples, predictions) | {"loss": means["loss"]}
        values |= self.decision_scores(rows.examples, rows.rows, answers)
        prefix = "" if rows.name == "eval" else f"{rows.name}_"
        return {prefix + name: value for name, value in values.items()}, predictions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headed(HeadConfig, Labelled):
    """A task on labelled files whose head reads layers of the encoder."""

    def for_run(self, config: RunConfig) -> Self:
        is_frozen = config.optimizer.frozen_layers == -1
        if self.lm_weight and is_frozen:
            raise UserError(
                f"task.lm_weight={self.lm_weight} trains the encoder, which"
                " config.optimizer.frozen_layers=-1 freezes: set one of the two to 0."
            )
        if self.mix_layer_norm and config.microbatch_size:
            raise UserError(
                "task.mix_layer_norm=True normalizes over a whole batch, which"
                f" config.microbatch_size={config.microbatch_size} splits: set one of the two to"
                " its default."
            )
        return dataclasses.replace(
            super().for_run(config), frozen=is_frozen and self.reads_features
        )

    # Whether a frozen encoder has no dropout, like a feature extractor.
    reads_features = True

    @property
    def can_pack(self) -> bool:
        """Whether a row may have several examples; some heads and losses read whole rows."""
        reads_whole_rows = self.has_bilstm or self.has_crf
        return self.PACKS and not reads_whole_rows and self._auxiliary == Losses()

    @property
    def _auxiliary(self) -> Losses:
        return Losses(self.lm_weight, self.mix_l2)

    def bind(self, model, tokenizer, phase=None, evaluate=False) -> Self:
        if (needed := LAYER_CHOICES[self.layers].min_layers) > model.num_layers:
            raise UserError(
                f"task.layers={self.layers!r} takes {needed} layers, and the model has"
                f" {model.num_layers}: choose another, such as last or scalar_mix."
            )
        return self._auxiliary.add_to(dataclasses.replace(self, model=model))

    def describe(self):
        parts = ["the loss of the task"]
        if self.lm_weight:
            parts.append(f"{self.lm_weight:g} x the loss of the next token")
        if self.mix_l2:
            parts.append(f"{self.mix_l2:g} x the squares of the mix's weights")
        if len(parts) > 1:
            yield f"loss       {' + '.join(parts)}"

    def head_flops_per_token(self) -> float:
        return word_flops(self.model) if self.lm_weight else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pooled(PooledHeadConfig, Headed):
    """A task on labelled files whose head reads one vector of each example."""

    POOLS = True

    def describe(self):
        parts = [
            "the last layer" if self.layers == "last" else self.layers,
            *(["BiLSTM"] if self.has_bilstm else []),
            {"cls": "[CLS]", "last": "last token", "mean": "mean", "max": "maximum"}[self.pool],
            "pooler" if self.has_pooler else "no pooler",
            *self.more_parts(),
        ]
        yield f"head       {' -> '.join(parts)}"
        yield from super().describe()

    def more_parts(self) -> Iterator[str]:
        """Yields what `describe` shows after the pooling."""
        yield from ()

    @property
    def reads_features(self) -> bool:
        return not self.has_pooler  # which belongs to the encoder, with its dropout

    def bind(self, model, tokenizer, phase=None, evaluate=False) -> Self:
        check_pool(self.pool, model)
        return super().bind(model, tokenizer, phase, evaluate)


def check_pool(pool: str, model: EncoderConfig) -> None:
    """Raises UserError if the head reads the first token, and that sees no other one."""
    if pool == "cls" and model.is_causal:
        raise UserError(
            "task.pool='cls' reads the first token, which sees no other one in a causal model:"
            " set --config.task.pool=last, or mean or max."
        )
