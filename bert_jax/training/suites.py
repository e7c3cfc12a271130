"""Minimal pairs during training: how often the model prefers the acceptable sentence.

Scores a fixed sample of each suite of `config.eval.suites` like `bert_jax evaluate --suite`, which
scores all pairs and also gives standard errors.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.config.phases import Phase
from bert_jax.config.run import RunConfig
from bert_jax.data.batch import take_rows
from bert_jax.data.labelled.texts import EncodedTexts, Text, TextRow, encode_text, masked_copies
from bert_jax.data.minimal_pairs import check_scored, read_pairs, suite_metric
from bert_jax.devices import sharding
from bert_jax.files.errors import UserError
from bert_jax.models import make_add_fields
from bert_jax.scores.minimal_pairs import score_pairs
from bert_jax.tasks.causal_lm.task import predicted_positions
from bert_jax.tasks.pretraining.task import mask_log_probabilities
from bert_jax.text.tokenization import Tokenizer
from bert_jax.training.run import Run

# Row lengths are multiples of `_STEP`; a batch has about `_BATCH_TOKENS` positions.
_STEP, _BATCH_TOKENS = 8, 4096


def check_suites(config: RunConfig) -> None:
    """Raises UserError if a suite of a run does not exist, has another form, or the name of another
    metric; or if nothing is held out, so that there are no evaluations."""
    sources = ("data.validation_share", "data.held_out", "data.general")
    if config.eval.suites and config.has_corpus and not any(map(config.get, sources)):
        raise UserError(
            "config.eval.suites: nothing is held out, so there are no evaluations: set"
            " data.validation_share above 0 (0.001 is enough), or data.held_out."
        )
    taken = {*config.known_metrics}
    for suite in config.eval.suites:
        if (name := suite_metric(suite)) in taken:
            raise UserError(
                f"eval.suites: the scores of {suite} would be called {name}, as those of another"
                " metric or suite: rename the file."
            )
        taken.add(name)
        read_pairs(suite, 1)


def make_suite_evaluator(run: Run, phase: Phase) -> Callable[[Any], dict[str, float]]:
    """Returns a function of the parameters: `NAME_accuracy` of each suite, in 0 to 1.

    Raises:
      UserError: there is no such suite, or the task predicts no tokens.
    """
    task: Any = run.task_at(phase, evaluate=True)
    settings = run.config.eval
    if settings.suites and not (task.FILLS_MASKS or task.HAS_LIKELIHOOD):
        raise UserError(
            f"config.eval.suites: the task {run.config.task.name} predicts neither masked nor next"
            " tokens."
        )
    bound = task.bind(run.model, run.tokenizer)
    suites = {
        suite_metric(suite): _open_suite(
            run.mesh, run.tokenizer, bound, suite, settings.pairs_per_paradigm
        )
        for suite in settings.suites
    }
    return lambda params: {name: _accuracy(suite, params) for name, suite in suites.items()}


class _Suite:
    """The sentences of a suite in batches, and the function that scores them.

    Args:
      mesh: all devices.
      tokenizer: the run's.
      task: bound to the encoder and the tokenizer.
      suite, per_paradigm: see `read_pairs`.
    """

    def __init__(self, mesh: Mesh, tokenizer: Tokenizer, task: Any, suite: str, per_paradigm: int):
        self.mesh, self.model = mesh, task.model
        self.pairs = read_pairs(suite, per_paradigm)
        # A row of the batches, its sentence, and the positions of its log-probabilities.
        self.rows: list[tuple[TextRow, int, np.ndarray]] = []
        for number, sentence in enumerate(s for p in self.pairs for s in (p.good, p.bad)):
            text = Text(sentence, where=f"A sentence of {suite}")
            row = encode_text(text, tokenizer, self.model.max_position_embeddings)
            if task.HAS_LIKELIHOOD:
                row = task.begin(row, tokenizer)
                places = predicted_positions(row) - 1
                self.rows.append((row, number, places))
            else:
                places = row.word_positions
                copies = masked_copies(row, tokenizer)
                self.rows += ((copy, number, np.zeros(1, int)) for copy in copies)
            check_scored(suite, sentence, len(places))
        self.encoded = EncodedTexts([row for row, _, _ in self.rows], tokenizer)
        self.add_fields = make_add_fields(self.model, tokenizer)
        if task.HAS_LIKELIHOOD:
            forward = task.log_probabilities
        else:
            pieces = len(tokenizer.pieces)
            forward = functools.partial(mask_log_probabilities, task.make_model(), pieces)
        where = sharding.replicated(mesh)
        self.forward = jax.jit(sharding.on_mesh(mesh, forward), out_shardings=where)

    def batches(self) -> Iterator[tuple[list[int], dict[str, jax.Array]]]:
        """Yields numbers of rows, and the batch that begins with them."""
        by_length: dict[int, list[int]] = defaultdict(list)
        for number, length in enumerate(self.encoded.lengths.tolist()):
            by_length[-(-length // _STEP) * _STEP].append(number)
        for length, numbers in by_length.items():
            length = min(length, self.model.max_position_embeddings)
            size = sharding.padded_rows(self.mesh, max(1, _BATCH_TOKENS // length))
            start, stop = sharding.local_rows(self.mesh, size)
            for first in range(0, len(numbers), size):
                part = numbers[first : first + size]
                rows = take_rows(np.array(part), start, stop)[:, None]
                local = self.add_fields(self.encoded.take(rows, length))
                yield part, sharding.shard_batch(self.mesh, local, size, start)


# The phases of a run share its suites.
_open_suite = functools.lru_cache(maxsize=4)(_Suite)


def _accuracy(suite: _Suite, params: Any) -> float:
    totals = np.zeros(2 * len(suite.pairs))
    for numbers, batch in suite.batches():
        values = np.asarray(jax.device_get(suite.forward(params, batch)), np.float64)
        for place, number in enumerate(numbers):
            _, sentence, positions = suite.rows[number]
            totals[sentence] += values[place, positions].sum()
    groups = ([getattr(pair, name) for pair in suite.pairs] for name in ("paradigm", "field"))
    return score_pairs(totals[::2], totals[1::2], *groups).mean.value
