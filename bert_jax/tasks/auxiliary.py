"""Auxiliary losses: those of `config.task.name`, and a user's own.

    lm_loss        of the next token, for causal models (Radford et al. 2018, section 3.2)
    mix_l2_loss    of the weights of a scalar mix (Peters et al. 2018, section 3.2)

Tasks are unaware of them: `Task.further` holds functions of (outputs, batch). To add one:

    def z_loss(outputs, batch):
        log_z = jax.nn.logsumexp(outputs.masked_lm_logits, axis=-1)
        weights = batch["masked_lm_weights"]
        return Sum(1e-4 * (log_z**2 * weights).sum(), weights.sum())

    train(config, workdir, losses={"z_loss": z_loss})
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from bert_jax.files.errors import UserError
from bert_jax.tasks.losses import Sum, Sums, cross_entropy_of_scores, metric, next_tokens
from bert_jax.tasks.task import Batch, Task

T = TypeVar("T", bound=Task)
# (outputs of the task's model, batch) -> a loss whose mean is added to the task's.
LossFunction = Callable[[Any, Batch], Sum]
# Names in metrics.jsonl besides those of losses and metrics.
_RESERVED = (
    *("step", "split", "speed", "loss"),
    *("learning_rate", "gradient_norm", "update_norm", "skipped_share"),
)


def add_losses(task: T, losses: Mapping[str, LossFunction]) -> T:
    """Returns the task with a user's own losses added.

    Args:
      task: any task.
      losses: functions by name, under which metrics.jsonl has their means. The numerator and the
        denominator are sums over the rows that the function gets, which may be a microbatch, and
        the denominator must depend only on the batch.

    Raises:
      UserError: a loss has a name that metrics.jsonl cannot have.
    """
    for name in losses:
        if not name.isidentifier() or name in _RESERVED:
            raise UserError(
                f"losses: {name!r} cannot be the name of a loss: take letters, digits and"
                f" underscores, and none of {', '.join(_RESERVED)}."
            )
    functions = tuple(_Named(name, function) for name, function in losses.items())
    return dataclasses.replace(task, further=(*task.further, *functions))


@dataclasses.dataclass(frozen=True)
class _Named:
    """A user's loss under its name."""

    name: str
    function: LossFunction

    def __call__(self, outputs: Any, batch: Batch) -> Sums:
        try:
            found = self.function(outputs, batch)
        except AttributeError as error:
            if error.obj is not outputs:
                raise
            raise UserError(
                f"losses: {self.name!r} reads outputs.{error.name}, and the outputs of this task"
                f" have {', '.join(vars(outputs))}."
            ) from error
        if not isinstance(found, Sum):
            kind = "an array" if isinstance(found, jax.Array) else type(found).__name__
            raise UserError(
                f"losses: {self.name!r} returned {kind}, and must return"
                " Sum(numerator, denominator)."
            )
        shapes = jnp.shape(found.numerator), jnp.shape(found.denominator)
        if shapes != ((), ()):
            raise UserError(
                f"losses: {self.name!r} returned a numerator and a denominator of the shapes"
                f" {shapes[0]} and {shapes[1]}, which must be (): sum over all rows."
            )
        return {self.name: jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), found)}


# ------------------------------------------------------------------ the losses of config.task


@dataclasses.dataclass(frozen=True)
class Losses:
    """The losses that a head can add, a function (outputs, batch) -> Sums; weight 0: no such loss.

    Attributes:
      lm_weight: weight of the next-token loss.
      mix_l2: weight of the sum of squares of a mix's weights.
    """

    lm_weight: float = 0.0
    mix_l2: float = 0.0

    def add_to(self, task: T) -> T:
        """Returns a task with these losses.

        Args:
          task: the task, which has an LM head if there is a next-token loss.

        Raises:
          UserError: there is a next-token loss, and the model is not causal.
        """
        if self.lm_weight and not task.model.is_causal:
            raise UserError(
                f"task.lm_weight={self.lm_weight} adds the loss of the next token, which this"
                " model sees: set --config.task.lm_weight=0, or fine-tune a causal model."
            )
        return task if self == Losses() else dataclasses.replace(task, further=(self,))

    def __call__(self, outputs: Any, batch: Batch) -> Sums:
        sums = self._next_tokens(outputs, batch) if self.lm_weight else {}
        if self.mix_l2:
            # Counted once for each row except padding, so that the sums of microbatches add up.
            is_token = batch["example_ids"] > 0
            rows = is_token.any(tuple(range(1, is_token.ndim))).sum().astype(jnp.float32)
            square = (outputs.reading.mix_weights**2).sum()
            sums["mix_l2_loss"] = Sum(self.mix_l2 * square * rows, rows)
        return sums

    def _next_tokens(self, outputs: Any, batch: Batch) -> Sums:
        """The mean over the tokens of each sequence, then over sequences.

        As in `train.py` of openai/finetune-transformer-lm, every token but the first is predicted,
        special tokens included. If a row has several sequences, such as choices, each counts.
        """
        names = ("input_ids", "example_ids")
        flat = {name: batch[name].reshape(-1, batch[name].shape[-1]) for name in names}
        labels, weights = next_tokens(flat)  # [sequences, seq]
        tokens = weights.sum(1)
        losses, _ = cross_entropy_of_scores(outputs.reading.scores, labels)
        total = ((losses * weights).sum(1) / jnp.maximum(tokens, 1.0)).sum()
        count = (tokens > 0).sum().astype(jnp.float32)
        return {
            "lm_loss": metric(total, count),
            "weighted_lm_loss": Sum(self.lm_weight * total, count),
        }
