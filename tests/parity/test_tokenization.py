"""In what transformers' tokenizers differ from google-research/bert's, and in nothing else.

Ours gives the ids of google-research/bert (tests/text/test_tokenization.py). transformers has one
on the library in Rust, which AutoTokenizer loads, and one in Python, its earlier one.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import pytest

from bert_jax.text.tokenization import CLEAN, SPECIAL_TOKENS, basic_tokens
from bert_jax.text.tokenizers import load_tokenizer

transformers = pytest.importorskip("transformers")
legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")


class Kind(NamedTuple):
    """One way in which a tokenizer of transformers differs, as README lists it."""

    name: str
    programs: tuple[str, ...]  # `rust`, `python` or both
    applies: Callable[[str, bool], bool]  # (a run of text without spaces, lowercase) -> may differ
    example: str
    lowercase: bool
    ours: list[str]
    theirs: list[str]


def any_character(test):
    return lambda run, lowercase: any(map(test, run))


def is_newer(character):
    """Unassigned, or of another category than in Unicode 3.2: the programs' tables may differ."""
    category = unicodedata.category(character)
    return category == "Cn" or category != unicodedata.ucd_3_2_0.category(character)


BOTH = ("rust", "python")
SPECIAL = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))
LONG = "a" * 101
KINDS = (
    Kind(
        "special tokens in the text",
        BOTH,
        lambda run, lowercase: SPECIAL.search(run) is not None,
        *("a [MASK]", True, ["a", "[", "mask", "]"], ["a", "[MASK]"]),
    ),
    Kind(
        "words of 101 to 200 characters",
        BOTH,
        lambda run, lowercase: any(100 < len(word) <= 200 for word in basic_tokens(run, lowercase)),
        *(LONG, True, ["a", *["##a"] * 100], ["[UNK]"]),
    ),
    Kind(
        "private use",
        BOTH,
        any_character(lambda c: unicodedata.category(c) == "Co"),
        *("a\ue001a", False, ["a", "##\ue001", "##a"], ["a", "##a"]),
    ),
    Kind(
        "final sigma",
        ("rust",),
        lambda run, lowercase: lowercase and "Σ" in run,
        *("ΑΣ", True, ["α", "##ς"], ["α", "##σ"]),
    ),
    Kind(
        "ideographs U+2B820 to U+2B91F",
        ("rust",),
        any_character(lambda c: 0x2B820 <= ord(c) <= 0x2B91F),
        *("a\U0002b820", True, ["a", "\U0002b820"], ["a", "##\U0002b820"]),
    ),
    Kind(
        "characters of newer Unicode",
        ("rust",),
        any_character(is_newer),
        *("a\u2e5da", True, ["a", "\u2e5d", "a"], ["a", "##\u2e5d", "##a"]),
    ),
    Kind(
        "unassigned characters",
        ("python",),
        any_character(lambda c: unicodedata.category(c) == "Cn"),
        *("a\u0378a", True, ["a", "##\u0378", "##a"], ["a", "##a"]),
    ),
    Kind(
        "characters that NFC composes",
        ("python",),
        lambda run, lowercase: not unicodedata.is_normalized("NFC", run.translate(CLEAN)),
        *("e\u0301", False, ["e", "##\u0301"], ["é"]),
    ),
)


def make_theirs(program, path, lowercase):
    """A function text -> ids."""
    if program == "rust":
        vocabulary = transformers.models.bert.tokenization_bert.load_vocab(path)
        tokenizer = transformers.BertTokenizer(vocab=vocabulary, do_lower_case=lowercase)
    else:
        tokenizer = legacy.BertTokenizerLegacy(str(path), do_lower_case=lowercase)
    return lambda text: tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))


def kinds_of(run, program, lowercase):
    return [k.name for k in KINDS if program in k.programs and k.applies(run, lowercase)]


@pytest.mark.parametrize(
    "program, kind",
    [
        pytest.param(program, kind, id=f"{kind.name}, {program}")
        for kind in KINDS
        for program in kind.programs
    ],
)
def test_what_is_listed_differs(tmp_path, program, kind):
    pieces = (*SPECIAL_TOKENS, *sorted({*kind.ours, *kind.theirs} - {*SPECIAL_TOKENS}))
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    theirs = make_theirs(program, path, kind.lowercase)
    ours = load_tokenizer(path, kind.lowercase)
    assert [pieces[i] for i in ours.encode(kind.example)] == kind.ours
    assert [pieces[i] for i in theirs(kind.example)] == kind.theirs
    assert kind.name in kinds_of(kind.example, program, kind.lowercase)


def their_words(program, lowercase):
    """The function text -> words, before they are cut into pieces."""
    if program == "python":
        return legacy.BasicTokenizer(do_lower_case=lowercase).tokenize
    backend = transformers.BertTokenizer(do_lower_case=lowercase).backend_tokenizer

    def words(text):
        text = backend.normalizer.normalize_str(text)
        return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]

    return words


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
@pytest.mark.parametrize("program", BOTH)
def test_no_other_character_differs(program, lowercase):
    """All assigned characters but a sample of ideographs and Hangul, and of the many others."""
    words = their_words(program, lowercase)
    for code in range(0x110000):
        category = unicodedata.category(character := chr(code))
        is_ideograph = category == "Lo" and code >= 0x3400
        if category == "Cs" or code % {"Co": 997, "Cn": 997}.get(
            category, 31 if is_ideograph else 1
        ):
            continue
        text = f"A{character}b"
        if words(text) != basic_tokens(text, lowercase):
            assert kinds_of(text, program, lowercase), f"U+{code:04X}"
