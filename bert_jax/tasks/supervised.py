"""What the tasks on labelled examples share."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

from bert_jax.config.class_fields import DECISION_FIELDS, LOSS_FIELDS, ClassFields
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.groups import HeadConfig
from bert_jax.files.errors import UserError
from bert_jax.models.heads import word_flops
from bert_jax.models.layer_choice import LAYER_CHOICES
from bert_jax.models.model import EncoderConfig
from bert_jax.tasks.auxiliary import Losses
from bert_jax.tasks.task import Prediction, Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labelled(Task):
    """A task on labelled files, as far as it does not depend on the task.

    A subclass is a frozen dataclass that adds `read`, `encode`, `make_model`, `losses`, `answers`
    and `score`; where they do not fit, it replaces `find_labels`, `bind`, `collect` and `baseline`.

    Attributes:
      max_sequence_length: maximum length of a row in tokens, special tokens included.
      metrics: names of the scores; the first selects checkpoints.
      labels: names of the classes; () before they are known, and in tasks without classes.
      head: what the head reads of the encoder.
      auxiliary: further losses.
    """

    max_sequence_length: int = 128
    labels: tuple[str, ...] = ()
    head: HeadConfig = HeadConfig()
    auxiliary: Losses = Losses()

    # Whether the task can tell the examples of a row apart.
    PACKS: ClassVar = False

    @classmethod
    def make(cls, config: FinetuningConfig) -> Self:
        return cls(**shared_fields(config))

    @property
    def can_pack(self) -> bool:
        """Whether a row may have several examples; some heads and losses read whole rows."""
        return self.PACKS and not self.head.reads_whole_rows and self.auxiliary == Losses()

    def bind(self, model, tokenizer, phase=None, evaluate=False) -> Self:
        check_head(self.head, model, pools=self.POOLS)
        return self.auxiliary.add_to(dataclasses.replace(self, model=model))

    def head_flops_per_token(self) -> float:
        return word_flops(self.model) if self.auxiliary.lm_weight else 0.0

    def find_labels(self, examples: Iterable[Any]) -> tuple[str, ...]:
        """Returns the labels of the training examples, in the order of their numbers."""
        return self.labels

    def collect(self, examples, rows, answers):
        """`id` and the answers of each example, for tasks with an example in each row."""
        return [
            {"id": example.id, **{name: array.tolist() for name, array in answer.items()}}
            for example, answer in zip(examples, answers, strict=True)
        ]

    def balanced_weights(self, examples: Iterable[Any]) -> dict[str, Any]:
        """Returns the `head.class_weights` of training examples that are meant by auto."""
        raise NotImplementedError

    def score(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Returns scores of labelled examples, `metrics` first."""
        raise NotImplementedError

    def decision_scores(self, examples: Sequence[Any], rows: Any, answers: Any) -> dict[str, float]:
        """Returns what fitted decisions change; see `collect` for the arguments."""
        return {}

    def baseline(self, examples: Sequence[Any]) -> float | None:
        """Returns the first metric of the majority-class baseline; None: there is no such value."""
        return None

    def evaluate(self, rows, answers, means):
        """The scores, then the loss; of other files than `eval` with their names in front."""
        predictions = self.collect(rows.examples, rows.rows, answers)
        values = self.score(rows.examples, predictions) | {"loss": means["loss"]}
        values |= self.decision_scores(rows.examples, rows.rows, answers)
        prefix = "" if rows.name == "eval" else f"{rows.name}_"
        return {prefix + name: value for name, value in values.items()}, predictions


def shared_fields(
    config: FinetuningConfig, field: str = "", class_fields: Sequence[str] = (), why: str = ""
) -> dict[str, Any]:
    """Returns the fields of `Labelled` but `labels`.

    Args:
      config, field: see `make_head`.
      class_fields: the fields of `ClassFields` that the task has.
      why: why it lacks the others; "": it has no classes.

    Raises:
      UserError: a field that the task lacks is set.
    """
    for name in (*LOSS_FIELDS, *DECISION_FIELDS):
        value, default = getattr(config.head, name), getattr(ClassFields(), name)
        if value != default and name not in class_fields:
            raise UserError(
                f"head.{name}={value!r} cannot be used: {why or 'this task has no classes'}. Set"
                f" --config.head.{name}={default}."
            )
    return {
        "max_sequence_length": config.max_length,
        "metrics": config.metrics,
        "head": make_head(config, field),
        "auxiliary": Losses.make(config),
    }


def make_head(config: FinetuningConfig, field: str = "") -> HeadConfig:
    """Returns the head of a run's task.

    Args:
      config: configuration of the run.
      field: field of `config.head` that chooses the head; "": a linear layer.
    """
    chosen = getattr(config.head, field) if field else "linear"
    head = dataclasses.replace(config.head, head=chosen)
    # A frozen encoder below a pooler or linear spans keeps its dropout.
    reads_features = field == "tagging" or not head.has_pooler
    is_frozen = config.optimizer.frozen_layers == -1
    return dataclasses.replace(head, frozen=is_frozen and reads_features)


def check_head(head: HeadConfig, model: EncoderConfig, *, pools: bool = False) -> None:
    """Refuses a head that cannot read an encoder.

    Args:
      head: result of `make_head`.
      model: configuration of the encoder.
      pools: whether the head reads one vector of each example.

    Raises:
      UserError: the encoder has too few layers, or is causal and the head reads the first token.
    """
    if (needed := LAYER_CHOICES[head.layers].min_layers) > model.num_layers:
        raise UserError(
            f"head.layers={head.layers!r} takes {needed} layers, and the model has"
            f" {model.num_layers}: choose another, such as last or scalar_mix."
        )
    if pools and head.pool == "cls" and model.is_causal:
        raise UserError(
            "head.pool='cls' reads the first token, which sees no other one in a causal model:"
            " set --config.head.pool=last, or mean or max."
        )
