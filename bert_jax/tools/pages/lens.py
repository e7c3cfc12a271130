"""What the hidden states of each layer would predict, as a table: layers x positions."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.tools.pages import tables
from bert_jax.tools.pages.document import note
from bert_jax.tools.pages.markup import Content, Markup, tag

_CONTEXT = 3  # words around a mask, and before a token


def lens(arrays: Mapping[str, np.ndarray], no_lens: str = "") -> Content:
    """Returns the predictions, or a line that says why there are none.

    Args:
      arrays: arrays of a text, as docs/attention.md lists them.
      no_lens: why the layers of this model predict no words.
    """
    if no_lens:
        return note(no_lens)
    if "lens_tokens" not in arrays:
        return note("The text has no [MASK]: replace a word by one to see what is predicted.")
    header = ["After", *(_place(arrays, i) for i in arrays["lens_positions"].tolist())]
    names = ["Embeddings", *(f"Layer {i}" for i in range(1, len(arrays["lens_tokens"])))]
    columns = (
        arrays[f"lens_{name}"].tolist()
        for name in ("tokens", "probabilities", "answer_probabilities")
    )
    rows = [
        [name, *map(_candidates, *of_layer, arrays["lens_answers"].tolist())]
        for name, *of_layer in zip(names, *columns, strict=True)
    ]
    what = "the next token" if arrays["lens_offset"] else "the answer of the last layer"
    caption = "Predictions of the layers"
    grid = tables.table(header, rows[::-1], caption=caption, text_columns=len(header))
    return [
        note(
            "The head that predicts words, applied to the hidden states after each layer; the last"
            f" layer's row is what the model predicts. Underlined, and the shade of a cell: {what}."
        ),
        tag("div.lens", grid),
    ]


def _place(arrays: Mapping[str, np.ndarray], position: int) -> Markup:
    """The words around a mask, or the tokens up to one whose successor is predicted."""
    tokens, words = arrays["tokens"].tolist(), arrays["words"].tolist()
    if arrays["lens_offset"]:
        before = " ".join(tokens[max(0, position + 1 - _CONTEXT) : position + 1])
        return tag("span.place", before, " ", tag("b", tokens[position + 1]))
    at = int(np.searchsorted(arrays["word_spans"][:, 1], position, side="right"))
    before, after = words[max(0, at - _CONTEXT) : at], words[at + 1 : at + 1 + _CONTEXT]
    return tag("span.place", " ".join(before), " ", tag("b", words[at]), " ", " ".join(after))


def _candidates(
    tokens: Sequence[str], probabilities: Sequence[float], of_answer: float, answer: str
) -> Markup:
    def one(token: str, value: float, before: str = "") -> Markup:
        shown = tag("bdi", tag("u", token) if token == answer else token)
        return tag("span.candidate", before, shown, f" {_percent(value)}")

    best, *others = map(one, tokens, probabilities)
    more = None if answer in tokens else one(answer, of_answer, "… ")
    small = tag("small", others, more)
    # 30 %: text stays legible on it.
    shade = f"background: color-mix(in srgb, var(--c0) {30 * of_answer:.0f}%, transparent)"
    return tag("div.predicted", tag("strong", best), small, style=shade)


def _percent(value: float) -> str:
    if value < 0.0001:
        return "< 0.01%"
    return f"{100 * value:.2g}%" if value < 0.0995 else f"{100 * value:.0f}%"
