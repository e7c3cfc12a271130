"""Converts entities that are given as character spans of a text to words and tags.

    {"text": "Ann saw Rome.", "entities": [{"start": 8, "end": 12, "type": "LOC"}]}

is the form in which taggers predict them; [8, 12, "LOC"] is one too, and annotation tools have
other names for the three (`_NAMES`). `start` and `end` count Unicode code points, and the text is
taken as it is. Its words are what stands between white space; a word in which an entity begins or
ends is divided there. Counts:

    words_divided        such words
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.files.errors import UserError

_WORD, _CHARACTER = re.compile(r"\S+"), re.compile(r"\S")


# Names of the parts of an entity; the first one that is present counts.
_NAMES = (
    ("start", "start_offset", "start_char", "begin"),
    ("end", "end_offset", "end_char", "stop"),
    ("type", "label", "entity_group", "entity_type", "tag", "entity"),
)


def is_spans(value: Any) -> bool:
    """Returns whether a JSON value is a list of entities as character spans of a text."""
    return isinstance(value, list) and all(map(_is_span, value))


def _is_span(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(any(name in value for name in names) for names in _NAMES)
    return isinstance(value, list) and len(value) == 3 and isinstance(value[0], int)


def tagged_words(
    text: str, entities: Any, where: str, counts: Counter, by_character: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the words of a text, and their tags in IOB2.

    Args:
      text: the text.
      entities: JSON value of the entities, in any order.
      where: place of the example, for messages.
      counts: receives `words_divided`.
      by_character: whether each character but white space is a word.

    Raises:
      UserError: an entity has another form, is not in the text or blank, or two of them overlap.
    """
    if not is_spans(entities):
        raise UserError(
            f"{where}: the entities are {str(entities)[:60]}, and must be a list of"
            ' {"start": 0, "end": 3, "type": "PER"} or [0, 3, "PER"].'
        )
    spans = sorted(_span(text, entity, where) for entity in entities)
    for (begin, end, _), (start, stop, _) in zip(spans, spans[1:], strict=False):
        if start < end:
            raise UserError(
                f"{where}: the entities {text[begin:end]!r} ({begin}-{end}) and"
                f" {text[start:stop]!r} ({start}-{stop}) overlap, and a word has one tag: leave out"
                " nested entities."
            )
    borders = {place for start, end, _ in spans for place in (start, end)}
    words, tags, waiting = [], [], list(reversed(spans))
    for match in (_CHARACTER if by_character else _WORD).finditer(text):
        inside = sorted(place for place in borders if match.start() < place < match.end())
        counts["words_divided"] += bool(inside)
        cuts = [match.start(), *inside, match.end()]
        for start, end in zip(cuts, cuts[1:], strict=False):
            while waiting and waiting[-1][1] <= start:
                waiting.pop()
            words.append(text[start:end])
            tags.append(_tag(waiting, start))
    return tuple(words), tuple(tags)


def _tag(waiting: Sequence[tuple[int, int, str]], start: int) -> str:
    """Returns the tag of the word at `start`; the last of `waiting` is the next entity."""
    if not waiting or start < waiting[-1][0]:
        return "O"
    return f"{'B' if start == waiting[-1][0] else 'I'}-{waiting[-1][2]}"


def _span(text: str, entity: Any, where: str) -> tuple[int, int, str]:
    """Returns (start, end, type) of an entity, without white space around it."""
    if isinstance(entity, Mapping):
        entity = [next(entity[n] for n in names if n in entity) for names in _NAMES]
    start, end, kind = entity
    is_place = all(type(place) is int for place in (start, end)) and 0 <= start < end <= len(text)
    if not (is_place and isinstance(kind, str) and re.fullmatch(r"\S+", kind)):
        raise UserError(
            f"{where}: the entity {entity!r:.60} is not in the text, which has {len(text)}"
            " characters: give 0 <= start < end, and a type without spaces."
        )
    if not (found := text[start:end].strip()):
        raise UserError(f"{where}: the entity {entity!r:.60} is blank.")
    start += text[start:end].index(found)
    return start, start + len(found), kind
