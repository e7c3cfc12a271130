"""How likely a text is to a masked language model: its pseudo-log-likelihood.

    PLL(text) = sum over its tokens t, except [CLS] and [SEP], of ln p(t | all other tokens)

Each token is masked in turn, so that a text of n tokens goes n times through the model (Salazar et
al. 2020, "Masked Language Model Scoring", equation 1). The perplexity of a text is exp(-PLL / n),
that of many exp(-(sum of PLL) / (sum of n)) (equation 2 there).
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

from bert_jax.examples.texts import TextRow
from bert_jax.inference.model import (
    BATCH_TOKENS,
    Progress,
    TrainedModel,
    check_fills_masks,
    in_order,
)


class Scorer:
    """Scores texts with a pre-trained model."""

    def __init__(self, config: ConfigDict, workdir: str, batch_tokens: int = BATCH_TOKENS):
        """Loads vocabulary and parameters.

        Raises:
          ValueError: if there is no checkpoint, or no masked-LM head in it.
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
            yield self._describe(ids, list(itertools.islice(values, len(ids))))

    def _masked_in_turn(self, row: TextRow) -> Iterator[TextRow]:
        for position in row.word_positions.tolist():
            ids = row.input_ids.copy()
            ids[position] = self.model.tokenizer.mask_id
            answer = int(row.input_ids[position])
            yield replace(row, input_ids=ids, masked=(position,), masked_ids=(answer,))

    def _describe(self, ids: list[int], values: list[float]) -> dict[str, Any]:
        tokenizer = self.model.tokenizer
        mean = math.fsum(values) / len(values) if values else None
        return {
            "pseudo_log_likelihood": math.fsum(values),
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
