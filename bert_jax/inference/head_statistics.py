"""The statistics of attention heads over texts (scores/attention.py), summed on the devices."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.files.errors import UserError
from bert_jax.models.layers.masks import can_attend
from bert_jax.scores.attention import STATISTICS
from bert_jax.text.tokenization import Tokenizer


def special_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns the ids that rows have besides text; statistics leave them out as queries."""
    return tuple(sorted({tokenizer.cls_id, tokenizer.sep_id, tokenizer.end_id}))


def sum_heads(
    config: TransformerConfig,
    tokenizer: Tokenizer,
    attention: tuple[jax.Array, ...],
    batch: Mapping[str, jax.Array],
) -> dict[str, jax.Array]:
    """Returns the sums of the statistics over the tokens that attend, and their number.

    Args:
      attention: probabilities of each layer, float32[batch, heads, seq, seq].

    Returns:
      float32[batch, statistics, layers, heads] `sums` in the order of STATISTICS, and
      float32[batch] `attending`.
    """
    ids, places, examples = (batch[n] for n in ("input_ids", "position_ids", "example_ids"))
    is_special = jnp.isin(ids, jnp.array(special_ids(tokenizer)))
    attends = ((examples > 0) & ~is_special).astype(jnp.float32)
    offsets = (
        places[:, None, :] - places[:, :, None]
    )  # of the key from the query, [batch, seq, seq]
    is_separator = jnp.isin(ids, jnp.array([tokenizer.sep_id, tokenizer.end_id]))
    # The weight of each probability in a statistic.
    factors = {
        "distance": jnp.abs(offsets),
        "separator": is_separator[:, None],
        "first": places[:, None] == 0,
        "previous": offsets == -1,
        "self": offsets == 0,
        "next": offsets == 1,
    }
    layers = []
    for number, probs in enumerate(attention):
        mask = "bidirectional" if config.is_global(number) else config.attention_pattern
        visible = can_attend(examples, places, mask, config.attention_window)[:, 0].sum(-1)
        entropy = jax.scipy.special.entr(probs).sum(-1)  # [batch, heads, seq]
        evenness = entropy / jnp.log(jnp.maximum(visible, 2))[:, None]
        values = {
            "entropy": jnp.einsum("bhs,bs->bh", entropy, attends),
            "evenness": jnp.einsum("bhs,bs->bh", evenness, attends),
        }
        for name, factor in factors.items():
            weights = factor.astype(jnp.float32) * attends[:, :, None]
            values[name] = jnp.einsum("bhst,bst->bh", probs, weights)
        layers.append(jnp.stack([values[name] for name in STATISTICS], axis=1))
    return {"sums": jnp.stack(layers, axis=2), "attending": attends.sum(1)}


def mean_statistics(sums: np.ndarray, attending: float, where: str) -> np.ndarray:
    """float64[statistics, layers, heads] -> float32, means over the tokens that attend.

    Raises:
      UserError: no token attends.
    """
    if not attending:
        raise UserError(f"{where} has no token but special ones: give a text with words.")
    return (sums / attending).astype(np.float32)
