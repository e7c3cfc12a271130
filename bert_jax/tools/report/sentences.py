"""Sentences as a model reads them: filled-in masks, and tokens colored by their probability."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.tools.pages.document import note
from bert_jax.tools.pages.markup import Content, Markup, tag

# Minimum probabilities of the colors .p0, .p1, ...; less probable tokens have the last one.
_STEPS = (0.5, 0.1, 0.01, 0.001)


def filled(
    texts: Sequence[tuple[str, str]], predictions: Sequence[Mapping[str, Any]]
) -> list[Content]:
    """Returns sentences with a mask, each with its candidates.

    Args:
      texts: pairs of a text with [MASK] and the word that was masked.
      predictions: predictions with `masks`.
    """
    shown: list[Content] = []
    for (text, word), prediction in zip(texts, predictions, strict=True):
        before, _, after = text.partition("[MASK]")
        candidates = [
            tag(
                "li",
                tag("strong", c["token"]) if c["token"].lstrip("▁") == word else c["token"],
                f" {c['probability']:.1%}",
            )
            for c in prediction["masks"][0]["candidates"]
        ]
        sentence = tag("div", before, tag("mark.gold", word), after)
        shown.append(tag("div.text", sentence, tag("ul.candidates", candidates)))
    return [note("The underlined word was masked; it is bold among the candidates."), *shown]


def colored(scores: Sequence[Mapping[str, Any]], name: str) -> list[Content]:
    """Returns sentences whose tokens are colored by their probability.

    Args:
      scores: scores with `log_probabilities` of the tokens, and `perplexity`.
    """
    names = [*(f"at least {least:g}" for least in _STEPS), "less"]
    legend = [[tag(f"span.token.p{i}", text), " "] for i, text in enumerate(names)]
    shown = [
        tag(
            "div.text",
            [[_token(item), " "] for item in score["log_probabilities"]],
            tag("span.quiet", f" perplexity {score['perplexity']:,.1f}"),
        )
        for score in scores
        if score["tokens"]
    ]
    return [note(f"Tokens by their probability, {name}: ", legend), *shown]


def _token(item: Mapping[str, Any]) -> Markup:
    probability = math.exp(item["log_probability"])
    step = sum(probability < least for least in _STEPS)
    tip = f"{item['token']}: {probability:.2%}, {item['log_probability']:.2f} nats"
    return tag(f"span.token.p{step}", item["token"], data_tip=tip)
