"""What rivals in the race of recipes take from a run of ours: rows, held-out masks, the score.

The reference is a workdir. Its rows are trained on, in their order, its sizes are those of the
model, and its masks are the held-out ones. The rival draws the masks to train on.
"""

import dataclasses
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from bert_jax.config import store
from bert_jax.data.batch import Batch
from bert_jax.files.atomic import write_text
from bert_jax.text.tokenization import count_characters
from bert_jax.training.evaluate import evaluated_batches, evaluation_batch_size
from bert_jax.training.open import open_run
from bert_jax.training.run import Run

# Masked batch -> float32[tokens, vocabulary], the logits of its masked tokens, row by row.
Predict = Callable[[Batch], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Order:
    """The run that a rival is asked for, whose evaluations are written to metrics.jsonl.

    Attributes:
      reference: workdir with one phase, one example a row, and held-out text.
      workdir: folder of the run.
      model: name of the rival's model.
      steps: number of steps.
      every: number of steps from one evaluation to the next.
      seed: seed of weights, dropout and masks.
      eval_batches: batches of each evaluation; 0: all, None: those of the reference.
      arguments: the fields of the recipe, as `recipe` describes them.
    """

    reference: str
    workdir: str
    model: str
    steps: int
    every: int
    seed: int
    eval_batches: int | None
    arguments: Mapping[str, Any]

    def open(self) -> Run:
        """Opens the reference with the seed of the rival."""
        config = store.load(self.reference).replace({"seed": self.seed})
        if self.eval_batches is not None:
            config = config.replace({"eval.max_batches": self.eval_batches})
        return open_run(config, self.reference)


def training_rows(run: Run) -> Iterator[dict[str, np.ndarray]]:
    """Yields batches of rows in their order, without masks and without end.

    Each has int32[B, S] `input_ids` and bool[B, S] `is_token` (not padding) and `is_special`.
    """
    rows, size, tokenizer = run.training[0], run.phases[0].batch_size, run.tokenizer
    special = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]
    for number in itertools.count():
        batch = rows.batch(number, 0, size)
        ids = np.asarray(batch["input_ids"])
        is_token = np.asarray(batch["example_ids"]) > 0
        yield {"input_ids": ids, "is_token": is_token, "is_special": np.isin(ids, special)}


def mask(
    rng: np.random.Generator,
    batch: dict[str, np.ndarray],
    probability: float,
    mask_id: int,
    vocab_size: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Masks tokens as BERT does, in P = `probability` * S slots a row.

    Args:
      rng: the source of chance.
      batch: one of `training_rows`.
      probability: share of a row's tokens, special ones included, that are masked; of these, 80 %
        become [MASK], 10 % a random token. Special ones never do.
      mask_id: id of [MASK].
      vocab_size: number of tokens.

    Returns:
      int[B, S] ids, int[B, P] positions, int[B, P] the true tokens there, and float32[B, P]
      weights, 0 for slots that are not needed.
    """
    ids, is_special = batch["input_ids"], batch["is_special"]
    slots = max(1, round(probability * ids.shape[1]))
    # In random order, special tokens last.
    positions = np.argsort(rng.random(ids.shape) + is_special, axis=1)[:, :slots]
    wanted = np.maximum(1, np.round(probability * batch["is_token"].sum(axis=1)))
    is_used = np.arange(slots) < wanted[:, None]
    is_used &= ~np.take_along_axis(is_special, positions, axis=1)
    true = np.take_along_axis(ids, positions, axis=1)
    draw, random = rng.random(true.shape), rng.integers(0, vocab_size, true.shape)
    new = np.where(draw < 0.8, mask_id, np.where(draw < 0.9, random, true))
    masked = ids.copy()
    np.put_along_axis(masked, positions, np.where(is_used, new, true), axis=1)
    return masked, positions, true, is_used.astype(np.float32)


def held_out_batches(run: Run) -> list[Batch]:
    """Returns masked batches of the held-out split, as this program evaluates them."""
    phase = run.phases[0]
    task, key = run.task_at(phase, evaluate=True), run.key("eval_masking")
    transform = jax.jit(
        lambda number, batch: task.transform(jax.random.fold_in(key, number), batch)
    )
    rows = run.evaluation_rows(phase)[0]
    size = evaluation_batch_size(run.config, phase)
    batches = evaluated_batches(run.config, rows, size)
    return [jax.device_get(transform(number, batch.read(0, size))) for number, batch in batches]


class Evaluations:
    """Evaluates at regular steps; the training clock is stopped meanwhile."""

    def __init__(self, order: Order, run: Run, step_tokens: int):
        self._path = os.path.join(order.workdir, "metrics.jsonl")
        self._every, self._steps, self._step_tokens = order.every, order.steps, step_tokens
        self._batches = held_out_batches(run)
        self._characters = np.array(count_characters(run.tokenizer.pieces))
        self._lines: list[str] = []
        self._seconds, self._since = 0.0, 0.0

    def begin(self) -> None:
        self._since = time.perf_counter()

    def is_due(self, step: int) -> bool:
        """Returns whether step number `step`, which counts from one, is evaluated."""
        return step % self._every == 0 or step == self._steps

    def evaluate(self, step: int, predict: Predict) -> None:
        """Adds a line to metrics.jsonl. The work of this step must be done."""
        self._seconds += time.perf_counter() - self._since
        values = score(predict, self._batches, self._characters)
        speed = {"seconds": self._seconds, "tokens": step * self._step_tokens}
        line = {"step": step, "split": "validation", **values, "speed": speed}
        self._lines.append(json.dumps(line) + "\n")
        write_text(self._path, "".join(self._lines))
        self.begin()


def score(predict: Predict, batches: list[Batch], characters: np.ndarray) -> dict[str, float]:
    """Returns mean loss in nats, accuracy and bits per character of the masked tokens.

    Args:
      predict: the model.
      batches: result of `held_out_batches`.
      characters: int[vocabulary], the number of characters of each token.
    """
    loss = hits = count = length = 0.0
    for batch in batches:
        ids = np.asarray(batch["masked_lm_ids"])[np.nonzero(batch["masked_lm_weights"])]
        logits = predict(batch)
        largest = logits.max(axis=-1)
        log_sum = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=-1))
        loss += float((log_sum - logits[np.arange(len(ids)), ids]).sum(dtype=np.float64))
        hits += float((logits.argmax(axis=-1) == ids).sum())
        count += len(ids)
        length += float(characters[ids].sum())
    return {
        "masked_lm_loss": loss / count,
        "masked_lm_accuracy": hits / count,
        "masked_lm_bits_per_character": loss / np.log(2) / length,
    }
