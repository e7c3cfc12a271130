"""Small models with random parameters for each task, and inputs for them."""

import dataclasses
import json
from typing import Any

import pytest

from bert_jax.config.run import RunConfig
from bert_jax.config.store import parse
from bert_jax.text.gpt_vocabulary import pack
from configs import elmo, gpt
from tests import tiny
from tests.inference.conftest import make_texts

TEXTS = make_texts(9)
QUESTION = {"question": "is una", "context": "the list is unaffable , naive . " * 3}
CHOICE = {"context": "the list", "start": "is", "endings": ["naive .", "unaffable", "returned"]}
TEXT_INPUTS = [{"text_a": text} for text in TEXTS]
LONG = "the list is unaffable , naive . returned list " * 5
PAIRS = [{"text_a": a, "text_b": b} for a, b in zip(TEXTS, TEXTS[1:], strict=False)]
WORDS = [{"text": text} for text in TEXTS]
# Model -> arguments of `make_run`, ending of the file of the same inputs for `predict`, inputs.
MODELS: dict[str, tuple[tuple[str, dict[str, Any]], str, list[dict[str, Any]]]] = {
    "masks": (
        ("base", {"phases": ((40, 1.0),)}),
        "jsonl",
        [{"text_a": "the [MASK] is [MASK]"}, {"text_a": "[MASK] is", "text_b": "the list ."}],
    ),
    "unpaired": (("fast:tiny", {}), "jsonl", [{"text_a": "the [MASK] is [MASK]"}]),
    "classes": (("classification", {}), "txt", TEXT_INPUTS),
    "pairs": (("classification", {"task__text_b": "text_b"}), "jsonl", PAIRS),
    "windows": (
        ("classification", {"task__long_texts": "windows", "task__stride": 9}),
        "txt",
        [*TEXT_INPUTS, {"text_a": LONG}],
    ),
    "tags": (("tagging", {}), "txt", WORDS),
    "questions": (("span", {}), "json", [QUESTION, {**QUESTION, "question": "naive"}]),
    "endings": (("multiple_choice", {}), "jsonl", [CHOICE, {**CHOICE, "context": "naive"}]),
    "gpt": (("", {}), "jsonl", [{"text_a": "The list is naive."}, {"text_a": "An unseen"}]),
    "elmo": (("", {}), "jsonl", [{"text_a": "The list is naive."}, {"text_a": "An un"}]),
}

_LETTERS = "abcdefghijklmnopqrstuvwxyz,."
_PIECES = ["<unk>", *_LETTERS, *(f"{c}</w>" for c in _LETTERS), "th", "the</w>", "is</w>"]
_MERGES = "#version: 0.2\nt h\nth e</w>\ni s</w>\n"
_ELMO_WORDS = ("<S>", "</S>", "<UNK>", "the", "list", "is", "naive", ".")


def write(path, inputs: list[dict[str, Any]]) -> None:
    """Writes inputs in the form of a file of their task."""
    if path.suffix == ".txt":
        path.write_text("".join(f"{text}\n" for item in inputs for text in item.values()))
    elif path.suffix == ".json":
        paragraphs = [
            {"context": item["context"], "qas": [{"id": str(i), "question": item["question"]}]}
            for i, item in enumerate(inputs)
        ]
        path.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    else:
        names = {"context": "sent1", "start": "sent2"}
        rows = [{names.get(k, k): v for k, v in item.items()} for item in inputs]
        for row in rows:
            row |= {f"ending{i}": text for i, text in enumerate(row.pop("endings", []))}
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_model(make_run, name: str) -> tuple[RunConfig, str]:
    """Returns the configuration and the workdir of a row of MODELS."""
    (config_name, changes), _, _ = MODELS[name]
    if name == "gpt":
        return make_gpt(make_run)
    if name == "elmo":
        words = "".join(f"{word}\n" for word in _ELMO_WORDS).encode()
        return make_run(_elmo_config(), (), ("vocab.txt", words))
    return make_run(config_name, **changes)


def make_gpt(make_run, positions: int = 48) -> tuple[RunConfig, str]:
    """Returns the configuration and the workdir of a language model."""
    for package in ("ftfy", "spacy"):
        pytest.importorskip(package, reason="needs the extra gpt")
    sizes = tiny.SIZES | {"vocab_size": len(_PIECES) + 3, "max_position_embeddings": positions}
    pieces = json.dumps({piece: i for i, piece in enumerate(_PIECES)}).encode()
    vocabulary = "vocab.gpt", pack(pieces, _MERGES.encode(), "vocab.gpt")
    return make_run(_small(parse(gpt.get_config("tiny")), sizes), (), vocabulary)


def _elmo_config() -> RunConfig:
    sizes = {"vocab_size": len(_ELMO_WORDS), "hidden_size": 8, "cell_size": 6, "num_layers": 2}
    sizes |= {"filters": ((1, 3), (2, 4)), "max_position_embeddings": 48}
    # There are fewer words than `sampled` would draw.
    return _small(parse(elmo.get_config("small")), sizes).replace({"task.softmax": "full"})


def _small(config: RunConfig, sizes: dict[str, Any]) -> RunConfig:
    """Returns the configuration of a pre-training with a small encoder."""
    values = {"prng_impl": tiny.PRNG_IMPL} | tiny.rows_of(config, sizes["max_position_embeddings"])
    return config.replace(values, model=dataclasses.replace(config.model, **sizes))
