"""Examples of the tasks as text, before tokenization, and the numbers of their labels.

`where` is the place in the input ("train.tsv, line 12"), for messages about the example. `id`
identifies its prediction: the id in the file, or else the number of the example, from 0.
"""

import dataclasses
import functools
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from bert_jax.files.errors import UserError

# How many names an error message lists.
_NAMES_SHOWN = 12


class Input(NamedTuple):
    """A field of an example that the caller gives to get a prediction.

    Attributes:
      name: its name.
      is_list: whether it is a list of texts, instead of a text.
      is_optional: whether it may be left out.
    """

    name: str
    is_list: bool = False
    is_optional: bool = False


class Example:
    """Base class of examples, dataclasses with `where` and `id`.

    Their other fields, except those in GOLD, are texts or lists of texts: the arguments in Python,
    the keys of JSON objects, and the controls of the page.
    """

    __slots__ = ()

    # Fields that a request does not give, besides `where` and `id`.
    GOLD: ClassVar[tuple[str, ...]] = ("label", "labels", "tags", "answers")
    # The forms of an input, for messages; "": a dict with the inputs.
    FORMS: ClassVar[str] = ""

    @classmethod
    @functools.cache
    def inputs(cls) -> tuple[Input, ...]:
        """Returns the fields that are given, in the order of a tuple."""
        fields: Any = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        return tuple(
            Input(
                item.name,
                typing.get_origin(item.type) is tuple,
                item.default is not dataclasses.MISSING,
            )
            for item in fields
            if item.name not in ("where", "id", *cls.GOLD)
        )

    @classmethod
    def forms(cls) -> str:
        """Returns the forms of an input, for messages."""
        return cls.FORMS or f"a dict with {', '.join(item.name for item in cls.inputs())}"

    @classmethod
    def from_inputs(cls, values: Mapping[str, Any], where: str, number: int) -> Self:
        """Returns an example with the given values.

        Args:
          values: a text or a list of texts for each of `inputs`; optional ones may be missing.
          where: its place, for messages.
          number: its id.
        """
        made: Any = cls
        lists = {item.name for item in cls.inputs() if item.is_list}
        fields = {name: tuple(x) if name in lists else x for name, x in values.items()}
        return made(where=where, id=str(number), **fields)

    @property
    def has_empty(self) -> bool:
        """Whether a text or a list of texts is empty or blank, and not just left out."""
        fields: Any = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        defaults = {item.name: item.default for item in fields}
        given = [x for name, x in self.to_inputs().items() if x != defaults[name]]
        return any(not (value.strip() if isinstance(value, str) else value) for value in given)

    def to_inputs(self) -> dict[str, Any]:
        """Returns what `from_inputs` takes."""
        found = {item.name: getattr(self, item.name) for item in self.inputs()}
        values = {name: value for name, value in found.items() if value is not None}
        return {name: list(x) if isinstance(x, tuple) else x for name, x in values.items()}


# Of `Text` and `TextExample`.
TEXT_FORMS = "a text, a pair (text_a, text_b), or a dict with text_a and optionally text_b"


@dataclass(frozen=True, slots=True)
class TextExample(Example):
    """A text or a pair of texts, and its labels.

    Attributes:
      labels: one class, any number of classes (multi-label), or a number as text (regression, the
        score of a pair); None: not labelled.
      negative: third text, whose embedding must be far from that of the first one.
    """

    where: str
    id: str
    text_a: str
    text_b: str | None = None
    labels: tuple[str, ...] | None = None
    negative: str | None = None

    GOLD = ("labels", "negative")
    FORMS = TEXT_FORMS

    @property
    def texts(self) -> list[str]:
        """The texts that the example has, one to three."""
        return [t for t in (self.text_a, self.text_b, self.negative) if t is not None]


def split_words(text: str, by_character: bool = False) -> tuple[str, ...]:
    """Returns the words of a text, separated by white space, or all its other characters."""
    words = text.split()
    return tuple("".join(words)) if by_character else tuple(words)


@dataclass(frozen=True, slots=True)
class TaggedExample(Example):
    """A sentence of words.

    Attributes:
      words: one may be blank, or have no tokens; it still has a tag.
      tags: one for each word, in IOB2 (O, B-TYPE, I-TYPE); None: not tagged.
      document: number of the document in its file, from 0.
      text: the text that has the words, in order; None: they were given as words.
    """

    where: str
    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    document: int = 0
    text: str | None = None

    GOLD = ("tags", "document")
    FORMS = "a text with spaces between its words, a list of words, or a dict with text or words"

    @classmethod
    def from_inputs(cls, values, where, number):
        # Each is a document by itself: no model reads one as the context of another.
        words = tuple(values["words"])
        return cls(where, str(number), words, None, number, values.get("text"))

    def locate(self, between: str) -> tuple[str, list[tuple[int, int]]]:
        """Returns the text, and (start, end) of each word, which is text[start:end].

        Args:
          between: what joins words that were given without a text.
        """
        text, spans, end = self.text, [], 0
        for word in self.words:
            start = end if text is None else text.index(word, end)
            end = start + len(word)
            spans.append((start, end))
            end += len(between) if text is None else 0
        return between.join(self.words) if text is None else text, spans


@dataclass(frozen=True, slots=True)
class Question(Example):
    """A question about a text.

    Attributes:
      answers: (text, offset of its first character in the context) of every gold answer; an offset
        of -1: the answer is not in the context, and is used for the score only. Empty if the
        question is impossible, or its answers were not read.
      is_impossible: whether the context has no answer.
      document: title of the article.
    """

    where: str
    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    is_impossible: bool = False
    document: str = ""

    GOLD = ("answers", "is_impossible", "document")
    FORMS = "a pair (question, context), or a dict with question and context"


@dataclass(frozen=True, slots=True)
class ChoiceExample(Example):
    """A context and several endings, one of which is correct.

    Attributes:
      context: segment A.
      endings: two or more.
      start: segment B is `start` and an ending.
      label: number of the correct ending, from 0; None: not labelled.
    """

    where: str
    id: str
    context: str
    endings: tuple[str, ...]
    start: str = ""
    label: int | None = None

    GOLD = ("label",)
    FORMS = "a pair (context, endings), or a dict with context, endings and optionally start"


@dataclass(frozen=True)
class Labels:
    """The labels of a task, in the order of their numbers."""

    names: tuple[str, ...]

    @classmethod
    def find(cls, names: Iterable[str]) -> "Labels":
        """Returns the distinct labels, sorted; by value if all are whole numbers.

        Raises:
          UserError: there are none.
        """
        distinct = set(names)
        if not distinct:
            raise UserError("The training data have no labels.")
        is_numbers = all(name.isascii() and name.isdecimal() for name in distinct)
        return cls(tuple(sorted(distinct, key=(lambda n: (int(n), n)) if is_numbers else None)))

    @classmethod
    def find_tags(cls, tags: Iterable[str]) -> "Labels":
        """Returns O and, for each entity type in the tags, B- and I-; other tags unchanged.

        So a type whose entities have one word in the training data may have longer ones later.
        """
        names: set[str] = set()
        for tag in set(tags):
            is_entity = tag[:2] in ("B-", "I-")
            names |= {"B" + tag[1:], "I" + tag[1:], "O"} if is_entity else {tag}
        return cls(tuple(sorted(cls.find(names).names, key=lambda n: (n != "O", n[2:], n))))

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str, where: str) -> int:
        """Returns the number of a label; UserError with its place, for an unknown one."""
        number = self._numbers.get(name)
        if number is None:
            shown = ", ".join(self.names[:_NAMES_SHOWN])
            more = f" and {len(self) - _NAMES_SHOWN} more" if len(self) > _NAMES_SHOWN else ""
            raise UserError(
                f"{where}: unknown label {name!r}; the labels of the training data are"
                f" {shown}{more}."
            )
        return number

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}
