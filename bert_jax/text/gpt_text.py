"""What GPT's released program does to a text before it cuts words into pieces.

    ftfy        repairs wrongly decoded text, curly quotes and control characters
    rules       put spaces around marks that spaCy splits badly, and unify spaces and line breaks
    spaCy       splits into words and marks, by its rules for English; it needs no model

`clean` applies the rules. `places_of_clean_text` also says where each of its characters comes from.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from bert_jax.files.errors import UserError

# Of openai/finetune-transformer-lm, text_utils.py.
_DASHES = str.maketrans({"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"})
# A run of the same mark. The released pattern also means to have the backslash, but its string is
# not a raw one, so that what is written for a backslash is a second "+".
_MARKS = re.compile(r"([-~!\";?+,)(/*\[\]}{|_])\1*")
_LINE_BREAKS = re.compile(r"\s*\n\s*")
_SPACES = re.compile(r"[^\S\n]+")
_RULES = ((_MARKS, r" \g<0> "), (_LINE_BREAKS, " \n "), (_SPACES, " "))

# Text that ftfy leaves as it is: it has nothing to repair in ASCII but HTML's entities and control
# characters.
_PLAIN = re.compile(r"[\n -%'-~]*")
_WORDS = re.compile(r"\s+|\S+")

# The characters [start, stop) of a text; None: of a space that the rules have put there.
Place = tuple[int, int] | None


def load_libraries() -> tuple[Callable[[str], str], Callable[[], Any]]:
    """Returns ftfy's function text -> text, and a function that makes spaCy's English tokenizer.

    Raises:
      UserError: one of the two packages is not installed.
    """
    try:
        import ftfy
        from spacy.lang.en import English
    except ImportError as error:
        raise UserError(
            f"GPT's tokenizer needs the package {error.name}: pip install 'bert_jax[gpt]' (ftfy"
            " and spaCy). Without them its ids would be others."
        ) from None

    def fix(text: str) -> str:
        return text if _PLAIN.fullmatch(text) else ftfy.fix_text(text)

    return fix, lambda: English().tokenizer


def clean(text: str) -> str:
    """Applies the rules to a text that ftfy has repaired.

    The result has no white space but single spaces and " \\n " for line breaks.
    """
    text = text.translate(_DASHES)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.strip()


def places_of_clean_text(text: str, fixed: str) -> tuple[str, list[Place]]:
    """Returns clean(fixed), and the characters [start, stop) of `text` for each of its characters.

    Args:
      text: as it was given.
      fixed: what ftfy made of it.
    """
    source = _places_of_fixed_text(text, fixed)
    characters = [(new, i) for i, old in enumerate(fixed) for new in old.translate(_DASHES)]
    cleaned = "".join(character for character, _ in characters)
    places = [source[i] for _, i in characters]
    for pattern, replacement in _RULES:
        cleaned, places = _substitute(pattern, replacement, cleaned, places)
    start = len(cleaned) - len(cleaned.lstrip())
    stop = max(start, len(cleaned.rstrip()))
    return cleaned[start:stop], places[start:stop]


def _substitute(
    pattern: re.Pattern[str], replacement: str, text: str, places: list[Place]
) -> tuple[str, list[Place]]:
    """Returns what `pattern.sub` does, and the place of each character of the result."""
    parts: list[str] = []
    result: list[Place] = []
    end = 0
    for match in pattern.finditer(text):
        start, new = match.start(), match.expand(replacement)
        parts += text[end:start], new
        result += places[end:start]
        end = match.end()
        inside = places[start:end]
        known = [place for place in inside if place]
        if new.strip(" ") == match[0]:  # spaces around it
            result += [None, *inside, None]
        else:
            result += [(known[0][0], known[-1][1]) if known else None] * len(new)
    return "".join([*parts, text[end:]]), result + places[end:]


def _places_of_fixed_text(text: str, fixed: str) -> list[Place]:
    """Returns the characters of `text` that each character of ftfy's result comes from.

    Runs of text between spaces are aligned first, then the characters of runs that have changed.
    Of characters that are replaced by another number of characters, each new one comes from all.
    """
    if text == fixed:
        return [(i, i + 1) for i in range(len(text))]
    places: list[Place] = []
    at = 0
    for runs, new_runs in _changes(_WORDS.findall(text), _WORDS.findall(fixed)):
        old, new = "".join(runs), "".join(new_runs)
        parts = [(old, new)] if len(old) == len(new) else _changes(old, new)
        for before, after in parts:
            stop = at + len(before)
            if len(before) == len(after):
                places += [(i, i + 1) for i in range(at, stop)]
            else:
                places += [(at, stop)] * len(after)
            at = stop
    return places


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple]:
    """Yields parts of both, in order and complete: equal ones, and what replaces what."""
    for _, start, stop, *place in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield old[start:stop], new[slice(*place)]
