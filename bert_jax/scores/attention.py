"""Statistics that tell attention heads apart, and attention between words instead of pieces.

A statistic of a head is a mean over the tokens that attend: all tokens of the texts but [CLS], [SEP]
and padding. They attend to these too. Of a token i with the probabilities p(j) over the tokens j:

    entropy     -sum over j of p(j) ln p(j), in nats
    evenness    the entropy divided by ln n, where n tokens are visible to i: 1 for a uniform head
    distance    sum over j of p(j) |i - j|, in tokens
    separator   sum of p(j) over all [SEP]
    first       p of the first token of the row: [CLS], or what texts begin with
    previous    p(i - 1)
    self        p(i)
    next        p(i + 1)

Clark et al. 2019, "What Does BERT Look At?", section 3, describe such heads of BERT.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Statistic:
    """A statistic of a head.

    Attributes:
      title: in a few words.
      looks_at: what a head with a high value attends to.
      unit: of the value; "" for a share of the attention or a ratio, from 0 to 1.
    """

    title: str
    looks_at: str
    unit: str = ""


STATISTICS = {
    "entropy": Statistic("Entropy", "many tokens", "nats"),
    "evenness": Statistic("Evenness", "the sentence as a whole, evenly"),
    "distance": Statistic("Mean distance", "distant tokens", "tokens"),
    "separator": Statistic("Share on separators", "the separator"),
    "first": Statistic("Share on the first token", "the first token of the row"),
    "previous": Statistic("Share on the previous token", "the previous token"),
    "self": Statistic("Share on the token itself", "the token itself"),
    "next": Statistic("Share on the next token", "the next token"),
}


def strongest_heads(values: np.ndarray, count: int) -> list[tuple[int, int, float]]:
    """Returns (layer, head, value) of the heads with the highest values, the highest first.

    Args:
      values: float[layers, heads], of a statistic. Of equal values the first comes first.
      count: at most this many.
    """
    order = np.argsort(-values, axis=None, kind="stable")[:count]
    places = np.stack(np.unravel_index(order, values.shape), axis=1)
    return [(layer, head, float(values[layer, head])) for layer, head in places.tolist()]


def attention_of_words(attention: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Attention between words: summed over the pieces attended to, the mean of those attending.

    Rows that sum to 1 still do.

    Args:
      attention: float[..., tokens, tokens], the token that attends first.
      spans: int[words, 2], the tokens [start, stop) of each word; together all tokens in order.

    Returns:
      float[..., words, words].
    """
    starts, sizes = spans[:, 0], np.diff(spans, axis=1)
    to_words = np.add.reduceat(attention, starts, axis=-1)
    return np.add.reduceat(to_words, starts, axis=-2) / sizes.astype(attention.dtype)
