"""A table whose use is to be detected, the usual names of its columns, and what was detected."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_jax.data.labelled.cells import is_number

# Usual names of columns, the most usual first; compared in lower case. POSITIVES are pairs of texts
# to embed, which have no labels.
POSITIVES = (("anchor", "positive"), ("query", "positive"))
PAIRS = (
    ("text_a", "text_b"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("sentence_a", "sentence_b"),
    ("query", "passage"),
    ("query", "document"),
    ("question", "sentence"),
    ("question", "answer"),
)
TEXTS = (
    *("text", "sentence", "text_a", "review", "content", "comment", "body", "message", "tweet"),
    *("document", "review_text", "description", "question", "title", "headline", "utterance"),
    *("abstract", "post", "article", "query", "statement", "phrase", "summary", "prompt", "v2"),
)
LABELS = (
    *("label", "labels", "gold_label", "class", "category", "sentiment", "stance", "target"),
    *("intent",),
    *("emotion", "topic", "polarity", "quality", "tag", "tags", "score", "rating", "stars"),
    *("similarity", "y", "v1"),
)
IDS = ("id", "idx", "index", "guid", "uid")
# A header's cells are names: they are short.
_MAX_NAME = 40


@dataclass(frozen=True)
class Detection:
    """What a file of labelled examples is for.

    Attributes:
      task: one of `detection.TASKS`.
      what: a description of the columns and labels, for the user.
      fields: values of the configuration of a fine-tuning run, by dotted name.
    """

    task: str
    what: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """The cells of a file by column, and what the user says about them.

    Attributes:
      path: the file, for messages.
      columns: name, or number from 0 -> cells.
      given: fields that the user set, by dotted name; they are kept.
    """

    path: str
    columns: Mapping[Any, Sequence[Any]]
    given: Mapping[str, Any]

    @classmethod
    def of(cls, path: str, rows: Sequence[Mapping[Any, Any]], given: Mapping[str, Any]) -> "Table":
        names = dict.fromkeys(name for row in rows for name in row)
        return cls(path, {name: [row.get(name) for row in rows] for name in names}, given)

    def named(self, field: str, names: Sequence[str]) -> Any:
        """Returns the column that the user names in a task field, or else the first of `names`."""
        return self.given.get(f"task.{field}") or known(names, self.columns)

    def pair(self, pairs: Iterable[tuple[str, str]]) -> tuple[Any, Any] | None:
        """Returns the first of pairs of names that are both columns."""
        found = ((known((a,), self.columns), known((b,), self.columns)) for a, b in pairs)
        return next((pair for pair in found if None not in pair), None)

    @property
    def id(self) -> Any:
        """The column of ids, given or found; None or "": there is none."""
        return self.given["task.id"] if "task.id" in self.given else known(IDS, self.columns)

    def id_fields(self) -> dict[str, Any]:
        """Returns the field with the column of ids, if one was found."""
        return {"task.id": self.id} if self.id and "task.id" not in self.given else {}


def known(names: Sequence[str], columns: Iterable[Any]) -> Any:
    """Returns the first of `names` that is a column, as the file writes it; None: there is none."""
    written = {str(column).strip().lower(): column for column in columns}
    return next((written[name] for name in names if name in written), None)


def listed(columns: Iterable[Any]) -> str:
    """Returns the names of columns for a message."""
    return ", ".join(repr(str(name)) for name in columns)


def is_header(cells: Sequence[Sequence[str]]) -> bool:
    """Returns whether the first row of a table has names: short, and not those of a label."""
    if not cells:
        return True
    first, rest = [cell.strip() for cell in cells[0]], cells[1:]
    columns = list(zip(*rest, strict=False))
    # The name of a class, such as "question", may be that of a column too.
    if any(name and name in map(str.strip, c) for name, c in zip(first, columns, strict=False)):
        return False
    if {name.lower() for name in first} & {*TEXTS, *LABELS, *sum(PAIRS, ())}:
        return True
    return not any(len(name) > _MAX_NAME or is_number(name) for name in first)
