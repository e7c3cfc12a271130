"""The text and the rows that a run trained on, from manifest.json."""

from collections.abc import Mapping
from typing import Any

from bert_jax.tools.pages.bars import bar_chart, histogram
from bert_jax.tools.pages.document import columns, note, tiles
from bert_jax.tools.pages.markup import Content
from bert_jax.tools.pages.tables import table

_COUNTS = {
    "bytes": "bytes of text",
    "documents": "documents",
    "sentences": "sentences",
    "tokens": "tokens",
}
_TRAINING = "training"
_REPEATED = {
    "duplicate_documents": "duplicate documents",
    "duplicate_sentences": "duplicate sentences",
    "empty_documents": "empty documents",
    "empty_sentences": "empty sentences",
}


def corpus(manifest: Mapping[str, Any]) -> list[Content]:
    """Returns the section of a corpus."""
    counts, parts = manifest["corpus"], _parts(manifest)
    shown = {name: f"{counts[key]:,}" for key, name in _COUNTS.items() if key in counts}
    if "unknown_token_share" in counts:
        shown["of them unknown"] = f"{counts['unknown_token_share']:.3%}"
    plots: list[Content] = [
        bar_chart(
            "Fill rate of the rows",
            {name: 1 - s["padding_share"] for name, s in parts.items()},
            percent=True,
            note="The share of positions that are not padding.",
        ),
        bar_chart(
            "Mean length of a row (tokens)",
            {name: round(s["mean_length"], 2) for name, s in parts.items()},
        ),
        bar_chart(
            "Truncated examples",
            {name: s["truncated_rows_share"] for name, s in parts.items()},
            percent=True,
            note="The share of examples that lost tokens.",
        ),
    ]
    for name, statistics in parts.items():
        lengths = statistics.get("lengths")
        if lengths and name.startswith(_TRAINING):
            title = f"Rows by length (tokens), {name}"
            plots.append(histogram(title, lengths["rows"], lengths["width"]))
    unknown = {name: s["unknown_token_share"] for name, s in parts.items()}
    if high := max(unknown.values()):
        plots.append(bar_chart("Unknown tokens", unknown, percent=True, high=high))
    repeated = {name: counts[key] for key, name in _REPEATED.items() if counts.get(key)}
    if repeated:
        plots.append(bar_chart("Repeated and empty text", repeated))
    if bad := _numbers(counts.get("text", {})):
        plots.append(bar_chart("Malformed text, by kind", bad))
    for name, statistics in parts.items():
        if units := statistics.get("mask_units", {}).get("phrases_by_class"):
            plots.append(bar_chart(f"Phrases by class, {name}", units))
    return [tiles(shown), columns(plots), _rows(parts)]


def _parts(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns "train, 128 tokens" -> statistics of the rows."""
    return {
        f"{_TRAINING if split == 'train' else 'held-out'}, {length} tokens": part["statistics"]
        for split, content in sorted(manifest["splits"].items())
        for length, part in sorted(content["sequence_lengths"].items(), key=lambda p: int(p[0]))
    }


def _numbers(counts: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Returns "kind: language" -> count of nested counts, the positive ones."""
    found: dict[str, float] = {}
    for name, value in counts.items():
        if isinstance(value, Mapping):
            found |= _numbers(value, f"{prefix}{name}: ")
        elif isinstance(value, int | float) and value > 0:
            found[prefix + name.replace("_", " ")] = value
    return found


def _rows(parts: Mapping[str, Mapping[str, Any]]) -> Content:
    header = ["rows", "number", "tokens", "length", "A", "B", "random next", "unigram entropy"]
    header += ["most frequent", "its share"]
    keys = ["rows", "tokens", "mean_length", "mean_a_length", "mean_b_length"]
    keys += ["random_next_share", "unigram_entropy"]
    rows = []
    for name, s in parts.items():
        frequent = s["most_frequent_token"]
        rows.append([name, *(s.get(key) for key in keys), frequent["piece"], frequent["share"]])
    explained = "Lengths are means in tokens; the entropy is in nats."
    return [table(header, rows, caption="Rows", copy=True), note(explained)]
