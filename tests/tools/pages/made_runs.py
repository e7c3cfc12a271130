"""Folders of runs with made-up numbers, and HTML read back from their reports."""

import json
import math
import pathlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from bert_jax.config import store
from bert_jax.config.run import RunConfig
from bert_jax.config.task import default_config

# In every place where a corpus, a user or a file system can put a text.
HOSTILE = "<img src=x onerror=alert(1)>\"'&</script><script>alert(2)</script>"
STATISTICS = {
    "rows": 1000,
    "tokens": 60_000,
    "mean_length": 60.0,
    "lengths": {"width": 8, "rows": [0, 0, 10, 20, 30, 40, 100, 800]},
    "mean_a_length": 30.0,
    "mean_b_length": 27.0,
    "padding_share": 0.0625,
    "random_next_share": 0.5,
    "truncated_rows_share": 0.25,
    "truncated_tokens": 900,
    "unknown_token_share": 0.001,
    "unigram_entropy": 6.25,
    "most_frequent_token": {"id": 7, "piece": HOSTILE, "share": 0.0625},
}
VOID = {"br", "hr", "input", "meta"}


def write_pretraining(
    folder: pathlib.Path, steps: int = 600, every: int = 20, rate: float = 5e-4
) -> list[dict[str, Any]]:
    """Writes a run on a corpus, which resumed and skipped a step; returns its rows."""
    config = default_config("pretraining").replace(
        {
            "phases": ((64, 0.9), (128, 0.1)),
            "optimizer.learning_rate": rate,
            "data.source": f"text:{HOSTILE}",
        }
    )
    rows = []
    for step in range(every, steps + 1, every):
        speed = {"seconds": step / 4 + 2.0, "tokens": step * 2048, "tokens_per_second": 8192.0}
        loss = 6 + 3 * math.exp(-step / steps * 4 * rate / 5e-4)
        values = {"masked_lm_loss": loss, "next_sentence_loss": 0.5, "masked_lm_accuracy": 0.1}
        more = {"gradient_norm": 1 + 1 / step, "learning_rate": rate * (1 - step / steps)}
        row = {"step": step, "split": "train", "loss": loss + 0.5, **values, **more}
        rows.append(row | {"speed": speed | {"waiting_for_data": 0.01, "mfu": 0.4}})
        if step % (5 * every) == 0:
            row = {"step": step, "split": "validation", "loss": loss + 0.75, **values}
            rows.append(row | {"masked_lm_loss": loss + 0.25, "speed": speed})
    statistics = {"statistics": STATISTICS, "files": []}
    split = {"sequence_lengths": {"64": statistics, "128": statistics}}
    manifest = {
        "version": 1,
        "corpus": {
            "bytes": 2_000_000,
            "documents": 71,
            "sentences": 8029,
            "tokens": 492_813,
            "unknown_token_share": 0.001,
            "duplicate_documents": 3,
            "text": {"invalid_utf8": 12, HOSTILE: 4},
        },
        "source": {"files": [{"name": f"{HOSTILE}.txt", "sha256": "ab" * 32}]},
        "tokenizer": {"name": "vocab.txt", "sha256": "cd" * 32},
        "splits": {"train": split, "validation": split},
    }
    verdict = [f"  MLM loss              6.100 nats   {HOSTILE}    6.250"]
    verdict.append("health: good, it has learned from context.")
    found = {"step": steps, "verdict": verdict, "layer_weights": [], "examples": 100}
    _write(folder, config, rows, found)
    place = _PLACE | {"origins": {"data.source": "given"}}
    starts = [{"step": step, "steps": steps, **place} for step in (0, steps // 3)]
    (folder / "starts.jsonl").write_text("".join(json.dumps(s) + "\n" for s in starts))
    seconds = {"training": 60.0, "data": 10.0, "compilation": 5.0}
    seconds |= {"evaluation": 3.0, "checkpoints": 2.0, "other": 20.0}
    line = {"start": 0, "step": steps, "time": 1e9, "seconds": seconds}
    (folder / "goodput.jsonl").write_text(json.dumps(line) + "\n")
    parameters = [[HOSTILE, "2x600", "float32", "('fsdp',)", 1200], ["b", "7", "float32", "()", 7]]
    (folder / "parameters.json").write_text(json.dumps(parameters))
    (folder / f"nonfinite-step-{steps // 2}-process-0.npz").write_bytes(b"")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / f"{steps}.sha256.json").write_text("{}")
    (folder / "data").mkdir()
    (folder / "data" / "manifest.json").write_text(json.dumps(manifest))
    return rows


def write_finetuning(folder: pathlib.Path, seeds: int = 3) -> None:
    """Writes a classification with several seeds."""
    config = default_config("classification").replace(
        {"seeds": seeds, "published_score": 0.85, "published_in": f"Table 5 {HOSTILE}"}
    )
    for seed in range(seeds):
        accuracy = 0.8 + seed / 100
        rows = [
            {"step": step, "split": split, "loss": loss, **values, "speed": _speed(step)}
            for step, split, loss, values in (
                (10, "train", 0.7, {"task_loss": 0.7}),
                (10, "validation", 0.6, {"accuracy": 0.7}),
                (20, "train", 0.5, {"task_loss": 0.5}),
                (20, "validation", 0.5, {"accuracy": accuracy}),
            )
        ]
        spans = [[0, 4, "both", "PER"], [8, 13, "gold", "LOC"], [8, 20, "predicted", "ORG"]]
        texts = [
            {"name": "", "text": HOSTILE, "spans": []},
            {"name": "second text", "text": "Anna of Green Gables", "spans": spans},
        ]
        error = {"id": HOSTILE, "gold": "b", "predicted": HOSTILE, "probability": 0.9}
        review = {
            "step": 20,
            "verdict": ["  accuracy 0.8000   the same", "health: good, it has learned."],
            "layer_weights": [0.25, 0.75],
            "fitted": {"temperature": 1.25, "thresholds": {HOSTILE: 0.3, "b": 0.7}},
            "examples": 10,
            "classes": {HOSTILE: [4, 5, 6], "b": [3, 5, 4]},
            "confusion": [[4, 2], [1, 3]],
            "calibration": [[0.62, 0.5, 4], [0.93, 5 / 6, 6]],
            "wrong": 3,
            "errors": [error | {"texts": texts}],
        }
        results = {"eval": {"accuracy": accuracy, "loss": 0.5}, "baseline": 0.6}
        one = config.replace({"seed": seed, "seeds": 1})
        _write(folder / f"seed-{seed}", one, rows, review, results)
        start = {"step": 0, "steps": 20, **_PLACE}
        (folder / f"seed-{seed}" / "starts.jsonl").write_text(json.dumps(start) + "\n")
    mean = {"eval": {"accuracy": 0.81, "loss": 0.5}}
    _write(folder, config, [], {}, mean)


_PLACE = {
    "devices": f"1 x {HOSTILE}",
    "versions": {"python": "3.11.7", "jax": "0.10.2"},
}


def _speed(step: int) -> dict[str, float]:
    return {"seconds": step / 2, "tokens": step * 512, "tokens_per_second": 1024.0}


def _write(
    folder: pathlib.Path,
    config: RunConfig,
    rows: list[dict[str, Any]],
    evaluation: dict[str, Any],
    results: dict[str, Any] | None = None,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    store.save(config, str(folder))
    if rows:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "metrics.jsonl").write_text(text)
    for name, value in (("evaluation", evaluation), ("results", results)):
        if value:
            (folder / f"{name}.json").write_text(json.dumps(value))


# --------------------------------------------------------------------------------- of their reports


class Element:
    """An element of a page that was read."""

    def __init__(self, name: str, attributes: dict[str, str]):
        self.name, self.attributes = name, attributes
        self.children: list[Element] = []
        self.texts: list[str] = []  # of it and of all below it, in order

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def find(self, name: str, **attributes: str) -> Iterator["Element"]:
        """Yields the elements below it, in order; an attribute must have a word of that value."""
        for child in self.children:
            words = {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items()}
            if child.name == name and all(
                v in child.attributes.get(k, "").split(" ") for k, v in words.items()
            ):
                yield child
            yield from child.find(name, **attributes)


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag):
        assert self._open[-1].name == tag, f"</{tag}> ends <{self._open[-1].name}>"
        self._open.pop()

    def handle_data(self, data):
        for element in self._open:
            element.texts.append(data)


def read_page(page: str) -> Element:
    """Returns the root of a page; every element that begins must end, in order."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader._open == [reader.root], f"<{reader._open[-1].name}> has no end"
    return reader.root


def figure_of(page: Element, title: str) -> Element:
    """Returns the figure of a title."""
    (found,) = (
        figure
        for figure in page.find("figure")
        if [c.text for c in figure.find("figcaption")] == [title]
    )
    return found


def points_of(figure: Element, axis: str) -> list[list[tuple[float, float]]]:
    """Returns the values of each line of a plot, from the places in its picture and the ticks."""
    (svg,) = figure.find("svg", class_="plot")
    (group,) = svg.find("g", data_axis=axis)
    (unit,) = (text.text for text in group.find("text", class_="unit"))
    seconds = {"hours": 3600, "minutes": 60}.get(unit, 1)
    across = [(float(t.attributes["x"]), t.text) for t in group.find("text") if t.text != unit]
    up = [(float(t.attributes["y"]) - 4, t.text) for t in svg.children if _is_tick(t)]
    return [
        [
            (seconds * _value_at(float(x), across), _value_at(float(y), up))
            for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path.attributes["d"])
        ]
        for path in group.find("path", class_="line")
    ]


def _is_tick(element: Element) -> bool:
    return element.name == "text" and "class" not in element.attributes


def _value_at(place: float, ticks: list[tuple[float, str]]) -> float:
    """Returns the value at a place of a linear axis, from its first and its last label."""
    sizes = {"%": 0.01, "k": 1e3, "M": 1e6}
    (start, low), (stop, high) = (
        (at, float(label.rstrip("%kM")) * sizes.get(label[-1], 1))
        for at, label in (ticks[0], ticks[-1])
    )
    return low + (place - start) / (stop - start) * (high - low)


def table_of(figure: Element) -> list[list[str]]:
    """Returns the cells of the table behind a plot, its header first."""
    table = next(figure.find("table"))
    rows = [row for row in table.find("tr")]
    return [[cell.text for cell in row.children] for row in rows]
