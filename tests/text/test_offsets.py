"""The characters of each id: cutting the text there gives the piece again."""

import random
import unicodedata

import pytest

from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.wordpiece import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*"abcdeiosαβγοδςσ가각", "ᄀ", "ᅡ", "ᆨ", *",.!-'", "中", "文"]
PIECES = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "una", "##ffa", "##ble"]
TEXTS = [
    "",
    "   ",
    "Unaffable, bad",
    "  a\tb\u2028c  d ",
    "a\u0000b\u200bc",  # dropped inside of a word
    "ÀÉ e\u0301a",  # accents, in the letter and separate
    "İab İ",  # lower case has two characters
    "ΟΔΟΣ. ΣΣ",  # a final sigma depends on its neighbours
    "中文a中",  # words without spaces
    "각가",  # taken apart into three characters and two
    "xyz a xbz",  # unknown
    "a" * 250 + " b",  # too long to be known
    "[MASK] [CLS]",
]


@pytest.fixture(params=[True, False], ids=["uncased", "cased"])
def tokenizer(request) -> WordPieceTokenizer:
    return WordPieceTokenizer("\n".join(PIECES).encode(), lowercase=request.param)


def normal(text: str, lowercase: bool) -> str:
    """What is left of a stretch of text without spaces."""
    if lowercase:
        text = unicodedata.normalize("NFD", text.lower())
    kept = (c for c in text if unicodedata.category(c) not in ("Cc", "Cf"))
    return "".join(c for c in kept if not (lowercase and unicodedata.category(c) == "Mn"))


def check(tokenizer, text):
    ids = tokenizer.encode(text)
    spans = tokenizer.character_spans(text)
    assert len(spans) == len(ids)
    before = 0
    for index, (start, stop) in zip(ids, spans, strict=True):
        assert 0 <= start < stop <= len(text)
        assert start >= before or unicodedata.category(text[start]) == "Lo"  # Hangul, taken apart
        before = start
        piece = tokenizer.pieces[index].removeprefix("##")
        found = normal(text[start:stop], tokenizer.lowercase)
        if index != tokenizer.unk_id:
            assert piece.replace("ς", "σ") in found.replace("ς", "σ")
            if not any("가" <= c <= "힣" for c in text[start:stop]):
                assert len(found) == len(piece) or "İ" in text[start:stop]


def test_the_characters_of_a_piece_are_the_piece(tokenizer):
    rng = random.Random(0)
    letters = [*"aabbcd eoi,.-\0\tÉİΣx각中\u3000", "e\u0301"]
    mixtures = ["".join(rng.choices(letters, k=rng.randint(0, 12))) for _ in range(2000)]
    for text in (*TEXTS, *mixtures):
        check(tokenizer, text)


def test_places_are_those_of_the_text_as_it_was_given(tokenizer):
    assert tokenizer.character_spans(" una,  b\u0000c xx ") == (
        [(1, 4), (4, 5), (7, 8), (9, 10), (11, 13)]
    )


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-chinese"])
def test_on_real_text(name, shared_data):
    tokenizer = load_tokenizer(shared_data / "vocab" / name / "vocab.txt", "uncased" in name)
    lines = (shared_data / "text" / "google_sample_text.txt").read_text().splitlines()
    for line in lines:
        ids = tokenizer.encode(line)
        for index, (start, stop) in zip(ids, tokenizer.character_spans(line), strict=True):
            piece = tokenizer.pieces[index].removeprefix("##")
            if index != tokenizer.unk_id:
                assert normal(line[start:stop], tokenizer.lowercase) == piece
