"""Small corpora, and what tests of their preparation need."""

import pathlib
import random
from itertools import accumulate

import pytest

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus import documents, shards
from bert_jax.data.corpus.jobs import Jobs

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
WORDS = ["ba", "co", "du", "fi", "go", "hu", "ji", "ko"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"##{w}" for w in WORDS), "."]


def write_text(folder: pathlib.Path, num_documents: int) -> None:
    """Writes files of documents, one sentence per line; every fifth document is in two of them."""
    rng = random.Random(num_documents)

    def sentence() -> str:
        words = ["".join(rng.choices(WORDS, k=rng.randint(1, 3))) for _ in range(12)]
        return " ".join(words[: rng.randint(1, 12)]) + "."

    documents = [
        "\n".join(sentence() for _ in range(rng.randint(1, 30))) + "\n"
        for _ in range(num_documents)
    ]
    documents += documents[::5]
    for number in range(4):
        (folder / f"{number}.txt").write_text("\n".join(documents[number::4]))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")


def make_config(folder: pathlib.Path, **changes) -> DataConfig:
    """Returns the settings of the text that `write_text` wrote."""
    values = {
        "source": f"text:{folder}/[0-9].txt",
        "line_format": "sentences",
        "vocab": str(folder / "vocab.txt"),
        "vocab_size": 100,
        "seed": 1,
        "dupe_factor": 2,
        "validation_share": 0.1,
        "sequence_lengths": (32, 64),
        "num_predictions": (6, 11),
    }
    return DataConfig(**values | changes)


def make_small_units(patch: pytest.MonkeyPatch) -> None:
    """Many units and files, although the text is small. Only this process sees it."""
    patch.setattr(documents, "UNIT_TOKENS", 2000)
    patch.setattr(shards, "TOKENS_PER_FILE", 1 << 14)


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """Returns the files of prepared data, without the locks."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".lock")}


def quiet(line: str) -> None:
    """A log that drops its lines."""


def count_done(monkeypatch, kind: str, stop_after: int | None = None) -> list[str]:
    """Returns a list to which the path of each job of a kind is added before it runs.

    The program is interrupted in place of job `stop_after` + 1.
    """
    run, done = getattr(Jobs, kind), []

    def counting(jobs, path, *arguments) -> int:
        if len(done) == stop_after:
            raise KeyboardInterrupt
        done.append(path)
        return run(jobs, path, *arguments)

    monkeypatch.setattr(Jobs, kind, counting)
    return done


class Lengths:
    """Documents given by the lengths of their sentences, laid out one after the other."""

    def __init__(self, documents: list[list[int]]):
        bounds = list(accumulate(map(sum, documents), initial=0))
        self._starts = [
            list(accumulate(lengths, initial=start))
            for lengths, start in zip(documents, bounds[:-1], strict=True)
        ]

    def __len__(self) -> int:
        return len(self._starts)

    def num_sentences(self, document: int) -> int:
        return len(self._starts[document]) - 1

    def starts(self, document: int, first: int = 0, count: int | None = None) -> list[int]:
        return self._starts[document][first:][: None if count is None else count + 1]

    def owner(self, start: int, length: int) -> int:
        """The document that contains a span."""
        owners = [
            number
            for number, starts in enumerate(self._starts)
            if starts[0] <= start and start + length <= starts[-1]
        ]
        assert len(owners) == 1, "a segment leaves its document"
        return owners[0]
