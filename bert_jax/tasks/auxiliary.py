"""Further losses of a task on labelled examples, which its model gives as by-products.

    lm_loss        of the next token, for causal models (Radford et al. 2018, section 3.2)
    mix_l2_loss    of the weights of a scalar mix (Peters et al. 2018, section 3.2)

A task does not know of them: `WithLosses` adds them to the task of any labelled examples.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.files.errors import UserError
from bert_jax.models.heads import WordScores, word_flops, word_scores
from bert_jax.models.model import EncoderConfig
from bert_jax.tasks.losses import Sum, Sums, cross_entropy_of_scores, metric, next_tokens
from bert_jax.tasks.task import Batch, Task, TaskSettings


@dataclasses.dataclass(frozen=True)
class Losses:
    """Weights of further losses; 0: there is no such loss.

    Attributes:
      lm_weight: of the loss of the next token.
      mix_l2: of the sum of the squares of a mix's weights.
    """

    lm_weight: float = 0.0
    mix_l2: float = 0.0

    @classmethod
    def make(cls, settings: TaskSettings) -> "Losses":
        """Returns the losses of a configuration.

        Raises:
          UserError: for a loss of the next token that has no effect.
        """
        lm_weight = settings.head.get("lm_weight", 0.0)
        if lm_weight and settings.frozen_encoder:
            raise UserError(
                f"head.lm_weight={lm_weight} trains the encoder, which optimizer.frozen_layers=-1"
                " freezes: set one of the two to 0."
            )
        return cls(lm_weight, settings.head.get("mix_l2", 0.0))

    def add_to(self, task: Task) -> Task:
        """Returns a task with these losses.

        Raises:
          UserError: there is a loss of the next token, and the model is not causal.
        """
        if self.lm_weight and not task.model.is_causal:
            raise UserError(
                f"head.lm_weight={self.lm_weight} adds the loss of the next token, which this model"
                " sees: set --config.head.lm_weight=0, or fine-tune a causal model."
            )
        return WithLosses(task.model, task, self) if self != Losses() else task

    def describe(self) -> tuple[str, ...]:
        """Returns lines for the banner."""
        parts = ["the loss of the task"]
        if self.lm_weight:
            parts.append(f"{self.lm_weight:g} x the loss of the next token")
        if self.mix_l2:
            parts.append(f"{self.mix_l2:g} x the squares of the mix's weights")
        return (f"loss       {' + '.join(parts)}",) if len(parts) > 1 else ()


@flax.struct.dataclass
class OutputsWithReading:
    """The outputs of a task's model, and what further losses are computed from.

    Attributes:
      outputs: of the task's model.
      scores: of the word after each position of each sequence; None without that loss.
      mix_weights: float32[states]; None without a mix.
    """

    outputs: Any
    scores: WordScores | None
    mix_weights: jax.Array | None


class ModelWithReading(nn.Module):
    """A task's model with the head of a language model, under the names of both.

    Attributes:
      model: configuration of the encoder.
      body: a model of models/task_heads.py.
      has_scores: whether there is the head of a language model.
    """

    model: EncoderConfig
    body: nn.Module
    has_scores: bool

    def setup(self):
        nn.share_scope(self, self.body)

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool) -> OutputsWithReading:
        """What `body` takes -> its outputs and more."""
        body: Any = self.body
        outputs, reading = body(batch, deterministic=deterministic, keep_reading=True)
        scores = None
        if self.has_scores:
            scores = word_scores(self.model, reading.hidden, reading.table)
        return OutputsWithReading(outputs, scores, reading.mix_weights)


@dataclasses.dataclass(frozen=True)
class WithLosses(Task):
    """A `Task` with the batches, outputs and answers of another one, and further losses.

    The loss of the next token is the mean over the tokens of each sequence, then over sequences, as
    in `train.py` of openai/finetune-transformer-lm: every token but the first is predicted, special
    tokens included.

    Attributes:
      model: the encoder's configuration.
      task: the other one.
      weights: of the further losses.
    """

    task: Task
    weights: Losses

    def make_model(self) -> ModelWithReading:
        return ModelWithReading(self.model, self.task.make_model(), self.weights.lm_weight > 0)

    def example_batch(self) -> dict[str, jax.Array]:
        return self.task.example_batch()

    def transform(
        self, key: jax.Array, batch: Batch, progress: jax.Array | float = 0.0
    ) -> dict[str, jax.Array]:
        return self.task.transform(key, batch, progress)

    def losses(self, outputs: OutputsWithReading, batch: Batch) -> Sums:
        sums = self.task.losses(outputs.outputs, batch)
        if outputs.scores is not None:
            labels, weights, tokens = _next_tokens(batch)
            losses, _ = cross_entropy_of_scores(outputs.scores, labels)
            total = ((losses * weights).sum(1) / jnp.maximum(tokens, 1.0)).sum()
            count = (tokens > 0).sum().astype(jnp.float32)
            sums["lm_loss"] = metric(total, count)
            sums["weighted_lm_loss"] = Sum(self.weights.lm_weight * total, count)
        if self.weights.mix_l2:
            assert outputs.mix_weights is not None
            # Counted once for each row, so that the sums of microbatches add up.
            rows = jnp.float32(len(batch["example_ids"]))
            square = (outputs.mix_weights**2).sum()
            sums["mix_l2_loss"] = Sum(self.weights.mix_l2 * square * rows, rows)
        return sums

    def answers(self, outputs: OutputsWithReading, batch: Batch) -> dict[str, jax.Array]:
        return self.task.answers(outputs.outputs, batch)

    def head_flops_per_token(self) -> float:
        more = word_flops(self.model) if self.weights.lm_weight else 0.0
        return self.task.head_flops_per_token() + more


def _next_tokens(batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """int32[sequences, seq] ids, float32[sequences, seq] weights, float32[sequences] sums of these.

    A row that has several sequences, such as choices, counts each.
    """
    names = ("input_ids", "example_ids")
    flat = {name: batch[name].reshape(-1, batch[name].shape[-1]) for name in names}
    labels, weights = next_tokens(flat)
    return labels, weights, weights.sum(1)
