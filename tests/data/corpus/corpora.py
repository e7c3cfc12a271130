"""Small corpora, and what tests of their preparation need."""

import pathlib
import random

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus.jobs import Jobs

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
WORDS = ["ba", "co", "du", "fi", "go", "hu", "ji", "ko"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"##{w}" for w in WORDS), "."]


def write_text(folder: pathlib.Path, num_documents: int) -> None:
    """Writes files of documents, a sentence a line; every fifth document is in two of them."""
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
