"""Sets of characters as regular expressions for other programs: the sets of our tokenizer."""

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

from bert_jax.text.tokenization import SPACES, is_cjk, is_punctuation

SIGMA, FINAL_SIGMA = "\u03a3", "\u03c2"


def is_deleted(character: str) -> bool:
    """Returns whether the tokenizer removes the character from text."""
    is_control = unicodedata.category(character) in ("Cc", "Cf") and not SPACES.match(character)
    return is_control or character in "\0\ufffd"


def is_mark(character: str) -> bool:
    """Returns whether the character is an accent, which lowercasing removes."""
    return unicodedata.category(character) == "Mn"


def is_isolated(character: str) -> bool:
    """Returns whether the character is a word of its own."""
    return is_punctuation(character) or is_cjk(character)


def is_cased(character: str) -> bool:
    """Returns whether `str.lower` takes the character before a sigma for a letter of the word."""
    return (character + SIGMA).lower()[-1] == FINAL_SIGMA


def is_case_ignorable(character: str) -> bool:
    """Returns whether `str.lower` ignores the character between a letter and a sigma."""
    return ("A" + character + SIGMA).lower()[-1] == FINAL_SIGMA and not is_cased(character)


@functools.cache
def regex(is_member: Callable[[str], Any]) -> str:
    """Returns a regular expression for one character of which `is_member` is true."""
    ranges = _ranges(code for code in range(0x110000) if is_member(chr(code)))
    return (
        "[" + "".join(_literal(a) + (f"-{_literal(b)}" if a != b else "") for a, b in ranges) + "]"
    )


def _literal(code: int) -> str:
    return re.sub(r"[-&\[\]\\^]", r"\\\g<0>", chr(code))


def _ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    """Returns sorted code points, without surrogates, as (first, last) of each run."""
    ranges: list[tuple[int, int]] = []
    for code in codes:
        if 0xD800 <= code <= 0xDFFF:
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return ranges
