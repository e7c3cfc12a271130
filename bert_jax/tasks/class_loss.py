"""Classification loss: cross-entropy with class weights and label smoothing; focal loss.

It is the same for one label per text, for several (each a binary decision) and for tags. Its
denominator is the number of examples, not the sum of their weights: with `class_weights=auto` the
mean weight is 1, and a batch without rare examples does not count more because of that.
"""

import ast
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.group import Group, setting
from bert_jax.files.errors import UserError
from bert_jax.models.task_heads import IMPOSSIBLE
from bert_jax.tasks import losses
from bert_jax.tasks.losses import Sums

# Maximum length of a field's value in the banner.
_MAX_CHARACTERS = 200

LOSS_FIELDS = ("class_weights", "weighting", "label_smoothing", "focal_gamma")


def parse_class_weights(name: str, text: str) -> dict[str, Any]:
    """Returns the weights that `task.class_weights` gives to labels; {} for none and auto.

    Args:
      name: the field's name, for the message.
      text: its value, such as `{"bad": 10, "good": 1}`.

    Raises:
      UserError: the value is malformed, or a weight is not above 0.
    """
    if text in ("none", "auto"):
        return {}
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        found = None
    if isinstance(found, dict) and found and {*map(type, found)} <= {str, int}:
        weights = {str(label): weight for label, weight in found.items()}
        if all(map(_is_weight, weights.values())):
            return weights
    raise UserError(
        f"{name}={text!r} is neither none nor auto, nor has weights above 0 of labels, such as"
        ' {"bad": 10, "good": 1}.'
    )


def _is_weight(weight: Any) -> bool:
    if isinstance(weight, list | tuple):
        return (
            len(weight) == 2
            and not any(isinstance(x, list | tuple) for x in weight)
            and all(map(_is_weight, weight))
        )
    return type(weight) in (int, float) and 0 < weight < math.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassLossConfig(Group):
    """The fields of the classification loss."""

    # Weights of the labels in the loss: none; auto, by inverse frequency in
    # `data.train`: examples / (labels * examples of the label) (King and Zeng 2001), whose mean
    # over the examples is 1; or weights of some labels, {"bad": 10}, the others' being 1. With
    # several labels per text, a number is the weight of texts that have the label; a pair gives the
    # weights of texts that lack it and of those that have it.
    class_weights: str = setting("none", check=parse_class_weights)
    # What `class_weights` do: multiply the `loss` of each example; or adjust the `logits` in
    # training, from which the logarithm of each class's weight is subtracted (logit adjustment,
    # Menon et al. 2021, arXiv 2007.07314). With auto, these are the logarithms of the shares in
    # `data.train`, up to a constant: the model learns what a text says about its class apart from
    # how frequent the class is, and decides as if all classes were equally frequent.
    weighting: str = setting("loss", choices=("loss", "logits"))
    # Label smoothing: the share of the target that is spread evenly over all
    # labels (Szegedy et al. 2016, arXiv 1512.00567, section 7).
    label_smoothing: float = setting(0.0, minimum=0, below=1)
    # Focal loss: cross-entropy times (1 - p)^gamma, where p is the probability of
    # the gold label (Lin et al. 2017, arXiv 1708.02002); 0: cross-entropy.
    focal_gamma: float = setting(0.0, minimum=0)

    def check(self) -> None:
        super().check()
        if self.focal_gamma and self.label_smoothing:
            raise UserError(
                f"focal_gamma={self.focal_gamma} and label_smoothing={self.label_smoothing} are two"
                " losses: set one of the two to 0."
            )
        if self.weighting == "logits" and self.class_weights == "none":
            raise UserError("weighting=logits needs class_weights: set class_weights=auto.")

    def describe_classes(self, more: Sequence[str] = ()) -> Iterator[str]:
        """Yields a banner line for each field of the loss, and of `more`, that is not a default."""
        for item in dataclasses.fields(self):
            if (
                item.name in (*LOSS_FIELDS, *more)
                and (value := getattr(self, item.name)) != item.default
            ):
                yield f"classes    {item.name}={str(value)[:_MAX_CHARACTERS]}"

    def check_unset(self, names: Sequence[str], why: str) -> None:
        """Raises UserError for a field that is set where it cannot be used."""
        for item in dataclasses.fields(self):
            if item.name in names and (value := getattr(self, item.name)) != item.default:
                raise UserError(
                    f"{item.name}={value!r} cannot be used: {why}. Set"
                    f" --config.task.{item.name}={item.default}."
                )


def balanced_weights(counts: Sequence[int]) -> list[float]:
    """Returns the weight of each class for `class_weights=auto`: total / (classes * count).

    The mean weight of the examples is 1, and all classes have the same sum of weights (King and
    Zeng 2001, Logistic regression in rare events data, for equal shares in the population). Classes
    without examples have the weight 1 and are not counted.
    """
    total, present = sum(counts), sum(count > 0 for count in counts)
    return [total / (present * count) if count else 1.0 for count in counts]


@dataclasses.dataclass(frozen=True)
class ClassLoss:
    """The loss of one label per example, or of several; the default is cross-entropy.

    Attributes:
      weights: a weight for each label; with several labels per example, a pair for examples
        without and with the label; (): all are 1.
      adjusts_logits: whether the weights adjust the logits instead of multiplying the loss.
      label_smoothing: share of the target that is spread evenly over the labels.
      focal_gamma: exponent of the focal loss; 0: cross-entropy.
    """

    weights: tuple[Any, ...] = ()
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0
    adjusts_logits: bool = False

    @classmethod
    def make(
        cls, task: "ClassLossConfig", labels: Sequence[str], several: bool = False
    ) -> "ClassLoss":
        """Returns the loss that a task has.

        Args:
          task: its `class_weights` are not auto: `training/open` replaces auto with weights.
          labels: names of the labels.
          several: whether an example has several labels.

        Raises:
          UserError: a weight is for an unknown label, or a pair of weights without `several`.
        """
        given = parse_class_weights("task.class_weights", task.class_weights)
        for name, weight in given.items():
            if name not in labels:
                raise UserError(
                    f"task.class_weights: {name!r} is none of the labels {', '.join(labels)}."
                )
            if not several and isinstance(weight, list | tuple):
                raise UserError(
                    f"task.class_weights: {name!r} has two weights, which are for several labels"
                    " per text: give one."
                )
        table = [given.get(name, 1.0) for name in labels]
        if several:
            table = [tuple(x) if isinstance(x, list | tuple) else (1.0, x) for x in table]
        weights, adjusts = tuple(table) if given else (), task.weighting == "logits"
        return cls(weights, task.label_smoothing, task.focal_gamma, adjusts)

    def single(self, name: str, logits: jax.Array, labels: jax.Array, weights: jax.Array) -> Sums:
        """Returns what `losses.classify` does, with this loss.

        Args:
          name: name of the results.
          logits: float32[..., classes].
          labels: int32[...].
          weights: float32[...] of the examples, 0 for padding.
        """
        sums = losses.classify(name, logits, labels, weights)
        if self == ClassLoss():
            return sums
        # As a matrix, as in `losses.classify`.
        flat, rows = labels.reshape(-1), logits.reshape(-1, logits.shape[-1])
        if self.adjusts_logits:
            rows -= jnp.log(jnp.asarray([self.weights], jnp.float32))
        is_label = jax.nn.one_hot(flat, rows.shape[-1], dtype=bool)
        values, _ = losses.cross_entropy(rows, flat)
        if self.focal_gamma:
            rest = jax.nn.logsumexp(jnp.where(is_label, IMPOSSIBLE, rows), axis=-1)
            log_rest = rest - jax.nn.logsumexp(rows, axis=-1)  # log(1 - p)
            values *= jnp.exp(self.focal_gamma * log_rest)
        if self.label_smoothing:
            of_all = -jax.nn.log_softmax(rows).mean(-1)
            values = (1 - self.label_smoothing) * values + self.label_smoothing * of_all
        if self.weights and not self.adjusts_logits:
            values *= jnp.asarray(self.weights, jnp.float32)[flat]
        values = values.reshape(labels.shape)
        return sums | {f"{name}_loss": losses.weighted_sum(values, weights)}

    def several(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        """Returns the mean loss of the binary decisions of each example, float32[...].

        Args:
          logits: float32[..., classes].
          labels: float32[..., classes], 0 or 1.
        """
        if self.adjusts_logits:
            without, with_label = np.log(np.asarray(self.weights, np.float32)).T
            logits -= jnp.broadcast_to(with_label - without, logits.shape)
        smoothed = labels
        if self.label_smoothing:
            smoothed = (1 - self.label_smoothing) * labels + self.label_smoothing / 2
        values = jnp.logaddexp(0.0, logits) - smoothed * logits
        if self.focal_gamma:
            of_label = jnp.where(labels > 0, logits, -logits)  # p = sigmoid(of_label)
            values *= jnp.exp(-self.focal_gamma * jnp.logaddexp(0.0, of_label))
        if self.weights and not self.adjusts_logits:
            without, with_label = np.asarray(self.weights, np.float32).T
            shape = logits.shape
            values *= jnp.where(
                labels > 0, jnp.broadcast_to(with_label, shape), jnp.broadcast_to(without, shape)
            )
        return values.mean(-1)
