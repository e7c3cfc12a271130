"""Tags of any IOB scheme -> IOB2, by the rule of conlleval, with the scheme told from the tags.

    IOB1     I-X, and B-X only where an entity follows one of its own type
    IOB2     B-X begins every entity
    IOBES    and S-X is one of a single word, E-X the last of more; or BILOU's and BMES' letters

An entity goes on where the tag before has the same type and did not end one, and this tag does not
begin one; so every tag has an outcome, whatever the scheme. Counted:

    iob1_files, iob2_files, iobes_files, mixed_scheme_files    the scheme of each file
    tags_converted       tags that read otherwise in IOB2
    broken_entities      IOBES: entities without a proper beginning or end
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence

# M: IOBES' I in BMES; L and U: E and S in BILOU; W: S in BMEWO.
_TAG = re.compile(r"([BIESLUMW])(?:-(\S.*))?")
_BEGINS, _ENDS = frozenset("BSUW"), frozenset("ESLUW")
# As seqeval calls the type of a bare B or I.
_UNTYPED = "_"


class TagReader:
    """Reads the tags of one file, sentence by sentence; `finish` then counts its scheme.

    Args:
      counts: of what was converted.
      plain: the tags are no entities (parts of speech, say) and stay as they are.
    """

    def __init__(self, counts: Counter, plain: bool = False):
        self.counts, self.plain = counts, plain
        self._seen = Counter()

    def read(
        self, tags: Sequence[str], num_words: int, where: Callable[[int], str]
    ) -> tuple[str, ...]:
        """Converts the tags of a sentence.

        Args:
          tags: of its words.
          num_words: how many words there are.
          where: names the place of a tag, by its number.

        Raises:
          ValueError: there are more or fewer tags than words, or one is of no scheme.
        """
        if len(tags) != num_words:
            raise ValueError(f"{where(0)}: {num_words} words with {len(tags)} tags.")
        if self.plain:
            return tuple(tags)
        converted, before = [], ("", "")
        for number, tag in enumerate(tags):
            prefix, type = now = _parse(tag, number, where)
            self._look(before, now)
            goes_on = _goes_on(before, now)
            converted.append(f"{'I' if goes_on else 'B'}-{type}" if prefix else "O")
            before = now
        self._look(before, ("", ""))
        self.counts["tags_converted"] += sum(
            new != old for new, old in zip(converted, tags, strict=True)
        )
        return tuple(converted)

    def _look(self, before: tuple[str, str], now: tuple[str, str]) -> None:
        """Notes what tells the schemes apart."""
        goes_on, prefix = _goes_on(before, now), now[0]
        self._seen["ends"] += prefix in _ENDS or prefix == "M"
        self._seen["inside_first"] += bool(prefix) and prefix not in _BEGINS and not goes_on
        is_needed = before[1] == now[1] and before[0] in ("B", "I")
        self._seen["needless_b"] += prefix == "B" and not is_needed
        self._seen["unfinished"] += before[0] in ("B", "I", "M") and not goes_on

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
    """The tags of a sentence, of any scheme, in IOB2.

    Raises:
      ValueError: one is of no scheme.
    """
    return TagReader(Counter()).read(tags, len(tags), lambda number: f"word {number + 1}")


def is_typed_tag(text: str) -> bool:
    """Whether a text is O, B-TYPE and the like."""
    return text == "O" or ("-" in text and _TAG.fullmatch(text) is not None)


def _goes_on(before: tuple[str, str], now: tuple[str, str]) -> bool:
    """Whether the word is in the same entity as the one before."""
    is_inside = now[0] != "" and now[0] not in _BEGINS
    return is_inside and before[0] != "" and before[1] == now[1] and before[0] not in _ENDS


def _parse(tag: str, number: int, where: Callable[[int], str]) -> tuple[str, str]:
    """The prefix and the type of a tag, both empty for O."""
    if tag == "O":
        return "", ""
    if not (match := _TAG.fullmatch(tag)):
        raise ValueError(
            f"{where(number)}: the tag {tag!r} is of no scheme: tags are O, B-TYPE, I-TYPE (IOB),"
            " and E-TYPE, S-TYPE (IOBES)."
        )
    return match[1], match[2] or _UNTYPED
