"""Phrases in rows of ids, against an enumeration of all matches; files of phrases."""

import random
import tempfile

import numpy as np
import pytest

from bert_jax.text.lexicon import Entry, PhraseMatcher, check_classes, read_lexicon
from bert_jax.text.tokenization import SPECIAL_TOKENS
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import count_words, train_vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

PAD, UNK, CLS, SEP = range(4)
LETTERS = "abcd"
TOKENIZER = WordPieceTokenizer(
    "\n".join([*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "."]).encode(),
    lowercase=True,
)


def random_text(rng: random.Random, words: int) -> str:
    """Words of one to three letters, so that words and phrases often share their beginnings."""
    return " ".join("".join(rng.choices(LETTERS, k=rng.choice((1, 1, 2, 3)))) for _ in range(words))


def random_lexicon(rng: random.Random) -> list[Entry]:
    phrases = {random_text(rng, rng.randint(1, 4)) for _ in range(rng.randint(1, 40))}
    kinds = ("", "person", "place", "place/city")
    return [Entry(phrase, rng.choice(kinds), line) for line, phrase in enumerate(sorted(phrases))]


def units_of(text: str, entries: list[Entry]) -> list[tuple[str, str]]:
    """The units of a text as words, by trying every phrase at every place: (text, class or -)."""
    words, units = text.split(), []
    kinds = {tuple(entry.phrase.split()): entry.class_name for entry in entries}
    while words:
        matches = [phrase for phrase in kinds if tuple(words[: len(phrase)]) == phrase]
        longest = max(matches, key=len, default=None)
        unit = longest or (words[0],)
        units.append((" ".join(unit), "-" if longest is None else kinds[longest]))
        words = words[len(unit) :]
    return units


def read_units(ids: np.ndarray, codes: np.ndarray, matcher: PhraseMatcher) -> list[tuple[str, str]]:
    names = ("", "-", *matcher.classes)
    starts = [i for i, code in enumerate(codes) if code]
    ends = [
        next(i for i in range(start + 1, len(ids) + 1) if i == len(ids) or codes[i] or ids[i] < 4)
        for start in starts
    ]
    return [
        (TOKENIZER.decode(ids[start:end]), names[codes[start]])
        for start, end in zip(starts, ends, strict=True)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_units_are_the_longest_phrases_from_left_to_right(seed):
    rng = random.Random(seed)
    entries = random_lexicon(rng)
    matcher = PhraseMatcher(entries, TOKENIZER)
    segments = [random_text(rng, rng.randint(1, 30)) for _ in range(6)]
    ids = []
    for a, b in zip(segments[::2], segments[1::2], strict=True):
        ids += [CLS, *TOKENIZER.encode(a), SEP, *TOKENIZER.encode(b), SEP]
    ids = np.array(ids, np.uint16)
    codes = matcher.match(ids)
    expected = [unit for segment in segments for unit in units_of(segment, entries)]
    assert read_units(ids, codes, matcher) == expected

    counts = matcher.count(ids, codes, None)
    phrases = [unit for unit in expected if unit[1] != "-"]
    assert counts["units"] == len(expected) and counts["phrases"] == len(phrases)
    assert counts["unit_tokens"] == sum(i > 3 for i in ids)
    assert counts["phrase_tokens"] == sum(len(TOKENIZER.encode(text)) for text, _ in phrases)
    for name in matcher.classes:
        assert counts[f"phrases/{name}"] == sum(kind == name for _, kind in phrases)
    places = np.array(sorted(rng.sample(np.flatnonzero(codes).tolist(), len(expected) // 2)))
    masked = matcher.count(ids, codes, places)
    kinds = [expected[np.flatnonzero(codes).tolist().index(place)][1] for place in places]
    assert masked["masked_tokens"] == len(places)
    assert (
        masked["masked_phrases"] == masked["masked_phrase_tokens"] == len(kinds) - kinds.count("-")
    )
    for name in matcher.classes:
        assert masked[f"masked_phrases/{name}"] == kinds.count(name)


def codes_of(pieces: list[str], *phrases: str) -> list[int]:
    entries = [Entry(phrase, "", line) for line, phrase in enumerate(phrases)]
    ids = [TOKENIZER.pieces.index(piece) for piece in pieces]
    return PhraseMatcher(entries, TOKENIZER).match(np.array(ids, np.uint16)).tolist()


def test_phrases_begin_and_end_at_the_boundaries_of_words():
    assert codes_of(["a", "b", "##c"], "a b") == [1, 1, 0]
    assert codes_of(["c", "##a", "b"], "a b") == [1, 0, 1]
    assert codes_of(["a", "b", "##c"], "a b", "a bc", "a") == [2, 0, 0]
    assert codes_of(["a", "b", "##c"], "a b", "a") == [2, 1, 0]
    assert codes_of(["a", "b"], "a b c", "a b.") == [1, 1]
    assert codes_of(["a", "[SEP]", "b"], "a b") == [1, 0, 1]


def test_a_piece_that_continues_a_cut_word_belongs_to_the_word_before():
    """At the start of A there is none, so it begins a unit there."""
    pieces = ["[CLS]", "##a", "b", "[SEP]", "##c", "d", "[SEP]", "[CLS]", "##b", "[SEP]"]
    assert codes_of(pieces, "b") == [0, 1, 2, 0, 0, 1, 0, 0, 1, 0]


CHINESE = "北京大学生前来应聘"


def test_chinese_words_are_sequences_of_characters():
    """Longest match first, from the left: 北京大学 hides 大学生."""
    characters = sorted(set(CHINESE + "。"))
    tokenizer = WordPieceTokenizer("\n".join([*SPECIAL_TOKENS, *characters]).encode(), False)
    words = ["北京", "北京大学", "大学生", "前来", "生前", "应聘"]
    matcher = PhraseMatcher([Entry(word, "", i) for i, word in enumerate(words)], tokenizer)
    codes = matcher.match(np.array(tokenizer.encode(f"{CHINESE}。")))
    #                         北京大学    生前  来 应聘  。
    assert codes.tolist() == [2, 0, 0, 0, 2, 0, 1, 2, 0, 1]


def test_chinese_words_are_found_within_a_run_of_a_sentencepiece_model(tmp_path):
    """Pieces at the start of a run have the mark of a space, those within it do not."""
    path = str(tmp_path / "vocab.model")
    counts = count_words("bpe", [f"{CHINESE}。", "大学 。北京", "北京 大学"] * 3, lowercase=False)
    train_vocabulary("bpe", counts, 64, path)
    tokenizer = load_tokenizer(path, lowercase=False)
    matcher = PhraseMatcher([Entry("大学", "", 1), Entry("北京", "", 2)], tokenizer)
    for text in ("北京", "。北京", "北京 北京", "。大学。"):
        codes = matcher.match(np.array(tokenizer.encode(text)))
        assert (codes == 2).sum() == text.count("北京") + text.count("大学"), text


def test_phrases_with_unknown_words_are_counted_and_not_matched():
    entries = [Entry("a xyz", "", 1), Entry("a b", "", 2), Entry("A  B", "", 3), Entry("x", "", 4)]
    matcher = PhraseMatcher(entries, TOKENIZER)
    assert matcher.counts == {"phrases": 1, "repeated": 1, "with_unknown_words": 2}
    assert matcher.match(np.array([UNK, *TOKENIZER.encode("a b")])).tolist() == [1, 2, 0]


def test_only_classes_with_a_weight_have_numbers_of_their_own():
    entries = [Entry("a", "x", 1), Entry("b", "y", 2), Entry("c", "z", 3), Entry("d", "", 4)]
    matcher = PhraseMatcher(entries, TOKENIZER, weights={"x": 0.0, "z": 2.5})
    codes = matcher.match(np.array(TOKENIZER.encode("a b c d dd")))
    assert matcher.stored[codes].tolist() == [3, 2, 4, 2, 1, 0] and matcher.stored.dtype == np.int8
    assert matcher.weights[codes[:5]].tolist() == [0, 1, 2.5, 1, 1]
    assert matcher.is_weighted and not PhraseMatcher(entries, TOKENIZER).is_weighted


# ------------------------------------------------------------------ files


def test_a_file_of_phrases(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeff New York \tplace\r\n\n\t \nas well as\r\nÉva\t\n".encode())
    assert read_lexicon(path) == [
        Entry("New York", "place", 1),
        Entry("as well as", "", 4),
        Entry("Éva", "", 5),
    ]


PERSON, PHRASE = Entry("a", "person", 1), Entry("b", "", 2)


def read_bytes(content: bytes):
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return read_lexicon(file.name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read_lexicon("none.txt"), "The lexicon none.txt cannot be read: No such file"),
        (lambda: read_bytes(b" \n\t\n"), "The lexicon .* has no phrases: give one per line."),
        (lambda: read_bytes(b"ab\na\xff b\n"), r"is not UTF-8 text \(line 2\): convert it"),
        (lambda: read_bytes(b"ab\n\tperson\n"), r"line 2: 'person' is neither a phrase nor a"),
        (lambda: read_bytes(b"a\tperson\tplace\n"), "line 1: .*person.*place' is neither"),
        (lambda: check_classes(["persn"], [PERSON], "n"), "'persn', which no .* classes: person."),
        (lambda: check_classes(["person"], [PHRASE], "n"), "its classes: none"),
        (
            lambda: PhraseMatcher([Entry("\u200b", "", 2)], TOKENIZER, "names"),
            r"names, line 2: the phrase '\\u200b' has no tokens: remove it",
        ),
        (
            lambda: PhraseMatcher([PERSON, Entry("A", "place", 7)], TOKENIZER, "names"),
            "names: 'A' has the class 'place' in line 7 and 'person' in line 1: keep one of them",
        ),
    ],
)
def test_what_cannot_be_used_is_named(call, message):
    check_classes(["person"], [PERSON], "names.txt")
    with pytest.raises(ValueError, match=message):
        call()
