"""Statistics that tell attention heads apart, and attention between words instead of pieces.

A statistic of a head is a mean over the tokens that attend: all tokens of the texts except [CLS]
and [SEP], which are only attended to. For a token i with probabilities p(j) over the tokens j:

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
      title: title in a few words.
      meaning: definition, and what a high value says.
      unit: unit of the value; "" for a share of the attention or a ratio, from 0 to 1.
    """

    title: str
    meaning: str
    unit: str = ""


STATISTICS = {
    "entropy": Statistic("Entropy", "high if the attention of a token is spread over many", "nats"),
    "evenness": Statistic(
        "Evenness", "the entropy in relation to the highest possible: 1 is the text as a whole"
    ),
    "distance": Statistic("Mean distance", "between a token and what it attends to", "tokens"),
    "separator": Statistic("Share on separators", "the attention to [SEP]"),
    "first": Statistic(
        "Share on the first token", "the attention to [CLS], or to what texts begin with"
    ),
    "previous": Statistic("Share on the previous token", "the attention to the token before"),
    "self": Statistic("Share on the token itself", "the attention of a token to itself"),
    "next": Statistic("Share on the next token", "the attention to the token after"),
}


def strongest_heads(values: np.ndarray, count: int) -> list[tuple[int, int, float]]:
    """Returns (layer, head, value) of the heads with the highest values, the highest first.

    Args:
      values: float[layers, heads], of a statistic. Of equal values the first comes first.
    """
    order = np.argsort(-values, axis=None, kind="stable")[:count]
    places = np.stack(np.unravel_index(order, values.shape), axis=1)
    return [(layer, head, float(values[layer, head])) for layer, head in places.tolist()]


def attention_of_words(attention: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Attention between words: summed over the pieces attended to, averaged over those attending.

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
