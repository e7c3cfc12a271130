"""Examples of the tasks as text, before tokenization.

`where` is the place in the input ("train.tsv, line 12"), for messages about the example. `id`
identifies its prediction: the id in the file, or else the number of the example, from 0.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text or a pair of texts, and its labels.

    Attributes:
      labels: one class, any number of classes (multi-label), or a number as text (regression);
        None: not labelled.
    """

    where: str
    id: str
    text_a: str
    text_b: str | None = None
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence of words.

    Attributes:
      words: one may be blank, or have no tokens; it still has a tag.
      tags: one for each word, in IOB2 (O, B-TYPE, I-TYPE); None: not tagged.
      document: number of the document in its file, from 0.
    """

    where: str
    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    document: int = 0


@dataclass(frozen=True, slots=True)
class Question:
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


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A context and several endings, one of which is correct.

    Attributes:
      context: segment A.
      start: segment B is `start` and an ending.
      endings: two or more.
      label: number of the correct ending, from 0; None: not labelled.
    """

    where: str
    id: str
    context: str
    start: str
    endings: tuple[str, ...]
    label: int | None = None
