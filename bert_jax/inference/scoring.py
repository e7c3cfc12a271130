"""How likely a text is to a language model: its log-likelihood, or pseudo-log-likelihood.

A masked language model gives each token a probability given all others:

    PLL(text) = sum over its tokens t, except [CLS] and [SEP], of ln p(t | all other tokens)

Each token is masked in turn, so that a text of n tokens goes n times through the model (Salazar et
al. 2020, "Masked Language Model Scoring", equation 1). The perplexity of a text is exp(-PLL / n),
that of many exp(-(sum of PLL) / (sum of n)) (equation 2 there).

A model that predicts next tokens gives the log-likelihood itself, in one pass:

    LL(text) = sum over its tokens t, except [CLS] and [SEP], of ln p(t | the tokens before it)
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from bert_jax.data.labelled.texts import TextRow
from bert_jax.inference.model import (
    BATCH_TOKENS,
    Progress,
    TrainedModel,
    check_fills_masks,
    in_order,
)
from bert_jax.tasks import find_task
from bert_jax.text.tokenization import Tokenizer
from bert_jax.training.run import make_task_data
from bert_jax.training.step import predict_step
from bert_jax.training.workdir import untrained_params


def make_scorer(
    config: ConfigDict, workdir: str, batch_tokens: int = BATCH_TOKENS
) -> "Scorer | CausalScorer":
    """Returns what scores texts with the model of a workdir.

    Raises:
      UserError: if there is no checkpoint, or no head in it that predicts words.
    """
    reads_forward = find_task(config.task).reads_forward
    return (CausalScorer if reads_forward else Scorer)(config, workdir, batch_tokens)


class Scorer:
    """Scores texts with a masked language model.

    Attributes:
      model: with its parameters.
      name: of the score, in what `score` yields.
      short_name: of the score, in tables.
    """

    name, short_name = "pseudo_log_likelihood", "PLL"

    def __init__(self, config: ConfigDict, workdir: str, batch_tokens: int = BATCH_TOKENS):
        """Loads vocabulary and parameters.

        Raises:
          UserError: if there is no checkpoint, or no masked-LM head in it.
        """
        check_fills_masks(config, workdir)
        self.model = TrainedModel(config, workdir, batch_tokens)
        network = self.model.task.make_model()
        num_pieces = len(self.model.tokenizer.pieces)
        self._forward = self.model.compile(functools.partial(_forward, network, num_pieces))

    def score(
        self, rows: Iterable[TextRow], progress: Progress | None = None
    ) -> Iterator[dict[str, Any]]:
        """Scores rows in their order; they are read as they are needed.

        Yields:
          `pseudo_log_likelihood` in nats, `tokens`, `unknown_tokens` among them (whose
          probabilities are those of "[UNK]", not of the word), `per_token` (the mean),
          `perplexity`, and `log_probabilities` of each token. `per_token` and `perplexity` of a
          text without a token are null.
        """
        rows, again = itertools.tee(rows)
        questions = itertools.chain.from_iterable(map(self._masked_in_turn, rows))
        results = self.model.run(self._forward, questions, progress)
        values = in_order((n, float(out["log_probabilities"][0])) for n, _, out in results)
        for row in again:
            ids = row.input_ids[row.word_positions].tolist()
            scores = list(itertools.islice(values, len(ids)))
            yield _describe(self.model.tokenizer, self.name, ids, scores)

    def count_passes(self, row: TextRow) -> int:
        """Returns how often a text goes through the model."""
        return len(row.word_positions)

    def _masked_in_turn(self, row: TextRow) -> Iterator[TextRow]:
        for position in row.word_positions.tolist():
            ids = row.input_ids.copy()
            ids[position] = self.model.tokenizer.mask_id
            answer = int(row.input_ids[position])
            yield replace(row, input_ids=ids, masked=(position,), masked_ids=(answer,))


class CausalScorer:
    """Scores texts with a model that predicts next tokens; the attributes are those of Scorer."""

    name, short_name = "log_likelihood", "LL"

    def __init__(self, config: ConfigDict, workdir: str, batch_tokens: int = BATCH_TOKENS):
        """Loads vocabulary and parameters.

        Raises:
          UserError: if there is no checkpoint, or no trained head in it.
        """
        self._data: Any = make_task_data(config)
        self._data.check_trained(untrained_params(workdir), workdir)
        self.model = TrainedModel(config, workdir, batch_tokens)
        task = self._data.make_task(self.model.config, self.model.tokenizer)
        self._forward = self.model.compile(functools.partial(predict_step, task=task))

    def score(
        self, rows: Iterable[TextRow], progress: Progress | None = None
    ) -> Iterator[dict[str, Any]]:
        """Scores rows in their order; they are read as they are needed.

        Yields:
          As `Scorer.score`, with `log_likelihood` in place of `pseudo_log_likelihood`.
        """
        begun = (self._data.begin(row, self.model.tokenizer) for row in rows)
        results = self.model.run(self._forward, begun, progress)
        for row, values in in_order((n, (row, out)) for n, row, out in results):
            # Position i has the probability of token i + 1.
            places = row.word_positions
            scores = values["log_probabilities"][places - 1].tolist()
            ids = row.input_ids[places].tolist()
            yield _describe(self.model.tokenizer, self.name, ids, scores)

    def count_passes(self, row: TextRow) -> int:
        """Returns how often a text goes through the model."""
        del row
        return 1


def _describe(
    tokenizer: Tokenizer, name: str, ids: list[int], values: list[float]
) -> dict[str, Any]:
    mean = math.fsum(values) / len(values) if values else None
    return {
        name: math.fsum(values),
        "tokens": len(ids),
        "unknown_tokens": ids.count(tokenizer.unk_id),
        "per_token": mean,
        "perplexity": None if mean is None else math.exp(-mean),
        "log_probabilities": [
            {"token": tokenizer.pieces[i], "log_probability": value}
            for i, value in zip(ids, values, strict=True)
        ],
    }


def _forward(network: nn.Module, num_pieces: int, params: Any, batch: Any) -> dict[str, jax.Array]:
    """float32[batch, masks] log-probabilities of the original pieces."""
    outputs: Any = network.apply({"params": params}, batch, deterministic=True)
    # The table of the model may have more rows than the vocabulary has pieces.
    log_probs = jax.nn.log_softmax(outputs.masked_lm_logits[..., :num_pieces])
    answers = batch["masked_lm_ids"][:, :, None]
    return {"log_probabilities": jnp.take_along_axis(log_probs, answers, axis=2)[:, :, 0]}
