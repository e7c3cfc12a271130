"""Small files that fit together, and functions that look at changed ones."""

import dataclasses
import importlib
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from bert_jax.config.run import RunConfig
from bert_jax.config.store import parse
from bert_jax.data import init_from
from bert_jax.tools.doctor.examine import examine
from bert_jax.tools.doctor.finding import Finding
from bert_jax.tools.doctor.programs import plan
from bert_jax.training.run import make_checked_mesh
from tests import tiny

WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]
VOCABULARY = [*tiny.SPECIAL, *WORDS, "good", "bad", "?", "."]


def sentence(rng: random.Random, least: int = 5, most: int = 9) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(least, most)))


def write_corpus(path, documents: int = 300, sentences: int = 6, seed: int = 0) -> None:
    """Writes documents of sentences, with blank lines between the documents."""
    rng = random.Random(seed)
    texts = ("\n".join(sentence(rng) + "." for _ in range(sentences)) for _ in range(documents))
    path.write_text("\n\n".join(texts) + "\n")


def write_texts(path, count: int, seed: int = 0) -> None:
    """Writes texts that are good or bad, one after the other, all different."""
    rng = random.Random(seed)
    rows = [
        f"{sentence(rng)} {('good', 'bad')[i % 2]}\t{('good', 'bad')[i % 2]}" for i in range(count)
    ]
    path.write_text("\n".join(["text_a\tlabel", *rows]) + "\n")


def write_tags(path, count: int, seed: int = 0, scheme: str = "B") -> None:
    """Writes sentences with a name of two words; its first tag is B-PER, or I-PER (IOB1)."""
    rng = random.Random(seed)
    blocks = []
    for _ in range(count):
        words = sentence(rng).split()
        tags = [f"{scheme}-PER", "I-PER"] + ["O"] * (len(words) - 2)
        blocks.append("\n".join(map(" ".join, zip(words, tags, strict=True))))
    path.write_text("\n\n".join(blocks) + "\n")


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder with corpus.txt, vocab.txt, train.tsv, dev.tsv, train.conll and dev.conll."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    write_corpus(folder / "corpus.txt")
    write_texts(folder / "train.tsv", 96)
    write_texts(folder / "dev.tsv", 40, seed=1)
    write_tags(folder / "train.conll", 64)
    write_tags(folder / "dev.conll", 32, seed=1)
    return folder


@pytest.fixture(scope="session")
def make_config(files):
    """Returns a function (file in configs/, **changes) -> configuration of a small good run."""

    def make(name: str = "tiny", **changes: Any):
        config = importlib.import_module(f"configs.{name}").get_config()
        if name == "tiny":
            values = tiny.make_overrides(
                model__vocab_size=len(VOCABULARY),
                steps=300,
                phases=((32, 1.0),),
                data__source=f"text:{files / 'corpus.txt'}",
                data__line_format="sentences",
                data__vocab=str(files / "vocab.txt"),
                data__validation_share=0.4,
                data__dupe_factor=1,
                data__num_processes=1,
            )
        else:
            ending = "conll" if name == "tagging" else "tsv"
            values = tiny.make_overrides(
                model__vocab_size=len(VOCABULARY),
                model__num_layers=1,
                max_length=32,
                global_batch_size=16,
                data__vocab=str(files / "vocab.txt"),
                data__train=str(files / f"train.{ending}"),
                data__eval=str(files / f"dev.{ending}"),
                data__bucket_lengths=(32,),
                optimizer__name="adamw",
                optimizer__schedule="linear",
                optimizer__learning_rate=5e-4,
                optimizer__warmup="10%",
            )
        named = {field.replace("__", "."): value for field, value in changes.items()}
        config.update_from_flattened_dict(values | named)
        return init_from.resolve(config, ())

    return make


@pytest.fixture
def uncompiled(monkeypatch):
    """Lets `examine` end before it compiles."""
    monkeypatch.setattr("bert_jax.tools.doctor.examine.all_shapes", lambda _: [])


@pytest.fixture
def look(make_config, uncompiled) -> Callable[..., list[tuple[str, Finding]]]:
    """Returns a function (file in configs/, workdir, **changes) -> findings before compilation."""

    def look(name: str = "tiny", workdir: str = "", **changes: Any):
        return list(examine(make_config(name, **changes), workdir, 0))

    return look


def found(findings: Iterable[Any], level: str, text: str = "") -> Finding:
    """Returns the only finding of a level that has this text.

    Raises:
      AssertionError: there is none, or several.
    """
    every = [f if isinstance(f, Finding) else f[1] for f in findings]
    matching = [f for f in every if f.level == level and text in f.what]
    assert len(matching) == 1, "\n".join(f"{f.level}: {f.what}" for f in every)
    return matching[0]


def replaced(item: Any, **values: Any) -> Any:
    """Returns a copy of a dataclass with other values, also of what it computes."""
    copy = dataclasses.replace(item)
    vars(copy).update(values)
    return copy


def bad(findings: Iterable[Any]) -> list[Finding]:
    """Returns the warnings and problems."""
    every = [f if isinstance(f, Finding) else f[1] for f in findings]
    return [f for f in every if f.level in ("warning", "problem")]


# ------------------------------------------------------------------ runs without data

# Configurations of each model at the smallest size that eight devices can share.
SMALL = {
    "steps": 100,
    "global_batch_size": 16,
    "phases": ((16, 0.9), (32, 0.1, 8)),
    "mesh.data": 2,
    "mesh.fsdp": 2,
    "mesh.tensor": 2,
    "prng_impl": "threefry2x32",
}
SIZES = {
    "model.vocab_size": 64,
    "model.hidden_size": 16,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.intermediate_size": 32,
    "model.max_position_embeddings": 32,
}
ELMO = {
    "model.vocab_size": 64,
    "model.hidden_size": 8,
    "model.num_layers": 1,
    "model.cell_size": 16,
    "model.filters": ((1, 8), (2, 8)),
    "model.highway_layers": 1,
    "task.num_samples": 8,
}
# Name of a configuration, or of a model -> what makes it small.
CONFIGS = {
    "tiny": SIZES,
    "gpt": SIZES,
    "left_to_right": SIZES,
    "fast:tiny": SIZES | {"model.intermediate_size": 24},
    "modernbert": SIZES | {"model.intermediate_size": 24, "model.name": "modernbert"},
    "elmo": ELMO,
}
_CONFIG_OF = {"modernbert": "fast:tiny"}


def small_config(name: str, **changes: Any) -> RunConfig:
    """Returns a small configuration; `changes` have "__" instead of dots."""
    module, _, argument = _CONFIG_OF.get(name, name).partition(":")
    arguments = filter(None, [argument])
    config = parse(importlib.import_module(f"configs.{module}").get_config(*arguments))
    dotted = {field.replace("__", "."): value for field, value in changes.items()}
    return config.replace(SMALL | CONFIGS[name] | dotted)


@pytest.fixture(scope="session")
def make_plan():
    """Returns a function (name of a configuration, **changes) -> its run, without data."""

    def make(name: str = "tiny", **changes: Any):
        config = small_config(name, **changes)
        return plan(config, make_checked_mesh(config))

    return make
