"""Which tokens are masked: drawn on the device, independently at each step.

A pure function of (key, batch, rule). The procedure is the one of `create_masked_lm_predictions`
in google-research/bert: of each example a fraction of the tokens, [CLS] and [SEP] counted, at
least one; 80 % of them become [MASK], 10 % stay, 10 % become any id of the vocabulary.
`MaskingRule.rounding` has two other definitions of that number of tokens.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.model import Batch

MASKINGS = ("subword", "whole_word", "span")
ROUNDINGS = ("half_even", "stochastic", "bernoulli")
# Lengths of spans, in words: geometric, cut at the longest (SpanBERT, Joshi et al. 2020, 3.1).
SPAN_PROBABILITY = 0.2
LONGEST_SPAN = 10


@dataclasses.dataclass(frozen=True)
class MaskingRule:
    """How to mask; hashable, so that it can be a static argument.

    Attributes:
      masked_lm_prob: fraction of an example's tokens to predict.
      max_predictions: P, slots for predictions in a row. A row of several examples should be
        packed so that all their predictions fit; otherwise P of them are chosen at random.
      masking: `subword` chooses tokens; `whole_word` words, in random order, leaving out those
        that no longer fit; `span` runs of words, truncated where the number of tokens is reached.
      vocab_size: ids that a random token is drawn from, special ones included.
      mask_id: id of [MASK].
      never_masked: ids of [CLS], [SEP] and [PAD].
      is_continuation: for each id whether it continues a word; for `whole_word` and `span`.
      rounding: of the n tokens of an example are chosen, p being `masked_lm_prob`,
        `half_even`: round(n * p), at least one, as in google-research/bert under Python 3;
        `stochastic`: floor(n * p + u), u uniform below 1 (fairseq, `mask_tokens_dataset.py`);
        `bernoulli`: each candidate independently with probability p, so that any number is possible
        (transformers, `DataCollatorForLanguageModeling`); for `subword` only.
    """

    masked_lm_prob: float
    max_predictions: int
    masking: str
    vocab_size: int
    mask_id: int
    never_masked: tuple[int, ...]
    is_continuation: tuple[bool, ...] = ()
    rounding: str = "half_even"

    def __post_init__(self):
        for name, allowed in (("masking", MASKINGS), ("rounding", ROUNDINGS)):
            if (got := getattr(self, name)) not in allowed:
                raise ValueError(f"{name}={got!r} is none of {', '.join(allowed)}.")
        if self.rounding == "bernoulli" and self.masking != "subword":
            raise ValueError(f"rounding='bernoulli' needs masking='subword', not {self.masking!r}.")
        if self.masking != "subword" and len(self.is_continuation) < self.vocab_size:
            raise ValueError(
                f"masking={self.masking!r} needs is_continuation for each of the {self.vocab_size}"
                f" ids; it has {len(self.is_continuation)}."
            )


def mask_batch(key: jax.Array, batch: Batch, rule: MaskingRule) -> dict[str, jax.Array]:
    """Chooses the tokens to predict and hides them.

    Args:
      key: of this batch.
      batch: int32[batch, seq] `input_ids` and `example_ids` (0: padding), and anything else.
      rule: how.

    Returns:
      The batch with `input_ids` corrupted and [batch, P] arrays added: int32
      `masked_lm_positions` (ascending) and `masked_lm_ids` (the true ones), float32
      `masked_lm_weights` (1, or 0 in unused slots, which hold position 0 and id 0).
    """
    order_key, span_key, fate_key, word_key = jax.random.split(key, 4)
    input_ids, example_ids = batch["input_ids"], batch["example_ids"]
    is_candidate = (example_ids > 0) & ~jnp.isin(input_ids, jnp.asarray(rule.never_masked))
    order = jax.random.bits(order_key, input_ids.shape)
    # Folding in 0 to 3 would give the keys of `split` again.
    rounding_key = jax.random.fold_in(key, 4)
    num_examples = batch["cls_positions"].shape[1]
    tokens = _Tokens.of(example_ids, is_candidate, num_examples, rule, rounding_key)
    if rule.rounding == "bernoulli":
        chosen = is_candidate & (order < jnp.uint32(round(rule.masked_lm_prob * 2**32)))
    elif rule.masking == "subword":
        chosen = _choose_tokens(order, tokens)
    else:
        is_continuation = jnp.asarray(np.array(rule.is_continuation))[input_ids]
        chosen = _choose_words(order, span_key, tokens, is_continuation, rule)

    positions, weights = _into_slots(chosen, order, rule.max_predictions)
    true_ids = jnp.take_along_axis(input_ids, positions, axis=1)
    fate = jax.random.uniform(fate_key, positions.shape)
    random_ids = jax.random.randint(word_key, positions.shape, 0, rule.vocab_size, jnp.int32)
    hidden_ids = jnp.where(fate < 0.8, rule.mask_id, jnp.where(fate < 0.9, true_ids, random_ids))
    rows = jnp.arange(input_ids.shape[0])[:, None]
    # An unused slot points behind the row, where nothing is written.
    target = jnp.where(weights > 0, positions, input_ids.shape[1])
    return {
        **batch,
        "input_ids": input_ids.at[rows, target].set(hidden_ids, mode="drop"),
        "masked_lm_positions": positions,
        "masked_lm_ids": jnp.where(weights > 0, true_ids, 0),
        "masked_lm_weights": weights,
    }


@dataclasses.dataclass(frozen=True)
class _Tokens:
    """The properties of each token of a row.

    Attributes:
      example_ids: int32[batch, seq].
      is_candidate: bool[batch, seq], may be chosen.
      same: bool[batch, seq, seq], whether two positions belong to the same example.
      budget: int32[batch, seq], predictions of the token's example; unused for `bernoulli`.
      num_examples: most examples in a row.
    """

    example_ids: jax.Array
    is_candidate: jax.Array
    same: jax.Array
    budget: jax.Array
    num_examples: int

    @classmethod
    def of(
        cls,
        example_ids: jax.Array,
        is_candidate: jax.Array,
        num_examples: int,
        rule: MaskingRule,
        rounding_key: jax.Array,
    ) -> "_Tokens":
        same = example_ids[:, :, None] == example_ids[:, None, :]
        length = same.sum(-1)
        # Of examples of each length; in double precision, as the originals.
        wanted = np.arange(example_ids.shape[1] + 1) * rule.masked_lm_prob
        if rule.rounding == "stochastic":
            # floor(wanted + uniform) is the next whole number from here on.
            least = np.floor(wanted)
            goes_up_from = jnp.asarray(least + 1 - wanted, jnp.float32)[length]
            uniform = jax.random.uniform(rounding_key, (len(example_ids), num_examples + 1))
            goes_up = jnp.take_along_axis(uniform, example_ids, axis=1) >= goes_up_from
            budget = jnp.asarray(least, jnp.int32)[length] + goes_up
        else:  # np.rint rounds half to even, as Python does
            budget = jnp.asarray(np.maximum(np.rint(wanted), 1), jnp.int32)[length]
        budget = jnp.minimum(budget, rule.max_predictions)
        return cls(example_ids, is_candidate, same, budget, num_examples)


def _choose_tokens(order: jax.Array, tokens: _Tokens) -> jax.Array:
    """bool[batch, seq]: a random choice of each example's candidates, up to its budget.

    By sorting, here and below: if ranks came from comparing all pairs, XLA would recompute them in
    every use, down to each element that the model gathers with them.
    """
    turn = jnp.lexsort((order, ~tokens.is_candidate, tokens.example_ids), axis=1)
    example, is_candidate, budget = (
        jnp.take_along_axis(x, turn, axis=1)
        for x in (tokens.example_ids, tokens.is_candidate, tokens.budget)
    )
    opens = jnp.diff(example, axis=1, prepend=-1) != 0
    rank = jnp.arange(order.shape[1])[None] - _latest(opens)
    return jnp.take_along_axis(is_candidate & (rank < budget), jnp.argsort(turn, axis=1), axis=1)


def _into_slots(chosen: jax.Array, order: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Ascending positions of the chosen tokens, int32[batch, size], and which slots are in use.

    Of more than `size` tokens the first in `order` are taken.
    """
    length = chosen.shape[1]
    first = jnp.lexsort((order, ~chosen), axis=1)[:, :size]
    first = jnp.where(jnp.take_along_axis(chosen, first, axis=1), first, length)
    positions = jnp.sort(first, axis=1).astype(jnp.int32)
    positions = jnp.pad(positions, ((0, 0), (0, size - first.shape[1])), constant_values=length)
    in_use = positions < length
    return jnp.where(in_use, positions, 0), in_use.astype(jnp.float32)


def _choose_words(
    order: jax.Array,
    span_key: jax.Array,
    tokens: _Tokens,
    is_continuation: jax.Array,
    rule: MaskingRule,
) -> jax.Array:
    """bool[batch, seq]: whole words in random order, leaving out those that no longer fit.

    As in the original, a piece that continues a word belongs to the last candidate before it, even
    across a [SEP].
    """
    candidate = tokens.is_candidate
    place = jnp.arange(candidate.shape[1])[None]
    earlier = (place[0][None, :] < place[0][:, None])[None]
    opens = candidate & ~(tokens.same & candidate[:, None] & earlier).any(-1)
    starts = candidate & (opens | ~is_continuation)
    word = jnp.cumsum(starts, axis=1)
    in_word = (word[:, :, None] == word[:, None, :]) & candidate[:, None]
    length = jnp.where(starts, in_word.sum(-1), 0)
    if rule.masking == "span":
        span_start = _latest(_draw_span_starts(span_key, starts, opens))
        order = jnp.take_along_axis(order, span_start, axis=1)

    turn = jnp.lexsort((jnp.broadcast_to(place, order.shape), order, ~starts), axis=1)
    length, budget, example = (
        jnp.take_along_axis(x, turn, axis=1) for x in (length, tokens.budget, tokens.example_ids)
    )
    fits = _fill_greedily(length, budget, example, tokens.num_examples)
    fits = jnp.take_along_axis(fits, jnp.argsort(turn, axis=1), axis=1)
    return candidate & jnp.take_along_axis(fits, _latest(starts), axis=1)


def _latest(flags: jax.Array) -> jax.Array:
    """int32[batch, seq]: where the latest flag up to each place is (0 before the first one)."""
    return jax.lax.cummax(jnp.where(flags, jnp.arange(flags.shape[1])[None], 0), axis=1)


def _draw_span_starts(key: jax.Array, starts: jax.Array, opens: jax.Array) -> jax.Array:
    """Cuts each example into runs of words of random lengths; flags the first word of each."""
    weights = (1 - SPAN_PROBABILITY) ** np.arange(LONGEST_SPAN)
    cumulative = jnp.asarray(np.cumsum(weights / weights.sum())[:-1], jnp.float32)
    uniform = jax.random.uniform(key, starts.shape)
    lengths = 1 + (uniform[..., None] >= cumulative[None, None]).sum(-1)

    def visit(left, word):
        is_start, is_first, length = word
        begins = is_start & (is_first | (left == 0))
        return jnp.where(begins, length, left) - is_start, begins

    none_left = jnp.zeros(starts.shape[0], lengths.dtype)
    _, begins = jax.lax.scan(visit, none_left, (starts.T, opens.T, lengths.T))
    return begins.T


def _fill_greedily(
    length: jax.Array, budget: jax.Array, example: jax.Array, num_examples: int
) -> jax.Array:
    """bool[batch, n]: which items are taken, one after the other, if they fit in their example's.

    The arrays are int32[batch, n], in the order in which the items come; length 0 is no item.
    """

    def take(taken, item):
        size, limit, of = item
        mine = of[:, None] == jnp.arange(taken.shape[1])[None]
        total = (taken * mine).sum(-1) + size
        fits = (size > 0) & (total <= limit)
        return taken + jnp.where(fits, size, 0)[:, None] * mine, fits

    nothing = jnp.zeros((length.shape[0], num_examples + 1), jnp.int32)  # [:, 0] is padding's
    _, fits = jax.lax.scan(take, nothing, (length.T, budget.T, example.T))
    return fits.T
