"""Tokenizers against the outputs of google-research/bert's program, and against what they promise.

The hashes in goldens/tokenization.json are of that program's ids, and were made by

    python tests/data/test_tokenization.py PATH/TO/bert/tokenization.py    # commit eedf571

which runs it unmodified (its tensorflow and six stubbed) on the strings and the vocabulary below.
"""

import functools
import hashlib
import itertools
import json
import pathlib
import pickle
import random
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest

from bert_jax.text import tokenization
from bert_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from bert_jax.text.tokenizers import load_tokenizer

GOLDENS = pathlib.Path(__file__).parent / "goldens" / "tokenization.json"

# Characters that no version of Unicode from 14.0 to 18.0 sees differently.
BLOCKS = (
    *((0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0xA1, 0x24F), (0x300, 0x36F), (0x391, 0x3A1)),
    *((0x3A3, 0x3FF), (0x400, 0x52F), (0x5D0, 0x5EA), (0x620, 0x669), (0x905, 0x96F)),
    *((0xE01, 0xE3A), (0x1100, 0x11FF), (0x1E00, 0x1F15), (0x2010, 0x2027), (0x2030, 0x205E)),
    *((0x20A0, 0x20B5), (0x2190, 0x23DB), (0x3001, 0x303F), (0x3041, 0x3096), (0x30A0, 0x30FF)),
    *((0x3400, 0x34FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xF900, 0xFA2D)),
    *((0xFE30, 0xFE44), (0xFF01, 0xFF5E), (0x1D400, 0x1D454), (0x1F600, 0x1F640)),
    *((0x20000, 0x2A6D6), (0x2B740, 0x2B81D), (0x2B820, 0x2B91F), (0x2F800, 0x2FA1D)),
    (0xF0000, 0xFFFFD),
)
ODD = (
    *SPECIAL_TOKENS,
    *("[unused1]", "##", "##ing", "don't", "U.S.", "3.14", "unaffable", "the", "ΟΔΟΣ", "Σ"),
    *("İstanbul", "ǅ", "ß", "ẞ", "ﬁ", "e\u0301", "\u0301", "\u037e", "\u1fef", "\u2126", "\u0344"),
    *("\0", "\x07", "\x0b", "\x0c", "\x1c", "\x1f", "\x7f", "\x85", "\xad", "\u200b", "\u200d"),
    *("\ufeff", "\ufffd", "\ud800"),
)
SPACES = (
    *(" ", " ", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u1680", "\u2003", "\u2028", "\u2029"),
    *("\u202f", "\u3000"),
)

# 200,000 strings in parts, so that the first can be checked in seconds.
PARTS, PART_SIZE = 20, 10_000


def fuzz_strings(part: int) -> Iterator[str]:
    # Of Random only random() promises the same values in all versions of Python.
    draw = random.Random(part).random

    def pick(options):
        return options[int(draw() * len(options))]

    for _ in range(PART_SIZE):
        text = ""
        for _ in range(1 + int(draw() * 12)):
            first, last = pick(BLOCKS)
            length = 1 + int(draw() * 8) if draw() < 0.97 else 90 + int(draw() * 121)
            if draw() < 0.2:
                text += pick(ODD)
            else:
                codes = (first + int(draw() * (last - first + 1)) for _ in range(length))
                text += "".join(map(chr, codes))
            if draw() < 0.6:
                text += pick(SPACES)
        yield text


def code_point_strings() -> Iterator[str]:
    """Every code point: alone, inside a word, between spaces, and after an accent."""
    for character in map(chr, range(0x110000)):
        yield f"{character} A{character}b {character} É{character}"


@functools.cache
def make_vocabulary() -> bytes:
    """Most characters of BLOCKS in both forms, and some longer pieces."""
    codes = sorted({code for first, last in BLOCKS for code in range(first, last + 1)})
    known = (chr(code) for code in codes if code < 128 or code % 31)
    characters = [character for character in known if character.strip()]
    letters = "abcdefghijklmnopqrstuvwxyz"
    longer = ["the", "una", "##ffa", "##ble", "mask", "MASK", "naive", "οδος", "ΟΔΟΣ", "U", "don"]
    longer += [f"##{a}{b}" for a in letters for b in letters[::3]]
    pieces = [*SPECIAL_TOKENS, *characters, *(f"##{c}" for c in characters), *longer]
    return "".join(f"{piece}\n" for piece in pieces).encode()


@functools.cache
def make_tokenizer(lowercase: bool) -> WordPieceTokenizer:
    return WordPieceTokenizer(make_vocabulary(), lowercase)


def pieces(text: str, lowercase: bool = True, **options: bool) -> list[str]:
    tokenizer = make_tokenizer(lowercase)
    return [tokenizer.pieces[i] for i in tokenizer.encode(text, **options)]


def digest(function: Callable[[str], list], strings: Iterable[str]) -> str:
    """A hash of a function's outputs, lists of ids or of words, one after the other."""
    total = hashlib.sha256()
    for text in strings:
        line = " ".join(map(str, function(text))) + "\n"
        total.update(line.encode("utf-8", "surrogatepass"))
    return total.hexdigest()


@functools.cache
def goldens() -> dict:
    return json.loads(GOLDENS.read_text())


def case(lowercase: bool) -> str:
    return "uncased" if lowercase else "cased"


# ---- against the original program


@pytest.mark.parametrize("lowercase", [True, False])
def test_fuzz_strings_give_the_ids_of_the_original_program(lowercase):
    expected = goldens()["fuzz"][case(lowercase)][0]
    assert digest(make_tokenizer(lowercase).encode, fuzz_strings(0)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, PARTS))
@pytest.mark.parametrize("lowercase", [True, False])
def test_all_fuzz_strings_give_the_ids_of_the_original_program(lowercase, part):
    expected = goldens()["fuzz"][case(lowercase)][part]
    assert digest(make_tokenizer(lowercase).encode, fuzz_strings(part)) == expected


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_code_point_gives_the_words_of_the_original_program(lowercase):
    versions = goldens()["code_points"]
    if unicodedata.unidata_version not in versions:
        pytest.skip(f"goldens are for Unicode {', '.join(versions)}, this Python has another")
    words = functools.partial(tokenization.basic_tokens, lowercase=lowercase)
    expected = versions[unicodedata.unidata_version][case(lowercase)]
    assert digest(words, code_point_strings()) == expected


def test_samples_of_the_original_program():
    for sample in goldens()["samples"]:
        assert pieces(sample["text"], sample["lowercase"]) == sample["pieces"], sample["text"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_character_on_its_own_as_the_rules_say(lowercase):
    """The rules, character by character, on whatever Unicode version this Python has."""
    for code in range(0, 0x30000, 7):
        character = chr(code)
        category = unicodedata.category(character)
        if character in "\t\n\r " or category in ("Zs", "Zl", "Zp"):
            expected = ["a", "b"]
        elif category in ("Cc", "Cf") or character == "\ufffd":
            expected = ["ab"]
        elif lowercase and unicodedata.normalize("NFD", character) != character:
            continue
        elif category == "Mn" and lowercase:
            expected = ["ab"]
        elif category[0] == "P" or character in "$+<=>^`|~" or tokenization.is_cjk(character):
            expected = ["a", character, "b"]
        else:
            expected = [f"a{character.lower() if lowercase else character}b"]
            if lowercase and unicodedata.normalize("NFD", expected[0]) != expected[0]:
                continue
        assert tokenization.basic_tokens(f"a{character}b", lowercase) == expected, hex(code)


@pytest.mark.parametrize(
    ("name", "lowercase", "file", "expected"),
    [
        # Of the original program's ids, one line of text after the other.
        ("bert-base-uncased", True, "wiki.valid.raw", "6f1311fa4ffde282"),
        ("bert-base-cased", False, "wiki.valid.raw", "5662a8f61c0f4f9e"),
        ("bert-base-chinese", True, "google_sample_text.txt", "7a96ee071233cf86"),
        ("bert-base-multilingual-cased", False, "google_sample_text.txt", "5a08e926e7e41a70"),
    ],
)
def test_released_vocabularies_on_real_text(shared_data, name, lowercase, file, expected):
    tokenizer = load_tokenizer(shared_data / "vocab" / name / "vocab.txt", lowercase)
    with open(shared_data / "text" / file, encoding="utf-8") as lines:
        assert digest(tokenizer.encode, lines).startswith(expected)


# ---- where other programs differ from the original


def test_private_use_characters_are_kept():
    assert pieces("a\ue001b") == ["a", "##\ue001", "##b"]


def test_ideographs_of_extension_e_stand_apart():
    assert pieces("a\U0002b821b") == ["a", "\U0002b821", "b"]


def test_words_up_to_200_characters_are_split_and_longer_ones_unknown():
    assert pieces("z" * 101)[0] == "z"
    assert "".join(p.removeprefix("##") for p in pieces("z" * 200)) == "z" * 200
    assert pieces("z" * 201 + " the") == ["[UNK]", "the"]


def test_special_tokens_in_text_are_text():
    assert pieces("[MASK]") == ["[", "mask", "]"]
    assert pieces("[MASK]", lowercase=False) == ["[", "MASK", "]"]
    special = [0, 2, 3, 4]  # [UNK] is what unknown words give
    for lowercase in (True, False):
        ids = make_tokenizer(lowercase).encode(" ".join(SPECIAL_TOKENS) + "".join(SPECIAL_TOKENS))
        assert not set(special) & set(ids)


def test_final_sigma_depends_on_the_word():
    assert pieces("ΟΔΟΣ. ΟΔΟΣ") == ["οδος", ".", "οδος"]
    assert tokenization.basic_tokens("ΣΑΣ", lowercase=True) == ["σας"]


def test_accents_go_with_the_case():
    assert pieces("Naïve") == ["naive"]
    assert "ï" in "".join(pieces("naïve", lowercase=False))


def test_control_characters_join_what_they_stand_between():
    for character in "\x0b\x0c\x1c\x1d\x1e\x1f\x85\u200b\ufeff\0\ufffd":
        assert tokenization.basic_tokens(f"a{character}b", lowercase=True) == ["ab"]
        assert tokenization.split_runs(f"a{character}b c") == [f"a{character}b", "c"]


def test_spaces_are_the_rules_spaces_in_every_code_point():
    for character in map(chr, range(0x110000)):
        is_space = character in "\t\n\r" or unicodedata.category(character) in ("Zs", "Zl", "Zp")
        assert bool(tokenization.SPACES.match(character)) == is_space, hex(ord(character))


def test_unknown_word_is_unknown_as_a_whole():
    tokenizer = WordPieceTokenizer("\n".join([*SPECIAL_TOKENS, "ab", "##c", "x"]).encode(), True)
    assert tokenizer.encode("abc abcd x") == [5, 6, 1, 7]
    assert tokenizer.encode("") == tokenizer.encode(" \n ") == []


# ---- what else they promise


def test_special_tokens_count_where_asked_for():
    assert pieces("the [MASK][SEP] unaffable", special_tokens=True) == [
        *("the", "[MASK]", "[SEP]", "una", "##ffa", "##ble")
    ]
    assert pieces("the [mask]", special_tokens=True) == ["the", "[", "mask", "]"]


def test_vocabulary_file_is_read_as_the_original_reads_it(tmp_path):
    path = tmp_path / "vocab.txt"
    lines = [*SPECIAL_TOKENS, "a", "b ", "a", "", "##c"]
    path.write_bytes("\r\n".join(lines).encode())
    tokenizer = load_tokenizer(path, lowercase=True)
    assert tokenizer.pieces == (*SPECIAL_TOKENS, "a", "b", "a", "", "##c")
    assert tokenizer.encode("a b ac") == [7, 6, 7, 9]  # of equal lines the last one counts
    # Distinct pieces, by their first line: the order in which the original draws random words.
    assert tokenizer.random_words.tolist() == [0, 1, 2, 3, 4, 7, 6, 8, 9]
    assert tokenizer.is_continuation.tolist() == [False] * 9 + [True]


def test_ids_of_special_tokens_come_from_the_vocabulary():
    vocabulary = "\n".join(["x", *reversed(SPECIAL_TOKENS)]).encode()
    tokenizer = WordPieceTokenizer(vocabulary, lowercase=True)
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id) == (5, 4, 3)
    assert (tokenizer.sep_id, tokenizer.mask_id) == (2, 1)


def test_fingerprint_is_of_kind_case_and_vocabulary():
    vocabulary = "\n".join(SPECIAL_TOKENS).encode()
    prints = {
        WordPieceTokenizer(vocabulary + more, lowercase).fingerprint
        for more in (b"", b"\na")
        for lowercase in (True, False)
    }
    assert len(prints) == 4
    assert WordPieceTokenizer(vocabulary, True, "another path").fingerprint in prints


def test_a_pickled_tokenizer_is_the_same():
    tokenizer = make_tokenizer(True)
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.fingerprint == tokenizer.fingerprint
    assert copy.encode("unaffable") == tokenizer.encode("unaffable")
    assert len(pickle.dumps(tokenizer)) < len(make_vocabulary()) + 1000  # without its caches


def test_the_cache_is_bounded_and_changes_nothing(monkeypatch):
    monkeypatch.setattr(tokenization._Cache, "MAX_ENTRIES", 10)
    small = WordPieceTokenizer(make_vocabulary(), lowercase=True)
    text = " ".join(itertools.islice(fuzz_strings(0), 100))
    assert small.encode(text) == make_tokenizer(True).encode(text)
    assert len(small._run_ids) <= 10 and len(small._word_ids) <= 10


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("the mask (the mask), the!", "the mask (the mask), the!"),
        ("unaffable don't", "unaffable don't"),
        ("我是 the", "我是 the"),
    ],
)
def test_decode_is_readable(written, read):
    tokenizer = make_tokenizer(True)
    assert tokenizer.decode(tokenizer.encode(written)) == read
    assert tokenizer.decode(np.array(tokenizer.encode(written))) == read
    assert tokenizer.decode([2, *tokenizer.encode("the [MASK].", special_tokens=True)]) == (
        "[CLS] the [MASK]."
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.bin", b"", "not a known kind of vocabulary: its name must end in .txt"),
        ("vocab.txt", None, "cannot be read: No such file"),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\nthe\n", r"vocab.txt lacks \[SEP\], \[MASK\]"),
        ("vocab.txt", b"[PAD]\n\xff\n", "not UTF-8 text \\(line 2\\)"),
        ("m.model", b"the\n", "m.model is not a SentencePiece model"),
    ],
)
def test_a_vocabulary_that_cannot_be_used_is_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path / name, lowercase=True)


# ---- how the goldens were made


def write_goldens(original: pathlib.Path) -> None:
    import tempfile
    import types

    gfile = types.SimpleNamespace(GFile=functools.partial(open, encoding="utf-8", newline="\n"))
    sys.modules["tensorflow"] = types.SimpleNamespace(gfile=gfile)  # type: ignore
    sys.modules["six"] = types.SimpleNamespace(PY2=False, PY3=True)  # type: ignore
    program = types.ModuleType("original")
    exec(compile(original.read_text(), str(original), "exec"), program.__dict__)

    content = {"fuzz": {}, "code_points": {unicodedata.unidata_version: {}}, "samples": []}
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(make_vocabulary())
        file.flush()
        for lowercase in (True, False):
            full = program.FullTokenizer(file.name, do_lower_case=lowercase)

            def ids(text: str, full=full) -> list[int]:
                return full.convert_tokens_to_ids(full.tokenize(text))

            content["fuzz"][case(lowercase)] = [
                digest(ids, fuzz_strings(part)) for part in range(PARTS)
            ]
            content["code_points"][unicodedata.unidata_version][case(lowercase)] = digest(
                full.basic_tokenizer.tokenize, code_point_strings()
            )
            short = (text for text in fuzz_strings(0) if len(text) < 60 and text.isprintable())
            content["samples"] += [
                {"lowercase": lowercase, "text": text, "pieces": full.tokenize(text)}
                for text in itertools.islice(short, 20)
            ]
    GOLDENS.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_goldens(pathlib.Path(sys.argv[1]))
