"""The loss of classes: cross-entropy, also with class weights and smoothed labels; focal loss.

It is the same for one label per text, for several (each a binary decision) and for tags. Its
denominator is the number of examples, not the sum of their weights: with `class_weights=auto` the
mean weight is 1, and a batch without rare examples does not count more for it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.class_fields import ClassFields, parse_class_weights
from bert_jax.files.errors import UserError
from bert_jax.models.task_heads import IMPOSSIBLE
from bert_jax.tasks import losses
from bert_jax.tasks.losses import Sum, Sums


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
      label_smoothing: share of the target that is spread evenly over the labels.
      focal_gamma: exponent of the focal loss; 0: cross-entropy.
    """

    weights: tuple[Any, ...] = ()
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0

    @classmethod
    def make(cls, head: ClassFields, labels: Sequence[str], several: bool = False) -> "ClassLoss":
        """Returns the loss that a head has.

        Args:
          head: `class_weights` is not auto: `training/open` replaces that by weights.
          labels: names of the labels.
          several: whether an example has several labels.

        Raises:
          UserError: there is a weight of an unknown label, or a pair of weights without `several`.
        """
        given = parse_class_weights("head.class_weights", head.class_weights)
        for name, weight in given.items():
            if name not in labels:
                raise UserError(
                    f"head.class_weights: {name!r} is none of the labels {', '.join(labels)}."
                )
            if not several and isinstance(weight, list | tuple):
                raise UserError(
                    f"head.class_weights: {name!r} has two weights, which are for several labels"
                    " per text: give one."
                )
        table = [given.get(name, 1.0) for name in labels]
        if several:
            table = [tuple(x) if isinstance(x, list | tuple) else (1.0, x) for x in table]
        return cls(tuple(table) if given else (), head.label_smoothing, head.focal_gamma)

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
        # As a matrix, like there.
        flat, rows = labels.reshape(-1), logits.reshape(-1, logits.shape[-1])
        is_label = jax.nn.one_hot(flat, rows.shape[-1], dtype=bool)
        values, _ = losses.cross_entropy(rows, flat)
        if self.focal_gamma:
            rest = jax.nn.logsumexp(jnp.where(is_label, IMPOSSIBLE, rows), axis=-1)
            log_rest = rest - jax.nn.logsumexp(rows, axis=-1)  # log(1 - p)
            values *= jnp.exp(self.focal_gamma * log_rest)
        if self.label_smoothing:
            of_all = -jax.nn.log_softmax(rows).mean(-1)
            values = (1 - self.label_smoothing) * values + self.label_smoothing * of_all
        if self.weights:
            values *= jnp.asarray(self.weights, jnp.float32)[flat]
        total = (values.reshape(labels.shape) * weights).sum()
        return sums | {f"{name}_loss": Sum(total, weights.sum())}

    def several(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        """Returns the mean loss of the binary decisions of each example, float32[...].

        Args:
          logits: float32[..., classes].
          labels: float32[..., classes], 0 or 1.
        """
        smoothed = labels
        if self.label_smoothing:
            smoothed = (1 - self.label_smoothing) * labels + self.label_smoothing / 2
        values = jnp.logaddexp(0.0, logits) - smoothed * logits
        if self.focal_gamma:
            of_label = jnp.where(labels > 0, logits, -logits)  # p = sigmoid(of_label)
            values *= jnp.exp(-self.focal_gamma * jnp.logaddexp(0.0, of_label))
        if self.weights:
            without, with_label = np.asarray(self.weights, np.float32).T
            shape = logits.shape
            values *= jnp.where(
                labels > 0, jnp.broadcast_to(with_label, shape), jnp.broadcast_to(without, shape)
            )
        return values.mean(-1)
