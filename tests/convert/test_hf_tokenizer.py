"""The exported tokenizer.json, read by the `tokenizers` library, gives our ids."""

import argparse
import asyncio
import collections
import functools
import itertools
import json
import unicodedata
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.convert.hf_tokenizer import tokenizer_json
from bert_jax.data.tokenization import SPECIAL_TOKENS, WordPieceTokenizer, load_tokenizer
from bert_jax.data.vocabulary import count_words, train_vocabulary

tokenizers = pytest.importorskip("tokenizers")

# Scripts with everything that the rules speak of.
BLOCKS = (
    *((0x0, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x5D0, 0x669), (0x905, 0x96F), (0xE01, 0xE3A)),
    *((0x1E00, 0x1FFF), (0x2000, 0x20B5), (0x3001, 0x30FF), (0x3400, 0x34FF), (0x4E00, 0x4EFF)),
    *((0xAC00, 0xADFF), (0xE000, 0xE0FF), (0xF900, 0xFA2D), (0xFE30, 0xFE4F), (0xFF01, 0xFF5E)),
    *((0x1D400, 0x1D454), (0x2B820, 0x2B91F), (0x2F800, 0x2FA1D)),
)
CHARACTERS = st.one_of(*(st.integers(*block).map(chr) for block in BLOCKS))
PARTS = st.one_of(
    CHARACTERS,
    st.text(CHARACTERS, max_size=8),
    st.sampled_from(
        [*SPECIAL_TOKENS, "ΟΔΟΣ", "Σ", "ΑΣ'Σ", "Σ\u0301", "İ", "ß", "e\u0301", "\u0344", " ", "\n"]
    ),
    st.integers(99, 202).map(lambda n: "z" * n),
)
TEXTS = st.lists(PARTS, max_size=10).map("".join)


@functools.cache
def vocabulary() -> bytes:
    """Most characters of BLOCKS in both forms: that a rule is broken shows in the ids."""
    codes = itertools.chain(*(range(first, last + 1) for first, last in BLOCKS))
    known = [chr(code) for code in codes if code % 31 and chr(code).strip()]
    pieces = [*SPECIAL_TOKENS, *known, *(f"##{c}" for c in known), "mask", "οδος", "ΟΔΟΣ", "##zzz"]
    return "".join(f"{piece}\n" for piece in pieces).encode()


@functools.cache
def pair(lowercase: bool):
    """Ours, and theirs made of our tokenizer.json."""
    ours = WordPieceTokenizer(vocabulary(), lowercase)
    return ours, exported(ours, vocabulary())


def exported(ours, content: bytes):
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(ours, content)))


def differences(ours, theirs, texts: Iterable[str]) -> list[str]:
    """The texts of which the two have other ids; in none of them is a special token looked for."""
    theirs.encode_special_tokens = True
    texts = list(texts)
    found = theirs.encode_batch(texts, add_special_tokens=False)
    return [t for t, other in zip(texts, found, strict=True) if other.ids != ours.encode(t)]


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.booleans())
def test_any_text_gives_our_ids(text, lowercase):
    ours, theirs = pair(lowercase)
    assert differences(ours, theirs, [text]) == []


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.booleans())
def test_special_tokens_in_text_stand_for_themselves_unless_told_otherwise(text, lowercase):
    ours, theirs = pair(lowercase)
    theirs.encode_special_tokens = False
    found = theirs.encode(text, add_special_tokens=False).ids
    assert found == ours.encode(text, special_tokens=True)


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_code_point_that_python_knows_gives_our_ids(lowercase):
    """Of characters newer than Python's version of Unicode the library may know a lower case."""
    ours, theirs = pair(lowercase)
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    texts = [f"{c} A{c}b É{c}Σ" for c in characters]
    wrong = [text[0] for text in differences(ours, theirs, texts)]
    assert {unicodedata.category(character) for character in wrong} <= {"Cn"}
    assert len(wrong) < 300


@pytest.mark.parametrize(
    ("name", "lowercase"),
    [
        ("bert-base-uncased", True),
        ("bert-base-cased", False),
        ("bert-base-multilingual-cased", False),
        ("bert-base-chinese", True),
    ],
)
def test_real_text_gives_our_ids(shared_data, name, lowercase):
    path = shared_data / "vocab" / name / "vocab.txt"
    ours = load_tokenizer(path, lowercase)
    theirs = exported(ours, path.read_bytes())
    assert differences(ours, theirs, real_lines(shared_data, every=20)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lowercase"), [("bert-base-uncased", True), ("bert-base-cased", False)]
)
def test_all_real_text_gives_our_ids(shared_data, name, lowercase):
    path = shared_data / "vocab" / name / "vocab.txt"
    ours = load_tokenizer(path, lowercase)
    assert differences(ours, exported(ours, path.read_bytes()), real_lines(shared_data)) == []


def real_lines(folder, every: int = 1) -> list[str]:
    """Each line of all text, questions and sentences there are; of the novels each `every`th."""
    files = [
        p for p in sorted(folder.rglob("*")) if p.suffix in (".txt", ".raw", ".json", ".conll")
    ]
    lines = []
    for path in files:
        step = every if path.name == "eltec_eng_train.txt" else 1
        lines += path.read_text(encoding="utf-8").split("\n")[::step]
    return lines


@pytest.mark.parametrize("lowercase", [True, False])
def test_single_texts_and_pairs_have_bert_s_form(lowercase):
    ours, theirs = pair(lowercase)
    theirs.encode_special_tokens = False
    a, b = ours.encode("Naïve text."), ours.encode("2nd, [MASK]", special_tokens=True)
    single, both = theirs.encode("Naïve text."), theirs.encode("Naïve text.", "2nd, [MASK]")
    assert single.ids == [ours.cls_id, *a, ours.sep_id]
    assert both.ids == [*single.ids, *b, ours.sep_id]
    assert both.type_ids == [0] * len(single.ids) + [1] * (len(b) + 1)


def test_decoded_text_is_readable():
    ours, theirs = pair(True)
    assert theirs.decode(ours.encode("mask οδος zzzz.")) == "mask οδος zzzz."


def test_of_equal_lines_of_a_vocabulary_the_last_one_counts():
    content = "\r\n".join([*SPECIAL_TOKENS, "a", "b ", "a", "##c"]).encode()
    ours = WordPieceTokenizer(content, lowercase=True)
    assert exported(ours, content).encode("a b ac").ids == [2, 7, 6, 7, 8, 3]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def sentencepiece_model(request, tmp_path_factory):
    texts = [unicodedata.normalize("NFKC", t) for t in pieces_of_text()]
    path = tmp_path_factory.mktemp("model") / "vocab.model"
    words = count_words(request.param, texts, lowercase=True)
    train_vocabulary(request.param, words, 400, path)
    return path


def pieces_of_text() -> list[str]:
    """Docstrings of the standard library that every Python carries."""
    modules = [argparse, asyncio, collections, functools, itertools, json, unicodedata]
    found = [getattr(m, n).__doc__ or "" for m in modules for n in dir(m) if n[0] != "_"]
    return [line for text in found for line in text.splitlines()]


@pytest.mark.parametrize("lowercase", [True, False])
def test_sentencepiece_models_give_our_ids(sentencepiece_model, lowercase):
    ours = load_tokenizer(sentencepiece_model, lowercase)
    theirs = exported(ours, sentencepiece_model.read_bytes())
    texts = [*pieces_of_text(), "", " ", "  two  spaces ", "unseen ¿qué? ÀÉ ﬁ x² ™", "tab\tand\r"]
    assert differences(ours, theirs, texts) == []
    theirs.encode_special_tokens = False
    for text in ["a [MASK].", "[MASK] is", "the[MASK]of [SEP] [MASK]  end [CLS]"]:
        found = theirs.encode(text, add_special_tokens=False).ids
        assert found == ours.encode(text, special_tokens=True), text
