"""Which tokens are masked: drawn on the device, independently at each step.

A pure function of (key, batch, rule). The procedure is that of `create_masked_lm_predictions` in
google-research/bert: it chooses a fraction of each example's tokens, counting [CLS] and [SEP], and
at least one; 80 % of them become [MASK], 10 % stay, 10 % become a random id of the vocabulary.
`MaskingRule.rounding` has other definitions of the number of tokens, and the shares can be changed.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.model import Batch
from bert_jax.tasks.pretraining.mask_units import (
    Tokens,
    choose_phrases,
    choose_units,
    latest,
    opens_example,
)

# Lengths of spans, in words: geometric, cut at the longest (SpanBERT, Joshi et al. 2020, 3.1).
SPAN_PROBABILITY = 0.2
LONGEST_SPAN = 10


@dataclasses.dataclass(frozen=True)
class MaskingRule:
    """How to mask; hashable, so that it can be a static argument.

    Attributes:
      masked_lm_prob: fraction of an example's tokens to predict.
      final_prob: final masking rate (linear decay over the run; 0: constant).
      max_predictions: P, slots for predictions in a row. A row of several examples should be
        packed so that all their predictions fit; otherwise P of them are chosen at random.
      masking: `subword` chooses tokens; `whole_word` words, in random order, leaving out those
        that no longer fit; `span` runs of words, truncated where the number of tokens is reached;
        `phrase` the units in the batch's int8[batch, seq] `mask_units`, each next one with
        probability proportional to its weight, leaving out those that no longer fit.
      vocab_size: ids that a random token is drawn from, special ones included.
      mask_id: id of [MASK].
      never_masked: ids of [CLS], [SEP] and [PAD].
      is_continuation: for each id whether it continues a word; for `whole_word` and `span`.
      rounding: number of tokens to choose from an example's n, where p is `masked_lm_prob`:
        `half_even`: round(n * p), at least one, as in google-research/bert under Python 3;
        `stochastic`: floor(n * p + u), u uniform below 1 (fairseq, `mask_tokens_dataset.py`);
        `bernoulli`: each candidate independently with probability p, so any number is possible
        (transformers, `DataCollatorForLanguageModeling`); for `subword` only;
        `row`: `max_predictions` in each row, whatever its examples and their lengths, so that no
        slot is empty; at most half of a row's candidates; for `subword` only.
      mask_share: share of the chosen tokens that become [MASK].
      random_share: share of them that become a random id; the others stay.
      unit_weights: for `phrase`, the weights of units whose first token has the number 1, 2, ... in
        `mask_units`; units with weight 0 are never masked.
    """

    masked_lm_prob: float
    max_predictions: int
    masking: str
    vocab_size: int
    mask_id: int
    never_masked: tuple[int, ...]
    is_continuation: tuple[bool, ...] = ()
    rounding: str = "half_even"
    mask_share: float = 0.8
    random_share: float = 0.1
    unit_weights: tuple[float, ...] = ()
    final_prob: float = 0.0


def mask_batch(
    key: jax.Array, batch: Batch, rule: MaskingRule, progress: jax.Array | float = 0.0
) -> dict[str, jax.Array]:
    """Chooses the tokens to predict and hides them.

    Args:
      key: random key of this batch.
      batch: int32[batch, seq] `input_ids` and `example_ids` (0: padding), `mask_units` for
        `phrase`, and anything else.
      rule: how to mask.
      progress: fraction of the run that is done, 0 to 1, for rates that decay.

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
    prob = rule.masked_lm_prob
    if rule.final_prob:
        prob += (rule.final_prob - prob) * jnp.asarray(progress, jnp.float32)
    tokens = _properties(example_ids, is_candidate, num_examples, rule, prob, rounding_key)
    limits = None
    if rule.rounding == "row":
        chosen, limits = is_candidate, (is_candidate.sum(1, keepdims=True) + 1) // 2
    elif rule.rounding == "bernoulli":
        limit = prob * 2.0**32 if rule.final_prob else round(prob * 2**32)
        chosen = is_candidate & (order < jnp.asarray(limit, jnp.uint32))
    elif rule.masking == "subword":
        chosen = _choose_tokens(order, tokens)
    elif rule.masking == "phrase":
        chosen = choose_phrases(order, tokens, batch["mask_units"], rule.unit_weights)
    else:
        is_continuation = jnp.asarray(np.array(rule.is_continuation))[input_ids]
        chosen = _choose_words(order, span_key, tokens, is_continuation, rule)

    positions, weights = _into_slots(chosen, order, rule.max_predictions, limits)
    true_ids = jnp.take_along_axis(input_ids, positions, axis=1)
    fate = jax.random.uniform(fate_key, positions.shape)
    random_ids = jax.random.randint(word_key, positions.shape, 0, rule.vocab_size, jnp.int32)
    kept_ids = jnp.where(fate < 1 - rule.random_share, true_ids, random_ids)
    hidden_ids = jnp.where(fate < rule.mask_share, rule.mask_id, kept_ids)
    # The position of an unused slot is out of bounds, and nothing is written there.
    target = jnp.where(weights > 0, positions, input_ids.shape[1])
    write = jax.vmap(lambda row, places, ids: row.at[places].set(ids, mode="drop"))
    return {
        **batch,
        "input_ids": write(input_ids, target, hidden_ids),
        "masked_lm_positions": positions,
        "masked_lm_ids": jnp.where(weights > 0, true_ids, 0),
        "masked_lm_weights": weights,
    }


def _properties(
    example_ids: jax.Array,
    is_candidate: jax.Array,
    num_examples: int,
    rule: MaskingRule,
    prob: float | jax.Array,
    rounding_key: jax.Array,
) -> Tokens:
    """Returns the properties of each token; see `Tokens`."""
    same = example_ids[:, :, None] == example_ids[:, None, :]
    length = same.sum(-1)
    # For each length of an example; a constant rate in double precision, as in the originals.
    xp = jnp if rule.final_prob else np
    wanted = xp.arange(example_ids.shape[1] + 1) * prob
    if rule.rounding == "stochastic":
        # floor(wanted + uniform) is the next whole number from here on.
        whole = xp.floor(wanted)
        goes_up_from = jnp.asarray(whole + 1 - wanted, jnp.float32)[length]
        uniform = jax.random.uniform(rounding_key, (len(example_ids), num_examples + 1))
        goes_up = jnp.take_along_axis(uniform, example_ids, axis=1) >= goes_up_from
        budget = jnp.asarray(whole, jnp.int32)[length] + goes_up
    else:  # rint rounds half to even, as Python does
        budget = jnp.asarray(xp.maximum(xp.rint(wanted), 1), jnp.int32)[length]
    budget = jnp.minimum(budget, rule.max_predictions)
    return Tokens(example_ids, is_candidate, same, budget, num_examples)


def _choose_tokens(order: jax.Array, tokens: Tokens) -> jax.Array:
    """bool[batch, seq]: a random choice of each example's candidates, up to its budget.

    By sorting, here and below: if ranks came from comparing all pairs, XLA would recompute them for
    every use, down to each element that the model gathers with them.
    """
    turn = jnp.lexsort((order, ~tokens.is_candidate, tokens.example_ids), axis=1)
    example, is_candidate, budget = (
        jnp.take_along_axis(x, turn, axis=1)
        for x in (tokens.example_ids, tokens.is_candidate, tokens.budget)
    )
    opens = jnp.diff(example, axis=1, prepend=-1) != 0
    rank = jnp.arange(order.shape[1])[None] - latest(opens)
    return jnp.take_along_axis(is_candidate & (rank < budget), jnp.argsort(turn, axis=1), axis=1)


def _into_slots(
    chosen: jax.Array, order: jax.Array, size: int, limits: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Ascending positions of the chosen tokens, int32[batch, size], and which slots are in use.

    If more than `size` tokens, or `limits`, int32[batch, 1], are chosen, the first in `order` are
    taken.
    """
    length = chosen.shape[1]
    first = jnp.lexsort((order, ~chosen), axis=1)[:, :size]
    first = jnp.where(jnp.take_along_axis(chosen, first, axis=1), first, length)
    if limits is not None:
        first = jnp.where(jnp.arange(first.shape[1])[None] < limits, first, length)
    positions = jnp.sort(first, axis=1).astype(jnp.int32)
    positions = jnp.pad(positions, ((0, 0), (0, size - first.shape[1])), constant_values=length)
    in_use = positions < length
    return jnp.where(in_use, positions, 0), in_use.astype(jnp.float32)


def _choose_words(
    order: jax.Array,
    span_key: jax.Array,
    tokens: Tokens,
    is_continuation: jax.Array,
    rule: MaskingRule,
) -> jax.Array:
    """bool[batch, seq]: whole words in random order, leaving out those that no longer fit.

    As in the original, a piece that continues a word belongs to the last candidate before it, even
    across a [SEP].
    """
    opens = opens_example(tokens)
    starts = tokens.is_candidate & (opens | ~is_continuation)
    if rule.masking == "span":
        span_start = latest(_draw_span_starts(span_key, starts, opens))
        order = jnp.take_along_axis(order, span_start, axis=1)
    return choose_units((order,), tokens, starts)


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
