"""Converts tags of any IOB scheme to IOB2 by the rule of conlleval, and detects the scheme.

    IOB1     I-X, and B-X only where an entity follows one of the same type
    IOB2     B-X begins every entity
    IOBES    S-X is an entity of one word, E-X the last word of a longer one; also BILOU and BMES

An entity continues where the tag before has the same type and did not end one, and this tag does
not begin one; so every sequence of tags can be converted. Counts:

    iob1_files, iob2_files, iobes_files, mixed_scheme_files    the scheme of each file
    tags_converted       tags that differ in IOB2
    broken_entities      IOBES: entities without a valid beginning or end
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence

from bert_jax.files.errors import UserError

# M: IOBES' I in BMES; L and U: E and S in BILOU; W: S in BMEWO.
_TAG = re.compile(r"([BIESLUMW])(?:-(\S.*))?")
_BEGINS, _ENDS = frozenset("BSUW"), frozenset("ESLUW")
# Several tags of nested entities in one cell.
_NESTED = re.compile(r"(O|[BIESLUMW]-[^|,;\s]+)([|,;\s]+(O|[BIESLUMW]-[^|,;\s]+))+")
# The type of a bare B or I, as in seqeval.
_UNTYPED = "_"


class TagReader:
    """Reads the tags of one file, sentence by sentence; `finish` then counts its scheme.

    `plain` tags are not entities (for example parts of speech), and are not converted.
    """

    def __init__(self, counts: Counter, plain: bool = False):
        self.counts, self.plain = counts, plain
        self._seen = Counter()

    def read(
        self, tags: Sequence[str], num_words: int, where: Callable[[int], str]
    ) -> tuple[str, ...]:
        """Converts the tags of a sentence.

        Args:
          tags: tags of its words.
          num_words: number of words.
          where: returns the place of a tag, from its number.

        Raises:
          UserError: there are more or fewer tags than words, or an invalid tag.
        """
        if len(tags) != num_words:
            raise UserError(f"{where(0)}: {num_words} words with {len(tags)} tags.")
        if self.plain:
            return tuple(tags)
        converted, before = [], ("", "")
        for number, tag in enumerate(tags):
            prefix, type = now = _parse(tag, number, where)
            self._look(before, now)
            continues = _continues(before, now)
            converted.append(f"{'I' if continues else 'B'}-{type}" if prefix else "O")
            before = now
        self._look(before, ("", ""))
        self.counts["tags_converted"] += sum(
            new != old for new, old in zip(converted, tags, strict=True)
        )
        return tuple(converted)

    def _look(self, before: tuple[str, str], now: tuple[str, str]) -> None:
        continues, prefix = _continues(before, now), now[0]
        self._seen["ends"] += prefix in _ENDS or prefix == "M"
        self._seen["inside_first"] += bool(prefix) and prefix not in _BEGINS and not continues
        is_needed = before[1] == now[1] and before[0] in ("B", "I")
        self._seen["needless_b"] += prefix == "B" and not is_needed
        self._seen["unfinished"] += before[0] in ("B", "I", "M") and not continues

    def finish(self) -> None:
        """Counts the file's scheme."""
        seen = self._seen
        if self.plain:
            return
        if seen["ends"]:
            self.counts["iobes_files"] += 1
            self.counts["broken_entities"] += seen["inside_first"] + seen["unfinished"]
        elif seen["inside_first"]:
            self.counts["mixed_scheme_files" if seen["needless_b"] else "iob1_files"] += 1
        else:
            self.counts["iob2_files"] += 1


def as_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """Returns the tags of a sentence, of any scheme, in IOB2; UserError for an invalid tag."""
    return TagReader(Counter()).read(tags, len(tags), lambda number: f"word {number + 1}")


def is_typed_tag(text: str) -> bool:
    """Returns whether a text is O, B-TYPE or another tag with a type."""
    return text == "O" or ("-" in text and _TAG.fullmatch(text) is not None)


def _continues(before: tuple[str, str], now: tuple[str, str]) -> bool:
    """Returns whether a word is in the same entity as the word before."""
    is_inside = now[0] != "" and now[0] not in _BEGINS
    return is_inside and before[0] != "" and before[1] == now[1] and before[0] not in _ENDS


def _parse(tag: str, number: int, where: Callable[[int], str]) -> tuple[str, str]:
    """Returns the prefix and the type of a tag, both empty for O."""
    if tag == "O":
        return "", ""
    if _NESTED.fullmatch(tag):
        raise UserError(
            f"{where(number)}: {tag!r} are tags of nested entities, and a word has one tag: keep"
            " that of the outermost or of the innermost entity."
        )
    if not (match := _TAG.fullmatch(tag)):
        raise UserError(
            f"{where(number)}: invalid tag {tag!r}: tags are O, B-TYPE, I-TYPE (IOB),"
            " and E-TYPE, S-TYPE (IOBES)."
        )
    return match[1], match[2] or _UNTYPED
