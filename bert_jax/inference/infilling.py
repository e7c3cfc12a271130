"""Masks that are filled in over several rounds, the most probable tokens first: mask-predict.

The first round predicts all masks of a text at once, each without knowing the others. A later round
masks the tokens of the lowest probability again, and predicts them given the rest; round t of T
(from 0) has floor(n (T - t) / T) of the n masks (Ghazvininejad et al. 2019, arXiv 1904.09324,
section 3). A token keeps the probability of the round that predicted it. Special tokens are never
filled in.

With a temperature above 0, tokens are drawn from the most probable ones. The random numbers of a
round are a function of the seed, the number of the text and the round, so that a text is filled in
alike whatever is computed beside it.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.labelled.texts import Text, TextRow, encode_text
from bert_jax.files.errors import UserError
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.scoring import Scorer, check_fills_masks

# Texts that are filled in together.
_WINDOW = 1024


@dataclasses.dataclass(frozen=True)
class Rounds:
    """How masks are filled in.

    Attributes:
      rounds: passes through the model; those that would mask no token are left out.
      temperature: 0 takes the most probable token; above 0 tokens are drawn, with their
        probabilities to the power of 1 / temperature.
      seed: sampling seed.

    Raises:
      UserError: for a value that is not allowed.
    """

    rounds: int = 10
    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self):
        for name, minimum in (("rounds", 1), ("seed", 0)):
            if (value := getattr(self, name)) < minimum:
                raise UserError(f"{name}={value} must be at least {minimum}.")
        if not 0 <= self.temperature < math.inf:
            raise UserError(
                f"temperature={self.temperature} must be above 0, or 0 for the most probable token."
            )


class Infiller:
    """Fills masked tokens over several rounds."""

    def __init__(self, predictor: Predictor, top_k: int = 5):
        """Compiles on first use.

        Args:
          predictor: the model's predictor.
          top_k: number of the most probable tokens that are drawn from.

        Raises:
          UserError: the model has no trained masked-LM head, or `top_k` is below 1.
        """
        check_fills_masks(predictor.model)
        if top_k < 1:
            raise UserError(f"top_k={top_k} must be at least 1.")
        self._predictor, self._scorer, model = predictor, Scorer(predictor), predictor.model
        self._tokenizer = tokenizer = model.tokenizer
        special = {tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id}
        special |= {tokenizer.end_id, tokenizer.mask_id, *model.unseen_ids} - {-1}
        is_choice = ~np.isin(np.arange(len(tokenizer.pieces)), list(special))
        network = cast(Any, model.task).bind(model.encoder, tokenizer).make_model()
        top_k = min(top_k, int(is_choice.sum()))
        self._forward = model.compile(
            lambda params, batch: _forward(network, is_choice, top_k, params, batch)
        )

    def row(self, text: Text) -> TextRow:
        """Tokenizes a text or a pair with masks.

        Raises:
          UserError: it has no masks, or more tokens than the model has positions.
        """
        model = self._predictor.model
        longest = model.encoder.max_position_embeddings
        row = encode_text(text, model.tokenizer, longest, masks=True)
        if not row.masked:
            raise UserError(f"{text.where} has no [MASK]: {str(text)!r:.60}.")
        return row

    def fill(self, rows: Iterable[TextRow], rounds: Rounds) -> Iterator[dict[str, Any]]:
        """Fills in rows in their order; they are read as they are needed.

        Args:
          rows: results of `row`.
          rounds: number of rounds and choice of the tokens.

        Yields:
          `text_a` and, for a pair, `text_b`, as the tokenizer decodes them; `filled`, a dict
          `{"position": 3, "token": "length", "probability": 0.41}` for each mask; and of the whole
          result `pseudo_log_likelihood`, `tokens` and `perplexity`, as `Scorer.score` has them.
        """
        rows = iter(rows)
        for first in itertools.count(0, _WINDOW):
            if not (window := list(itertools.islice(rows, _WINDOW))):
                return
            ids, probabilities = self._fill_window(window, first, rounds)
            filled = [
                dataclasses.replace(row, input_ids=new, masked=())
                for row, new in zip(window, ids, strict=True)
            ]
            found = zip(window, filled, probabilities, self._scorer.score(filled), strict=True)
            yield from itertools.starmap(self._result, found)

    def _fill_window(
        self, rows: list[TextRow], first: int, rounds: Rounds
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Returns the ids of each row, and float64[masks], the probabilities of its new tokens.

        Args:
          rows: rows with masks.
          first: number of the first row among all.
          rounds: number of rounds and choice of the tokens.
        """
        ids = [row.input_ids.copy() for row in rows]
        probabilities = [np.zeros(len(row.masked)) for row in rows]
        for number in range(rounds.rounds):
            places = [_masked_again(p, number, rounds.rounds) for p in probabilities]
            texts = [text for text, some in enumerate(places) if len(some)]
            masked = (self._masked(rows[text], ids[text], places[text]) for text in texts)
            found = self._predictor.stream(self._forward, masked)
            for text, (_, answer) in zip(texts, found, strict=True):
                some, chances = places[text], answer["probabilities"].astype(np.float64)
                chosen = _choose(chances, rounds, first + text, number, some)
                positions = np.array(rows[text].masked)[some]
                ids[text][positions] = np.take_along_axis(answer["tokens"], chosen, 1)[:, 0]
                probabilities[text][some] = np.take_along_axis(chances, chosen, 1)[:, 0]
        return ids, probabilities

    def _masked(self, row: TextRow, ids: np.ndarray, places: np.ndarray) -> TextRow:
        """Returns a row with some of its masks, the others filled in."""
        positions = np.array(row.masked)[places]
        ids = ids.copy()
        ids[positions] = self._tokenizer.mask_id
        return dataclasses.replace(row, input_ids=ids, masked=tuple(positions.tolist()))

    def _result(
        self, row: TextRow, filled: TextRow, probabilities: np.ndarray, score: dict[str, Any]
    ) -> dict[str, Any]:
        words, pieces = filled.word_positions, self._tokenizer.pieces
        is_first = words < row.first_length
        texts = {"text_a": self._tokenizer.decode(filled.input_ids[words[is_first]].tolist())}
        if row.is_pair:
            texts["text_b"] = self._tokenizer.decode(filled.input_ids[words[~is_first]].tolist())
        tokens = [
            {
                "position": position,
                "token": pieces[filled.input_ids[position]],
                "probability": float(probability),
            }
            for position, probability in zip(row.masked, probabilities, strict=True)
        ]
        names = (self._scorer.name, "tokens", "perplexity")
        return {**texts, "filled": tokens, **{name: score[name] for name in names}}


def _masked_again(probabilities: np.ndarray, number: int, rounds: int) -> np.ndarray:
    """Returns the places that a round masks: those of the lowest probabilities, in order."""
    count = len(probabilities) * (rounds - number) // rounds
    return np.sort(np.argsort(probabilities, kind="stable")[:count])


def _choose(
    probabilities: np.ndarray, rounds: Rounds, text: int, number: int, places: np.ndarray
) -> np.ndarray:
    """Returns int64[masks, 1], which candidate each mask gets.

    Args:
      probabilities: float64[masks, candidates], the largest first.
      rounds: temperature and seed.
      text: number of the text.
      number: number of the round.
      places: int64[masks], the numbers of the masks within their text.
    """
    if not rounds.temperature:
        return np.zeros((len(places), 1), np.int64)
    # The largest log-probability plus Gumbel noise is a draw from the distribution.
    rng = np.random.default_rng((rounds.seed, text, number))
    noise = rng.gumbel(size=(int(places.max()) + 1, probabilities.shape[1]))[places]
    with np.errstate(divide="ignore"):  # of a probability that is 0 in float32
        scores = np.log(probabilities) / rounds.temperature + noise
    return scores.argmax(axis=1, keepdims=True)


def _forward(
    network: nn.Module, is_choice: np.ndarray, top_k: int, params: Any, batch: Any
) -> dict[str, jax.Array]:
    """float32[batch, masks, top_k] the largest probabilities of all that may be filled in."""
    outputs: Any = network.apply({"params": params}, batch, deterministic=True)
    log_probs = outputs.log_probabilities(len(is_choice))
    log_probs, tokens = jax.lax.top_k(jnp.where(is_choice, log_probs, -jnp.inf), top_k)
    return {"probabilities": jnp.exp(log_probs), "tokens": tokens}
