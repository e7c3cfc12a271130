"""How likely a text is to a language model: its log-likelihood, or pseudo-log-likelihood.

A masked language model gives each token a probability given all others:

    PLL(text) = sum over its tokens t, except [CLS] and [SEP], of ln p(t | all other tokens)

Each token is masked in turn, so a text of n tokens takes n passes through the model (Salazar et
al. 2020, "Masked Language Model Scoring", equation 1). The perplexity of a text is exp(-PLL / n),
that of several is exp(-(sum of PLL) / (sum of n)) (equation 2 there).

A model that predicts next tokens gives the log-likelihood itself, in one pass:

    LL(text) = sum over its tokens t, except [CLS] and [SEP], of ln p(t | the tokens before it)

For ELMo, which has a language model for each direction, ln p is the mean of the two.

The PLL of a word that the tokenizer splits is too high, since its other pieces give it away. The
variant "within_words" also masks the pieces of the word that follow the token (Kauf & Ivanova 2023,
"A Better Way to Do Masked Language Model Scoring", PLL-word-l2r).

If texts have no beginning marker (a GPT whose `_start_` was never trained), the first token has no
probability and is left out.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

from bert_jax.config.run import PretrainingConfig
from bert_jax.data.labelled.texts import Text, TextRow, encode_text, masked_copies
from bert_jax.files.errors import UserError
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.predictor import Predictor
from bert_jax.tasks.causal_lm.task import CausalLM, predicted_positions
from bert_jax.tasks.pretraining.task import mask_log_probabilities

# Ids of the tokens of a text, and their log-probabilities.
Scored = tuple[list[int], list[float]]


def check_fills_masks(model: TrainedModel) -> None:
    """Raises UserError if a model has no trained masked-LM head."""
    if not model.task.FILLS_MASKS:
        raise UserError(
            f"{model.folder} is for the task {model.config.task.name!r}: it has no masked-LM head."
        )
    model.task.check_trained(model.untrained, model.folder)


class Scorer:
    """Scores texts with a model that fills masks or predicts next tokens.

    Attributes:
      name: name of the score in the dicts that `score` yields.
      short_name: its name in tables.
    """

    def __init__(self, predictor: Predictor, method: str = ""):
        """Compiles on first use.

        Args:
          predictor: runs the model.
          method: one of `language_model.METHODS`.

        Raises:
          UserError: the model has no trained head that predicts tokens as the method needs.
        """
        self._within_words = method == "within_words"
        self._predictor, self._model = predictor, predictor.model
        model = self._model
        self._task: Any = model.task
        if method == "next_tokens":
            self._task = _forward_task(model)
        task = self._task.bind(self._task.model or model.encoder, model.tokenizer)
        if task.HAS_LIKELIHOOD:
            task.check_trained(model.untrained, model.folder)
            if self._within_words:
                raise UserError(f"{model.folder} predicts next tokens: there is nothing to mask.")
            self.name, self.short_name = "log_likelihood", "LL"
            forward = functools.partial(_values, task)
        else:
            check_fills_masks(model)
            self.name, self.short_name = "pseudo_log_likelihood", "PLL"
            forward = functools.partial(
                _mask_values, task.make_model(), len(model.tokenizer.pieces)
            )
        self._forward = model.compile(forward, task.model)

    def row(self, text: Text) -> TextRow:
        """Tokenizes a text or a pair; raises UserError if the model has too few positions."""
        model = self._model
        row = encode_text(text, model.tokenizer, model.encoder.max_position_embeddings)
        return self._task.begin(row, model.tokenizer) if self._task.HAS_LIKELIHOOD else row

    def count_scored(self, row: TextRow) -> int:
        """Returns the number of tokens of a text that have a probability."""
        places = predicted_positions(row) if self._task.HAS_LIKELIHOOD else row.word_positions
        return len(places)

    def count_passes(self, row: TextRow) -> int:
        """Returns the number of passes through the model that a text takes."""
        return 1 if self._task.HAS_LIKELIHOOD else len(row.word_positions)

    def score(
        self, rows: Iterable[TextRow], done: Callable[[int], None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Scores rows in their order; they are read as they are needed.

        Args:
          rows: results of `row`.
          done: called with the number of passes that are done since the last call.

        Yields:
          `pseudo_log_likelihood` or `log_likelihood` in nats, `tokens`, `unknown_tokens` among them
          (whose probabilities are those of "[UNK]", not of the word), `per_token` (the mean),
          `perplexity`, and `log_probabilities` of each token. `per_token` and `perplexity` of a
          text without tokens are None.
        """
        tokenizer = self._model.tokenizer
        for ids, values in self._score(rows, done):
            mean = math.fsum(values) / len(values) if values else None
            yield {
                self.name: math.fsum(values),
                "tokens": len(ids),
                "unknown_tokens": tokenizer.count_unknown(ids),
                "per_token": mean,
                "perplexity": None if mean is None else math.exp(-mean),
                "log_probabilities": [
                    {"token": tokenizer.pieces[i], "log_probability": value}
                    for i, value in zip(ids, values, strict=True)
                ],
            }

    def totals(
        self, rows: Iterable[TextRow], done: Callable[[int], None] | None = None
    ) -> Iterator[float]:
        """Yields the score of each row, the first value of `score`, in their order."""
        return (math.fsum(values) for _, values in self._score(rows, done))

    def _score(self, rows: Iterable[TextRow], done: Any) -> Iterator[Scored]:
        if self._task.HAS_LIKELIHOOD:
            return self._next_tokens(rows, done)
        return self._masks_in_turn(rows, done)

    def _next_tokens(self, rows: Iterable[TextRow], done: Any) -> Iterator[Scored]:
        for row, found in self._predictor.stream(self._forward, rows, done):
            # Position i has the probability of token i + 1.
            places = predicted_positions(row)
            yield row.input_ids[places].tolist(), found["log_probabilities"][places - 1].tolist()

    def _masks_in_turn(self, rows: Iterable[TextRow], done: Any) -> Iterator[Scored]:
        rows, again = itertools.tee(rows)
        tokenizer = self._model.tokenizer
        copies = (c for row in rows for c in masked_copies(row, tokenizer, self._within_words))
        results = self._predictor.stream(self._forward, copies, done)
        values = (float(found["mask_log_probabilities"][0]) for _, found in results)
        for row in again:
            ids = row.input_ids[row.word_positions].tolist()
            yield ids, list(itertools.islice(values, len(ids)))


def _forward_task(model: TrainedModel) -> Any:
    """Returns the task with which a model predicts next tokens.

    Raises:
      UserError: the model was not trained to do so.
    """
    if model.task.HAS_LIKELIHOOD:
        return model.task
    check_fills_masks(model)
    config = model.config
    assert isinstance(config, PretrainingConfig)  # its task fills masks
    if not (config.causal_share or any(phase.task for phase in config.make_phases(0))):
        raise UserError(
            f"{model.folder} was trained on masked tokens only, or does not say otherwise"
            " (config.causal_share=0): leave method='next_tokens' out."
        )
    return dataclasses.replace(CausalLM.as_phase(model.encoder), data=config.data)


def _values(task: Any, params: Any, batch: Any) -> dict[str, jax.Array]:
    return {"log_probabilities": task.log_probabilities(params, batch)}


def _mask_values(*args: Any) -> dict[str, jax.Array]:
    return {"mask_log_probabilities": mask_log_probabilities(*args)}
