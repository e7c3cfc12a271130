"""Text generation: continues prompts with a model that predicts each token from those before it.

A row starts like the rows in training, and ends at a separator. Rows of a batch may have prompts of
different lengths; each row has its own random keys, so its text depends only on the seed, its
number and its prompt, not on other rows.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.files.errors import UserError
from bert_jax.inference.loading import TrainedModel
from bert_jax.models.layers.cache import make_cache
from bert_jax.tasks.causal_lm.model import CausalLMModel
from bert_jax.training.state import make_key

# Rows that are continued together.
_BATCH_ROWS = 32


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. Top-k is applied after the temperature, top-p after top-k.

    Attributes:
      greedy: the most probable token; among equal ones, the first.
      temperature: divides the logits; below 1 the distribution is sharper, above 1 flatter.
      top_k: only this many of the most probable tokens; 0: all.
      top_p: only the most probable tokens, up to the one at which their cumulative probability
        reaches this (Holtzman et al. 2020, nucleus sampling); 1: all.

    Raises:
      UserError: for a value that is not allowed, or a value that has no effect.
    """

    greedy: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        if not 0 < self.temperature < float("inf"):
            raise UserError(
                f"temperature={self.temperature} must be above 0; for the most probable words,"
                " give greedy."
            )
        if self.top_k < 0:
            raise UserError(f"top_k={self.top_k} must be at least 1, or 0 for all words.")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p={self.top_p} must be above 0, and at most 1 for all words.")
        if self.greedy and (self.temperature, self.top_k, self.top_p) != (1.0, 0, 1.0):
            raise UserError(
                "greedy takes the most probable word: leave out temperature, top_k and top_p."
            )


@dataclasses.dataclass(frozen=True)
class Prompt:
    """The beginning of a text.

    Attributes:
      ids: int32[tokens], with the token that texts begin with in training, if there is one.
      marker: 1 if `ids` begins with that token, otherwise 0.
    """

    ids: np.ndarray
    marker: int


class Generator:
    """Continues texts with a model that predicts next tokens.

    Attributes:
      encoder: configuration of the encoder.
      tokenizer: the run's.
    """

    def __init__(self, model: TrainedModel):
        """Finds the tokens that begin and end texts.

        Raises:
          UserError: the model does not predict next tokens, or its head was not trained.
        """
        encoder: Any = model.encoder
        if not (isinstance(encoder, TransformerConfig) and model.task.READS_FORWARD):
            mask = getattr(encoder, "attention_pattern", "none")
            raise UserError(
                f"{model.folder} is for config.task.name={model.config.task.name!r}, with"
                f" config.model.attention_pattern={mask!r}: only a model that was trained to"
                " predict the next token (config.task.name='causal_lm') generates text."
            )
        self.encoder = encoder
        model.task.check_trained(model.untrained, model.folder)
        self.tokenizer, self._params = model.tokenizer, model.params
        self._exact = model.exact
        running = model.config.get("data.segments") == "running_text"
        # Special tokens that the model has never seen have the id -1.
        self._marker = self.tokenizer.sep_id if running else self.tokenizer.cls_id
        self._ends = tuple(sorted({self.tokenizer.sep_id, self.tokenizer.end_id} - {-1}))
        others = {self.tokenizer.cls_id, self.tokenizer.mask_id, self.tokenizer.pad_id}
        never = (others | model.unseen_ids) - {*self._ends, self.tokenizer.unk_id, -1}
        is_word = np.arange(self.encoder.padded_vocab_size) < len(self.tokenizer.pieces)
        self._is_choice = is_word & ~np.isin(np.arange(len(is_word)), list(never))

    def prompt(self, text: str, max_new_tokens: int) -> Prompt:
        """Tokenizes the beginning of a text.

        Raises:
          UserError: it has no tokens, or with the new ones exceeds the model's positions.
        """
        ids = self.tokenizer.encode(text)
        marker = [self._marker] if self._marker >= 0 else []
        if not ids and not marker:
            raise UserError(
                f"The prompt {text!r} has no tokens, and this model has no token that begins a"
                " text: give a word."
            )
        tokens, longest = len(marker + ids), self.encoder.max_position_embeddings
        if tokens + max_new_tokens > longest:
            room = longest - tokens
            fix = f"set max_new_tokens={room} or less" if room > 0 else "shorten it"
            raise UserError(
                f"The prompt {text[:40]!r} has {tokens} tokens, and {max_new_tokens} new ones are"
                f" above the {longest} positions of the model: {fix}."
            )
        return Prompt(np.array(marker + ids, np.int32), len(marker))

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        max_new_tokens: int,
        seed: int = 0,
        num_samples: int = 1,
        length: int = 0,
    ) -> Iterator[tuple[Prompt, list[int]]]:
        """Yields each prompt with the ids that follow it, `num_samples` times, in order.

        Of an exact model, each row is computed by itself. Samples depend on the number of the row,
        from which its random key is made.

        Args:
          prompts: results of `prompt`.
          max_new_tokens: maximum number of ids; fewer if the text ends.
          length: length that prompts are padded to, so that few shapes are compiled; 0: that of the
            longest.
        """
        rows = [prompt for prompt in prompts for _ in range(num_samples)]
        key = make_key(seed, "generation")
        most = 1 if self._exact else _BATCH_ROWS
        for start in range(0, len(rows), most):
            part = rows[start : start + most]
            lengths = np.array([len(prompt.ids) for prompt in part], np.int32)
            ids = np.zeros((len(part), max(length, lengths.max())), np.int32)
            for row, prompt in zip(ids, part, strict=True):
                row[: len(prompt.ids)] = prompt.ids
            numbers = jnp.arange(start, start + len(part))
            keys = jax.vmap(functools.partial(jax.random.fold_in, key))(numbers)
            settings = {"sampling": sampling, "max_new_tokens": max_new_tokens, "ends": self._ends}
            arrays = self._params, ids, lengths, keys, self._is_choice
            new = jax.device_get(continue_rows(*arrays, model=self.encoder, **settings))
            for prompt, row in zip(part, new.tolist(), strict=True):
                ends = [place for place, word in enumerate(row) if word in (*self._ends, -1)]
                yield prompt, row[: ends[0]] if ends else row

    def text(self, prompt: Prompt, new: Sequence[int]) -> str:
        """Returns the text of a prompt and its continuation."""
        return self.tokenizer.decode([*prompt.ids[prompt.marker :].tolist(), *new])


@functools.partial(jax.jit, static_argnames=("model", "sampling", "max_new_tokens", "ends"))
def continue_rows(
    params: Any,
    ids: jax.Array,
    lengths: jax.Array,
    keys: jax.Array,
    is_choice: jax.Array,
    *,
    model: TransformerConfig,
    sampling: Sampling,
    max_new_tokens: int,
    ends: tuple[int, ...],
) -> jax.Array:
    """Returns the ids that follow each row, int32[batch, max_new_tokens].

    The first of `ends` in a row is followed by -1.

    Args:
      params: parameters of a `CausalLMModel`.
      ids: int32[batch, seq], the prompts, each at the beginning of its row.
      lengths: int32[batch], at least 1; the rest of a row is padding.
      keys: [batch], random keys.
      is_choice: bool[padded vocab], the words that may be chosen.
      max_new_tokens: maximum number of ids, at least 1.
      ends: words after which nothing follows.
    """
    decoder = CausalLMModel(model)

    def next_words(batch, cache, step):
        logits, cache = decoder.apply({"params": params}, batch, cache, method="decode")
        logits = jnp.where(is_choice[None], logits, -jnp.inf)
        step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, step)
        return choose(sampling, step_keys, logits), cache

    def is_end(words):
        return jnp.isin(words, jnp.array(ends, jnp.int32))

    def go_on(state):
        step, _, is_done, *_ = state
        return (step < max_new_tokens) & ~is_done.all()

    def add_word(state):
        step, new, is_done, words, cache = state
        batch = {"input_ids": words[:, None], "example_ids": (~is_done).astype(jnp.int32)[:, None]}
        batch["token_type_ids"] = jnp.zeros_like(words)[:, None]
        words, cache = next_words(batch, cache, step)
        words = jnp.where(is_done, -1, words)
        new = new.at[:, step].set(words)
        return step + 1, new, is_done | is_end(words), jnp.maximum(words, 0), cache

    is_token = jnp.arange(ids.shape[1])[None] < lengths[:, None]
    batch = {"input_ids": ids, "example_ids": is_token.astype(jnp.int32)}
    batch["token_type_ids"] = jnp.zeros_like(ids)
    cache = make_cache(model, len(ids), ids.shape[1] + max_new_tokens)
    words, cache = next_words(batch, cache, 0)
    new = jnp.full((len(ids), max_new_tokens), -1, jnp.int32).at[:, 0].set(words)
    state = (1, new, is_end(words), words, cache)
    return jax.lax.while_loop(go_on, add_word, state)[1]


def choose(sampling: Sampling, keys: jax.Array, logits: jax.Array) -> jax.Array:
    """Returns the next word of each row, int32[batch].

    Args:
      keys: [batch], one random key for each row.
      logits: float32[batch, words]; a word with -inf is never chosen.
    """
    if sampling.greedy:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    chosen = jax.vmap(jax.random.categorical)(keys, restrict(sampling, logits))
    return chosen.astype(jnp.int32)


def restrict(sampling: Sampling, logits: jax.Array) -> jax.Array:
    """Returns the logits of the distribution to sample from, -inf for words that are left out.

    Among words with equal logits, the first ones are kept.

    Args:
      logits: float32[batch, words].
    """
    logits = logits / sampling.temperature
    words = logits.shape[-1]
    if sampling.top_k in range(1, words) or sampling.top_p < 1:
        order = jnp.argsort(-logits, axis=-1, stable=True)
        place = jnp.argsort(order, axis=-1)  # of each word in that order
        kept = place < (sampling.top_k or words)
        if sampling.top_p < 1:
            probs = jax.nn.softmax(jnp.where(kept, logits, -jnp.inf))
            sorted_probs = jnp.take_along_axis(probs, order, axis=-1)
            before = jnp.cumsum(sorted_probs, axis=-1) - sorted_probs
            kept &= jnp.take_along_axis(before, place, axis=-1) < sampling.top_p
        logits = jnp.where(kept, logits, -jnp.inf)
    return logits
