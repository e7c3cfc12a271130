"""What a command is to read: words that are files, texts, or - for standard input. No jax."""

import dataclasses
import functools
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.data.labelled.examples import ChoiceExample, Question
from bert_jax.data.labelled.forms.text_tables import find_column, has_columns
from bert_jax.data.labelled.reading import is_array, is_object, read_lines
from bert_jax.data.labelled.texts import Text, read_texts
from bert_jax.files import buckets
from bert_jax.files.errors import UserError
from bert_jax.inference.examples import make_examples
from bert_jax.text.arrow_tables import is_table
from bert_jax.text.files import refuse_spreadsheet

STANDARD_INPUT = "-"
_ENDINGS = "txt|csv|tsv|jsonl?|ndjson|conll|parquet|arrow|gz|bz2|xz|zst"
# A word that is more likely the name of a file than a text.
_LIKE_A_FILE = re.compile(rf"\S*/\S*|\S+\.({_ENDINGS})", re.IGNORECASE)
# Example classes that a single text cannot make, and what to give instead.
_NO_TEXTS = {
    Question: "bert_jax answer asks a --question about a --context, and files have SQuAD's form",
    ChoiceExample: 'write {"context": ..., "endings": [...]} on a line of standard input or a file',
}


@dataclasses.dataclass(frozen=True)
class Source:
    """A file, or values that are given as they are."""

    path: str = ""  # of the file or folder, or tfds:NAME[SPLIT]; empty: there are values
    values: tuple[Any, ...] = ()  # texts, or other inputs of `make_examples`


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The sources of a command, in order; they can be read several times."""

    sources: tuple[Source, ...]
    column: str = ""  # of the texts in tables; "": found out

    @property
    def paths(self) -> list[str]:
        return [source.path for source in self.sources if os.path.isfile(source.path)]

    def __str__(self) -> str:
        names = [source.path or "the command line" for source in self.sources]
        own = _folder.cache_info().currsize and _folder().name
        return ", ".join("standard input" if own and own in name else name for name in names)

    def print_notes(self) -> None:
        """Prints the column of the texts of each table, on standard error."""
        for source in self.sources:
            if source.path and has_columns(source.path):
                found = find_column(source.path, self.column)
                names = " and ".join(repr(n) for n in (found.name, found.second) if n is not None)
                print(f"texts      column {names} of {source.path}", file=sys.stderr)

    def texts(self) -> Iterator[Text]:
        """Yields texts and pairs: each line of a file, and each value.

        Raises:
          UserError: as `read_texts`.
        """
        for source in self.sources:
            if source.path:
                yield from read_texts(source.path, self.column)
            else:
                yield from make_examples(Text, source.values, where=_name_text)

    def examples(self, task: Any, kind: type | None, counts: Counter) -> Iterator[Any]:
        """Yields the examples of a task.

        Args:
          task: task, which reads files.
          kind: class of its examples, which values are converted to; None: it takes files only.
          counts: counts what is left out or repaired.

        Raises:
          UserError: a file or a value is not what the task reads.
        """
        count = 0
        for number, source in enumerate(self.sources):
            start = count
            if source.path and kind is Text:
                examples = read_texts(source.path, self.column)
            elif source.path:
                examples = task.read(source.path, counts, labelled=False)
            elif kind is None:
                raise UserError("This model's task takes files only: name one.")
            else:
                _check_values(source.values, task, kind)
                by_character = not task.between_words
                examples = make_examples(kind, source.values, by_character, _name_text)
            for place, example in enumerate(examples):
                numbered = not (source.path and getattr(task, "id", ""))
                yield _renumbered(example, number, place, start, numbered) if number else example
                count += 1


def find_inputs(words: Sequence[str], column: str = "") -> Inputs:
    """Returns what words name: files that exist, folders of Parquet files, tfds:NAME[SPLIT],
    standard input, or texts.

    Standard input is copied to a temporary file, which is read as one: .jsonl if it begins with a
    JSON object, else .txt. `column` names the column of the texts in tables.

    Raises:
      UserError: there are no words, or a file does not exist.
    """
    if not words:
        raise UserError('Give texts, files, or - for standard input, for example "A text.".')
    sources: list[Source] = []
    for word in words:
        buckets.check_scheme("the file", word)
        refuse_spreadsheet(word)
        path = _standard_input() if word == STANDARD_INPUT else buckets.local(word)
        if (
            os.path.isfile(path)
            or word.startswith("tfds:")
            or (os.path.isdir(path) and is_table(path))
        ):
            sources.append(Source(path))
        elif _LIKE_A_FILE.fullmatch(word):
            raise UserError(
                f"{word}: there is no such file. If it is a text, give it by standard input, -."
            )
        elif sources and not sources[-1].path:
            sources[-1] = Source(values=(*sources[-1].values, word))
        else:
            sources.append(Source(values=(word,)))
    return Inputs(tuple(sources), column)


def read_word(word: str) -> str:
    """Returns a text: the word itself, or all of the file that it names.

    Raises:
      UserError: as `find_inputs`, or the file is not UTF-8.
    """
    (source,) = find_inputs([word]).sources
    if not source.path:
        return word
    return "\n".join(line for _, line in read_lines(source.path, Counter()))


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="bert_jax_")


@functools.cache
def _standard_input() -> str:
    path = os.path.join(_folder().name, "standard_input.jsonl")
    with open(path, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    if not (is_object(path) or is_array(path)):
        os.rename(path, path := path.replace(".jsonl", ".txt"))
    return path


def _name_text(number: int) -> str:
    return f"Text {number + 1}"


def _check_values(values: Sequence[Any], task: Any, kind: type) -> None:
    if not any(isinstance(value, str) for value in values):
        return
    if task.reads_pairs:
        raise UserError(
            f"{values[0]!r:.60} is one text, and this model reads pairs: give a file, or"
            ' {"text_a": ..., "text_b": ...} on each line of standard input.'
        )
    if kind in _NO_TEXTS:
        raise UserError(
            f"{values[0]!r:.60} is not an example for this model's task: {_NO_TEXTS[kind]}."
        )


def _renumbered(example: Any, source: int, place: int, start: int, numbered: bool) -> Any:
    """Returns an example of a later source, whose numbers differ from those of the others.

    `numbered`: whether ids are numbers of rows, not values of a column.
    """
    changes: dict[str, Any] = {}
    if numbered and getattr(example, "id", "") == str(place):
        changes["id"] = str(start + place)
    if isinstance(getattr(example, "document", ""), int):
        changes["document"] = example.document + (source << 32)
    return dataclasses.replace(example, **changes)
