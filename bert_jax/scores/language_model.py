"""Scores of language models from their mean loss: perplexities, bits per character."""

import math
from collections.abc import Mapping

# exp of more overflows; a model with such a loss has diverged.
_LARGEST_EXPONENT = 700.0
# How a masked language model scores a text: each token masked in turn; with the later pieces of its
# word; or by the tokens before it, if it was trained on next tokens too. Others use the first.
METHODS = ("", "within_words", "next_tokens")


def perplexity(loss: float) -> float:
    """Returns exp(loss) of a mean loss in nats; a finite number for every loss."""
    return math.exp(min(loss, _LARGEST_EXPONENT))


def text_scores(loss: float, counts: Mapping[str, int]) -> dict[str, float]:
    """Returns `word_perplexity` and `bits_per_character`, which do not depend on the tokenizer.

    Args:
      loss: nats per predicted token.
      counts: `predicted_tokens` of the text, and its `words` and `characters`.
    """
    nats = loss * counts["predicted_tokens"]
    return {
        "word_perplexity": perplexity(nats / counts["words"]),
        "bits_per_character": nats / counts["characters"] / math.log(2),
    }
