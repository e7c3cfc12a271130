"""The page of a model's attention: all heads, one head, their statistics, predictions of layers.

The page draws from the weights in it, ordered by layer, head, attending token and attended token:
thousandths as 16-bit integers, low byte first, in base64.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.scores.attention import STATISTICS, strongest_heads
from bert_jax.tools.pages import tables
from bert_jax.tools.pages.document import Section, document, note, switch
from bert_jax.tools.pages.lens import lens
from bert_jax.tools.pages.markup import Content, Markup, tag

MAX_WEIGHTS = 3_000_000  # of a page: 8 MB
PARTS = ("attention.css", "attention_views.js", "attention.js")
_STRONGEST = 3
# Statistics by which a page chooses the head that it shows first.
_TELLING = ("previous", "next")


@dataclass(frozen=True)
class Origin:
    """Where the numbers come from.

    Attributes:
      model: description of the model.
      texts: the text, or the two of a pair; () if there is none.
      sample: source of statistics besides the text; "" if there is none.
      no_lens: why the layers predict no words.
    """

    name: str
    model: str
    texts: tuple[str, ...] = ()
    sample: str = ""
    no_lens: str = ""


def check_size(layers: int, heads: int, tokens: int) -> None:
    """Raises UserError if a page would be too large."""
    max_tokens = int((MAX_WEIGHTS / (layers * heads)) ** 0.5)
    if tokens > max_tokens:
        raise UserError(
            f"The text has {tokens} tokens, and a page has room for {max_tokens} of a model of"
            f" {layers} layers with {heads} heads: shorten the text, or write the arrays,"
            " --output=FILE.npz."
        )


def attention_page(origin: Origin, arrays: Mapping[str, np.ndarray]) -> str:
    """Returns the page.

    Args:
      arrays: arrays of a text, a sample or both, as docs/attention.md lists them.
    """
    samples = {
        name: arrays[f"{name}_statistics"]
        for name in ("text", "sample")
        if f"{name}_statistics" in arrays
    }
    sections = [Section("Heads", _heads(origin, arrays, samples))]
    if "attention" in arrays:
        sections.append(Section("Predictions of the layers", lens(arrays, origin.no_lens)))
    all_values = [_all_values(name, values) for name, values in samples.items()]
    about = "Means over the tokens that attend, all but [CLS] and [SEP]."
    meanings = [
        tag("div", tag("dt", name), tag("dd", f"{statistic.title}: {statistic.meaning}"))
        for name, statistic in STATISTICS.items()
    ]
    legend = [note(about), tag("dl.meanings", meanings)]
    sections.append(Section("Statistics of all heads", [legend, all_values]))
    names = ("A", "B") if len(origin.texts) > 1 else ("",)
    lead = [
        tag("p.quiet", origin.model),
        [
            tag("p.text", tag("span.quiet", f"{name} ") if name else None, text)
            for name, text in zip(names, origin.texts, strict=False)
        ],
    ]
    return document(f"Attention of {origin.name}", sections, lead=lead, parts=PARTS)


def encode_weights(weights: np.ndarray) -> str:
    """Returns weights from 0 to 1 as the page holds them, rounded to thousandths."""
    thousandths = np.rint(np.clip(weights, 0, 1) * 1000).astype("<u2")
    return base64.b64encode(thousandths.tobytes()).decode()


# ------------------------------------------------------------------ the heads


def _heads(
    origin: Origin, arrays: Mapping[str, np.ndarray], samples: Mapping[str, np.ndarray]
) -> Content:
    data = Markup(json.dumps(_data(arrays, samples)).replace("<", "\\u003c"))
    shown = {"attention": "Attention of the text"} if "attention" in arrays else {}
    shown |= {name: statistic.title for name, statistic in STATISTICS.items()}
    all_heads = tag(
        "div.all-heads",
        tag(
            "p.choices",
            _select("show", "Cells", shown),
            _select("of", "Statistics of", {name: f"the {name}" for name in samples}),
        ),
        tag("div", id="grid"),
        tag("p.note", id="ramp"),
        _strongest(origin, samples),
    )
    one_head = _one_head(bool(arrays["segments"].any())) if "attention" in arrays else None
    return [
        tag("noscript", note("The heads are drawn by a script, which is turned off here.")),
        tag("div.attention", all_heads, one_head, id="attention"),
        tag("script", data, type="application/json", id="attention-data"),
    ]


def _one_head(is_pair: bool) -> Markup:
    ways = {"all": "All", "01": "A → B", "10": "B → A", "00": "A → A", "11": "B → B"}
    return tag(
        "div.one-head",
        tag("h3", id="head"),
        tag("p.note", id="head-values"),
        tag(
            "div.choices",
            switch("view", "View", {"lines": "Lines", "matrix": "Matrix"}),
            switch("unit", "Unit", {"words": "Words", "tokens": "Sub-words"}),
            switch("way", "Way", ways) if is_pair else None,
            _check("special", "Special tokens", True),
            _check("scale", "Scale to the strongest", False),
        ),
        tag("p.readout", id="readout", aria_live="polite"),
        tag("div", id="drawing"),
    )


def _select(name: str, text: str, options: Mapping[str, str]) -> Markup:
    items = [tag("option", shown, value=value) for value, shown in options.items()]
    label = tag("label", text, " ", tag("select", items, name=name))
    return label if len(options) > 1 else tag("span", label, hidden=True)


def _check(name: str, text: str, is_on: bool) -> Markup:
    return tag("label.check", tag("input", type="checkbox", name=name, checked=is_on), " ", text)


def _data(arrays: Mapping[str, np.ndarray], samples: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Returns what the script draws; the values of a statistic are a list [layers * heads]."""
    values = next(iter(samples.values()))
    telling = values[[list(STATISTICS).index(name) for name in _TELLING]].max(axis=0)
    data: dict[str, object] = {
        "layers": values.shape[1],
        "heads": values.shape[2],
        "start": strongest_heads(telling, 1)[0][:2],
        "units": {name: statistic.unit for name, statistic in STATISTICS.items()},
        "values": {
            sample: {
                name: np.round(of_heads.astype(np.float64), 4).ravel().tolist()
                for name, of_heads in zip(STATISTICS, found, strict=True)
            }
            for sample, found in samples.items()
        },
    }
    if "attention" in arrays:
        data |= {
            "tokens": arrays["tokens"].tolist(),
            "words": arrays["words"].tolist(),
            "spans": arrays["word_spans"].tolist(),
            "segments": arrays["segments"].tolist(),
            "special": arrays["is_special"].astype(int).tolist(),
            "weights": encode_weights(arrays["attention"]),
        }
    return data


# ------------------------------------------------------------------ their statistics


def _strongest(origin: Origin, samples: Mapping[str, np.ndarray]) -> Content:
    name, values = list(samples.items())[-1]
    where = origin.sample if name == "sample" else "the text"
    rows = []
    for statistic, of_heads in zip(STATISTICS.values(), values, strict=True):
        links = [_link(*head) for head in strongest_heads(of_heads, _STRONGEST) if head[2] >= 0.005]
        rows.append([statistic.title, tag("span.places", links or "none")])
    title = "Heads by what they look at"
    table = tables.table(["Highest", "layer.head value"], rows, caption=title, text_columns=2)
    return [tag("h3", title), tag("div.strongest", table), note("Over ", where, ".")]


def _link(layer: int, head: int, value: float) -> Markup:
    shown = f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return tag(
        "a",
        tag("b", f"{layer + 1}.{head + 1}"),
        f" {shown}",
        href="#head",
        data_head=f"{layer},{head}",
        aria_label=f"Layer {layer + 1}, head {head + 1}: {shown}",
    )


def _all_values(name: str, values: np.ndarray) -> Markup:
    rows = [
        [layer + 1, head + 1, *(f"{value:.4f}" for value in values[:, layer, head].tolist())]
        for layer, head in np.ndindex(values.shape[1:])
    ]
    header, caption = ["layer", "head", *STATISTICS], f"All statistics of the {name}"
    table = tables.table(header, rows, caption=caption, text_columns=0, copy=True)
    return tables.opened(caption, table)
