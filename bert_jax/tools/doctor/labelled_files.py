"""Files of labelled examples as they are read, and what is content and what is label in them."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.config.run import FinetuningConfig
from bert_jax.files.buckets import local
from bert_jax.tasks.supervised import Labelled
from bert_jax.tools.doctor.finding import Finding, guarded, problem

# Fields of an example (examples/schema.py) that are not its content, and those that are its label.
_NAMES = {"where", "id", "document"}
_LABELS = {"labels", "tags", "label", "answers", "is_impossible"}


@dataclasses.dataclass(frozen=True)
class File:
    """A labelled file.

    Attributes:
      name: `train`, `eval`, or a name in config.data.more_eval.
      source: the file.
      examples: of it.
      counts: of what was repaired and converted.
    """

    name: str
    source: str
    examples: Sequence[Any]
    counts: Counter

    @property
    def title(self) -> str:
        return f"{self.name} ({self.source})"


def content(example: Any) -> tuple[Any, ...]:
    """Returns what an example is about: its texts and words, without its names and labels."""
    names = (field.name for field in dataclasses.fields(example))
    return tuple(getattr(example, name) for name in names if name not in _NAMES | _LABELS)


def label(example: Any) -> tuple[Any, ...]:
    """Returns the gold values of an example."""
    names = (field.name for field in dataclasses.fields(example))
    return tuple(getattr(example, name) for name in names if name in _LABELS)


def texts(example: Any) -> Iterator[str]:
    """Yields the texts of an example."""
    for value in content(example):
        if isinstance(value, str):
            yield value
        elif value:
            yield " ".join(value)


def class_names(example: Any) -> Sequence[str]:
    """Returns the classes, or the tags, of an example; empty for other gold values."""
    return next((getattr(example, name) for name in ("labels", "tags") if has(example, name)), ())


def has(example: Any, name: str) -> bool:
    return getattr(example, name, None) is not None


def sources(config: FinetuningConfig) -> dict[str, str]:
    """Returns the files of a configuration by name; a missing one is the empty text."""
    named = {"train": config.data.train, "eval": config.data.eval}
    more = (entry.partition("=") for entry in config.data.more_eval)
    named |= {name: source for name, _, source in more}
    return {name: local(source) for name, source in named.items()}


def read(data: Labelled, config: FinetuningConfig) -> tuple[list[File], list[Finding]]:
    """Returns the files of a configuration that can be read, and a problem for each other one."""
    files, problems = [], []
    for name, source in sources(config).items():
        examples, counts = [], Counter()

        def check(
            name: str = name,
            source: str = source,
            examples: list[Any] = examples,
            counts: Counter = counts,
        ) -> Iterator[Finding]:
            if not source:
                yield problem(f"config.data.{name} is missing.", f"--config.data.{name}=FILE")
                return
            examples += data.read(source, counts, labelled=True)
            if not examples:
                yield problem(f"{name} ({source}) has no examples.", "Give a file with examples.")

        problems += (found := list(guarded(check())))
        if not found:
            files.append(File(name, source, examples, counts))
    return files, problems
