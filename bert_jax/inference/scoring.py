"""How likely a text is to a language model: its log-likelihood, or pseudo-log-likelihood.

A masked language model gives each token a probability given all others:

    PLL(text) = sum over its tokens t, except [CLS] and [SEP], of ln p(t | all other tokens)

Each token is masked in turn, so that a text of n tokens goes n times through the model (Salazar et
al. 2020, "Masked Language Model Scoring", equation 1). The perplexity of a text is exp(-PLL / n),
that of many exp(-(sum of PLL) / (sum of n)) (equation 2 there).

A model that predicts next tokens gives the log-likelihood itself, in one pass:

    LL(text) = sum over its tokens t, except [CLS] and [SEP], of ln p(t | the tokens before it)

Where nothing begins a text (a GPT whose `_start_` was never trained), its first token has no
probability and is left out.
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

from bert_jax.data.labelled.texts import Text, TextRow, encode_text
from bert_jax.files.errors import UserError
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.progress import Progress
from bert_jax.tasks.causal_lm import predicted_positions
from bert_jax.text.tokenization import Tokenizer
from bert_jax.training.step import predict_step


def make_scorer(predictor: Predictor) -> "Scorer | CausalScorer":
    """Returns the scorer for a model that fills masks or predicts next tokens.

    Raises:
      UserError: the model has no trained head that predicts words.
    """
    return (CausalScorer if predictor.model.task.reads_forward else Scorer)(predictor)


def check_fills_masks(model: TrainedModel) -> None:
    """Raises UserError if a model has no trained masked-LM head."""
    if not model.task.fills_masks:
        raise UserError(
            f"{model.folder} is for config.task={model.config.task!r}: it has no masked-LM head."
        )
    model.data.check_trained(model.untrained, model.folder)


class Scorer:
    """Scores texts with a masked language model.

    Attributes:
      name: name of the score in the dicts that `score` yields.
      short_name: its name in tables.
    """

    name, short_name = "pseudo_log_likelihood", "PLL"

    def __init__(self, predictor: Predictor):
        """Compiles on first use.

        Raises:
          UserError: the model has no trained masked-LM head.
        """
        check_fills_masks(predictor.model)
        self._predictor, self._model = predictor, predictor.model
        task = self._model.data.make_task(self._model.encoder, self._model.tokenizer)
        num_pieces = len(self._model.tokenizer.pieces)
        self._forward = self._model.compile(
            functools.partial(_forward, task.make_model(), num_pieces)
        )

    def row(self, text: Text) -> TextRow:
        """Tokenizes a text or a pair; raises UserError if the model has too few positions."""
        return encode_text(text, self._model.tokenizer, self._model.encoder.max_position_embeddings)

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
        masked = itertools.chain.from_iterable(map(self._masked_in_turn, rows))
        results = self._predictor.stream(self._forward, masked, progress)
        values = (float(found["mask_log_probabilities"][0]) for _, found in results)
        for row in again:
            ids = row.input_ids[row.word_positions].tolist()
            scores = list(itertools.islice(values, len(ids)))
            yield _describe(self._model.tokenizer, self.name, ids, scores)

    def count_passes(self, row: TextRow) -> int:
        """Returns how often a text goes through the model."""
        return len(row.word_positions)

    def _masked_in_turn(self, row: TextRow) -> Iterator[TextRow]:
        for position in row.word_positions.tolist():
            ids = row.input_ids.copy()
            ids[position] = self._model.tokenizer.mask_id
            answer = int(row.input_ids[position])
            yield replace(row, input_ids=ids, masked=(position,), masked_ids=(answer,))


class CausalScorer:
    """Scores texts with a model that predicts next tokens; the attributes are those of Scorer."""

    name, short_name = "log_likelihood", "LL"

    def __init__(self, predictor: Predictor):
        """Compiles on first use.

        Raises:
          UserError: the model has no trained head.
        """
        self._predictor, self._model = predictor, predictor.model
        self._data: Any = self._model.data
        self._data.check_trained(self._model.untrained, self._model.folder)
        task = self._data.make_task(self._model.encoder, self._model.tokenizer)
        self._forward = self._model.compile(
            lambda params, batch: predict_step(params, batch, task=task)
        )

    def row(self, text: Text) -> TextRow:
        """Tokenizes a text or a pair; raises UserError if the model has too few positions."""
        model = self._model
        row = encode_text(text, model.tokenizer, model.encoder.max_position_embeddings)
        return self._data.begin(row, model.tokenizer)

    def score(
        self, rows: Iterable[TextRow], progress: Progress | None = None
    ) -> Iterator[dict[str, Any]]:
        """Scores rows in their order; they are read as they are needed.

        Yields:
          As `Scorer.score`, with `log_likelihood` in place of `pseudo_log_likelihood`.
        """
        for row, found in self._predictor.stream(self._forward, rows, progress):
            # Position i has the probability of token i + 1.
            places = predicted_positions(row)
            scores = found["log_probabilities"][places - 1].tolist()
            ids = row.input_ids[places].tolist()
            yield _describe(self._model.tokenizer, self.name, ids, scores)

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
    return {"mask_log_probabilities": jnp.take_along_axis(log_probs, answers, axis=2)[:, :, 0]}
