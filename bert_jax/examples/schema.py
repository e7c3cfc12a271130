"""Examples of the tasks as their files give them: text, before any tokenizer.

`where` names the place in the input ("train.tsv, line 12") and stands in every message about the
example; `id` is what predictions are handed in under: the file's own, or else the example's number
in its file, from 0 on.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text or a pair of texts, and what it is labelled with.

    Attributes:
      labels: one label of a class, any number for multi-label (none is ()), the number as text for
        a regression; None: not labelled.
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
      words: one may be blank, or vanish in tokenization; its tag stands all the same.
      tags: one for each word, in IOB2 (O, B-TYPE, I-TYPE); None: not tagged.
      document: number of the document in its file, from 0 on.
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
        of -1: the answer's text is not where the file says, and takes part in the score only.
        Empty where the question is impossible, or its answers were not read.
      is_impossible: the context does not answer it.
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
    """A context and several endings, one of which is right.

    Attributes:
      context: text before; segment A.
      start: beginning of what each ending ends; segment B is `start` and the ending.
      endings: two or more.
      label: number of the right ending, from 0 on; None: not labelled.
    """

    where: str
    id: str
    context: str
    start: str
    endings: tuple[str, ...]
    label: int | None = None
