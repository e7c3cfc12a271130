"""The page of a model's attention: all heads, one head, their statistics, predictions of layers.

The page draws from the weights in it. A weight is a number of thousandths as two digits of base 64,
the higher one first, of all layers, heads, tokens that attend and tokens attended to, in this order.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.pages import tables
from bert_jax.pages.document import Section, document, note
from bert_jax.pages.markup import Content, Markup, tag
from bert_jax.scores.attention import STATISTICS, strongest_heads

DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# Of a page, which has two bytes for each.
MOST_WEIGHTS = 3_000_000
_STRONGEST = 4
_CONTEXT = 3  # words around a mask
# What a head is known by first: by these a page finds the head that it begins with.
_TELLING = ("previous", "next")


@dataclass(frozen=True)
class Origin:
    """Where the numbers come from.

    Attributes:
      name: of the workdir.
      model: in a few words.
      sample: what statistics are computed from besides the text; "" if nothing is.
      no_lens: why the layers predict no words.
    """

    name: str
    model: str
    sample: str = ""
    no_lens: str = ""


def check_size(layers: int, heads: int, tokens: int) -> None:
    """Raises ValueError if a page would be too large."""
    most = int((MOST_WEIGHTS / (layers * heads)) ** 0.5)
    if tokens > most:
        raise ValueError(
            f"The text has {tokens} tokens, and a page has room for {most} of a model of {layers}"
            f" layers with {heads} heads: shorten the text, or write the arrays, --output=FILE.npz."
        )


def attention_page(origin: Origin, arrays: Mapping[str, np.ndarray]) -> str:
    """Returns the page.

    Args:
      origin: of the arrays.
      arrays: of a text, of a sample or of both, as docs/attention.md lists them.
    """
    samples = {
        name: arrays[f"{name}_statistics"]
        for name in ("text", "sample")
        if f"{name}_statistics" in arrays
    }
    _, layers, heads = next(iter(samples.values())).shape
    if has_text := "attention" in arrays:
        check_size(layers, heads, len(arrays["tokens"]))
    sections = [Section("Heads", _heads(arrays, samples)), _strongest(origin, samples)]
    if has_text:
        sections.append(Section("Predictions of the layers", _lens(origin, arrays)))
    tiles = {"layers": layers, "heads in each": heads}
    if has_text:
        tiles |= {"tokens": len(arrays["tokens"])}
    lead = [
        tag("p.quiet", origin.model),
        tag("dl.tiles", [tag("div", tag("dt", k), tag("dd", v)) for k, v in tiles.items()]),
    ]
    return document(f"Attention of {origin.name}", sections, lead=lead, parts=("attention",))


def encode_weights(weights: np.ndarray) -> str:
    """Returns weights from 0 to 1 as the page holds them, rounded to thousandths."""
    numbers = np.rint(np.clip(weights, 0, 1) * 1000).astype(np.uint16).ravel()
    digits = np.frombuffer(DIGITS, np.uint8)
    return np.stack([digits[numbers >> 6], digits[numbers & 63]], axis=1).tobytes().decode()


# ------------------------------------------------------------------ the heads


def _heads(arrays: Mapping[str, np.ndarray], samples: Mapping[str, np.ndarray]) -> Content:
    has_text = "attention" in arrays
    data = Markup(json.dumps(_data(arrays, samples)).replace("<", "\\u003c"))
    shown = {"attention": "Attention of the text"} if has_text else {}
    shown |= {name: statistic.title for name, statistic in STATISTICS.items()}
    sides = [
        tag(
            "div.all-heads",
            tag(
                "p.choices",
                _select("show", "Each cell is", shown),
                _select("of", "over", {name: f"the {name}" for name in samples}),
            ),
            tag("div", id="grid"),
            tag("p.note", id="ramp"),
        ),
        _one_head(arrays) if has_text else None,
    ]
    return [
        tag("noscript", note("The heads are drawn by a script, which is turned off here.")),
        tag("div.attention", sides, id="attention"),
        tag("script", data, type="application/json", id="attention-data"),
    ]


def _one_head(arrays: Mapping[str, np.ndarray]) -> Markup:
    ways = {"all": "all"}
    if arrays["segments"].any():
        ways |= {"01": "A → B", "10": "B → A", "00": "A → A", "11": "B → B"}
    return tag(
        "div.one-head",
        tag("h3", id="head-title"),
        tag("p.note", id="head-values"),
        tag(
            "div.choices",
            _switch("view", "", {"lines": "Lines", "matrix": "Matrix"}),
            _switch("unit", "", {"words": "Words", "tokens": "Sub-words"}),
            _switch("way", "", ways) if len(ways) > 1 else None,
            _check("special", "[CLS], [SEP]", True),
            _check("scale", "Scale to the strongest", False),
        ),
        tag("p.readout", id="readout", aria_live="polite"),
        tag("div", id="drawing"),
    )


def _select(name: str, text: str, options: Mapping[str, str]) -> Markup:
    items = [tag("option", shown, value=value) for value, shown in options.items()]
    label = tag("label", text, " ", tag("select", items, name=name))
    return label if len(options) > 1 else tag("span", label, hidden=True)


def _switch(name: str, title: str, options: Mapping[str, str]) -> Markup:
    labels = [
        tag(
            "label",
            tag("input", type="radio", name=name, value=value, checked=number == 0),
            shown,
        )
        for number, (value, shown) in enumerate(options.items())
    ]
    return tag("fieldset.switch", tag("legend", title or name.capitalize()), labels)


def _check(name: str, text: str, is_on: bool) -> Markup:
    return tag("label.check", tag("input", type="checkbox", name=name, checked=is_on), " ", text)


def _data(
    arrays: Mapping[str, np.ndarray], samples: Mapping[str, np.ndarray]
) -> dict[str, object]:
    _, layers, heads = next(iter(samples.values())).shape
    data: dict[str, object] = {
        "layers": layers,
        "heads": heads,
        "start": _first_head(next(iter(samples.values()))),
        "statistics": [
            {"key": name, "title": statistic.title, "unit": statistic.unit}
            for name, statistic in STATISTICS.items()
        ],
        "values": {name: _rounded(values) for name, values in samples.items()},
    }
    if "attention" in arrays:
        spans = arrays["word_spans"]
        data |= {
            "tokens": arrays["tokens"].tolist(),
            "words": arrays["words"].tolist(),
            "spans": spans.tolist(),
            "segments": arrays["segments"].tolist(),
            "special": arrays["is_special"].astype(int).tolist(),
            "weights": encode_weights(arrays["attention"]),
        }
    return data


def _rounded(values: np.ndarray) -> list[list[float]]:
    """float[statistics, layers, heads] -> lists of [statistics][layers * heads]."""
    return np.round(values.reshape(len(values), -1).astype(np.float64), 4).tolist()


def _first_head(values: np.ndarray) -> list[int]:
    telling = values[[list(STATISTICS).index(name) for name in _TELLING]].max(axis=0)
    ((layer, head, _),) = strongest_heads(telling, 1)
    return [layer, head]


# ------------------------------------------------------------------ their statistics


def _strongest(origin: Origin, samples: Mapping[str, np.ndarray]) -> Section:
    name, values = list(samples.items())[-1]
    where = f"Over {origin.sample}." if name == "sample" else "Over the tokens of the text."
    rows = [
        [statistic.title, f"{statistic.looks_at}{statistic.unit and f' ({statistic.unit})'}"]
        + [_link(*head) for head in strongest_heads(of_heads, _STRONGEST)]
        for statistic, of_heads in zip(STATISTICS.values(), values, strict=True)
    ]
    count = len(rows[0]) - 2
    header = ["Statistic", "High: looks at", "Strongest", *[""] * (count - 1)]
    body = [
        note(
            where,
            " Means over the tokens that attend, all but [CLS] and [SEP]. A link is the layer and"
            " the head, from 1, and the value.",
        ),
        tables.table(header, rows, caption="The strongest heads", text_columns=2 + count),
        [_all_values(name, of_sample) for name, of_sample in samples.items()],
    ]
    return Section("Heads by what they look at", body)


def _link(layer: int, head: int, value: float) -> Markup:
    text = f"{layer + 1}.{head + 1}"
    return tag(
        "a",
        tag("b", text),
        f" {value:.3g}",
        href="#attention",
        data_head=f"{layer},{head}",
        aria_label=f"Layer {layer + 1}, head {head + 1}: {value:.3g}",
    )


def _all_values(name: str, values: np.ndarray) -> Markup:
    _, layers, heads = values.shape
    rows = [
        [layer + 1, head + 1, *(f"{value:.4f}" for value in values[:, layer, head].tolist())]
        for layer in range(layers)
        for head in range(heads)
    ]
    header = ["layer", "head", *STATISTICS]
    caption = f"All statistics of the {name}"
    return tables.opened(
        caption, tables.table(header, rows, caption=caption, text_columns=0, copy=True)
    )


# ------------------------------------------------------------------ predictions of the layers


def _lens(origin: Origin, arrays: Mapping[str, np.ndarray]) -> Content:
    if origin.no_lens:
        return note(origin.no_lens)
    if "lens_tokens" not in arrays:
        return note("The text has no [MASK]: write one in the place of a word to see what is predicted.")
    answers = arrays["lens_answers"].tolist()
    is_mask = all(arrays["tokens"][i] == "[MASK]" for i in arrays["lens_positions"].tolist())
    header = ["After", *(_place(arrays, i) for i in arrays["lens_positions"].tolist())]
    layers = len(arrays["lens_tokens"])
    names = ["Embeddings", *(f"Layer {i}" for i in range(1, layers))]
    rows = []
    for layer in reversed(range(layers)):
        cells = [
            _candidates(
                arrays["lens_tokens"][layer, i].tolist(),
                arrays["lens_probabilities"][layer, i].tolist(),
                answer,
                float(arrays["lens_answer_probabilities"][layer, i]),
            )
            for i, answer in enumerate(answers)
        ]
        rows.append([names[layer], *cells])
    what = "the answer of the last layer" if is_mask else "the next token"
    return [
        note(
            "The head that predicts words, applied to the hidden states after each layer; the last"
            f" layer's row is what the model predicts. Underlined, and the shade of a cell: {what}."
        ),
        tag(
            "div.lens",
            tables.table(
                header, rows, caption="Predictions of the layers", text_columns=len(header)
            ),
        ),
    ]


def _place(arrays: Mapping[str, np.ndarray], position: int) -> Markup:
    """The words around a mask, or up to a token whose successor is predicted."""
    words = arrays["words"].tolist()
    at = int(np.searchsorted(arrays["word_spans"][:, 1], position, side="right"))
    before = " ".join(words[max(0, at - _CONTEXT) : at])
    if arrays["tokens"][position] == "[MASK]":
        after = " ".join(words[at + 1 : at + 1 + _CONTEXT])
        return tag("span.place", before, " ", tag("b", "[MASK]"), " ", after)
    following = arrays["tokens"][position + 1] if position + 1 < len(arrays["tokens"]) else ""
    return tag("span.place", f"{before} {words[at]} ", tag("b", str(following)))


def _candidates(
    tokens: Sequence[str], probabilities: Sequence[float], answer: str, of_answer: float
) -> Markup:
    def one(token: str, value: float) -> Content:
        shown = tag("u", token) if token == answer else token
        return tag("span.candidate", shown, f" {_percent(value)}")

    best, *others = map(one, tokens, probabilities)
    more = [] if answer in tokens else [tag("span.candidate", "… ", one(answer, of_answer))]
    small = tag("small", [[other, " "] for other in (*others, *more)])
    # 30 %: text stays legible on it.
    shade = f"background: color-mix(in srgb, var(--c0) {30 * of_answer:.0f}%, transparent)"
    return tag("div.candidates", tag("strong", best), " ", small, style=shade)


def _percent(value: float) -> str:
    return f"{100 * value:.2g}%" if value < 0.0995 else f"{100 * value:.0f}%"
