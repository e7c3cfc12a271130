"""Trained vocabularies: reproducible, bounded, of the requested size, and useful."""

import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from bert_jax.text import vocabulary
from bert_jax.text.tokenization import SPECIAL_TOKENS
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import (
    WordCounts,
    check_vocabulary,
    count_words,
    merge_counts,
    train_vocabulary,
)
from bert_jax.text.wordpiece import WordPieceTokenizer

# Of pieces of words.
KINDS = ("wordpiece", "unigram", "bpe")
SYLLABLES = [a + b for a in "bdfglmnprst" for b in "aeiou"]


def make_text(lines: int = 400, seed: int = 0) -> list[str]:
    """Words of one to four syllables, the first ones frequent, with marks and a few accents."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(3000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    text = [" ".join(rng.choices(words, weights, k=12)).capitalize() + "." for _ in range(lines)]
    return [*text, "Naïve Élan, 我们 don't (so)."]


def train(kind: str, text: list[str], vocab_size: int, path, lowercase: bool = True):
    return train_vocabulary(kind, count_words(kind, text, lowercase), vocab_size, path)


def file_for(kind: str, folder) -> str:
    return os.path.join(folder, "vocab.txt" if kind == "wordpiece" else "vocab.model")


# ---- reproducible


def test_the_same_text_gives_the_same_bytes_in_any_process_and_in_any_chunks(tmp_path):
    text = make_text()
    program = (
        "import sys; from bert_jax.text.vocabulary import *; text = sys.stdin.read().split('\\n')\n"
        f"for kind in {KINDS}: counts = count_words(kind, text, True);"
        f"train_vocabulary(kind, counts, 500, {str(tmp_path)!r} + '/' + kind)"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        input="\n".join(text).encode(),
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONIOENCODING": "utf-8"},
        check=True,
    )
    for kind in KINDS:
        path, other = tmp_path / f"{kind}-chunks", tmp_path / kind
        parts = [count_words(kind, text[i : i + 37], True) for i in range(0, len(text), 37)]
        train_vocabulary(kind, merge_counts(parts), 500, path)
        assert path.read_bytes() == other.read_bytes()


# ---- counts


def test_sentencepiece_counts_what_stands_between_spaces_in_parts():
    counts = count_words("bpe", ["The House, the house,", "x" * 100], lowercase=True).counts
    assert counts == {"the": 2, "house,": 2, "x" * 48: 2, "xxxx": 1}


def test_counts_are_bounded_and_what_was_dropped_is_counted(monkeypatch):
    monkeypatch.setattr(vocabulary, "MAX_WORDS", 50)
    words = [f"w{i}" for i in range(60) for _ in range(i + 1)] + [f"r{i}" for i in range(60)]
    counts = count_words("wordpiece", words, lowercase=True)
    assert len(counts.counts) < 100
    assert all(counts.counts[f"w{i}"] == i + 1 for i in range(20, 60))  # the frequent ones stay
    assert counts.dropped["words"] + len(counts.counts) == 120
    assert counts.dropped["occurrences"] + counts.counts.total() == len(words)
    merged = merge_counts([counts, counts])
    assert merged.dropped["occurrences"] + merged.counts.total() == 2 * len(words)


def test_of_equally_rare_words_the_same_ones_stay_in_any_order(monkeypatch):
    monkeypatch.setattr(vocabulary, "MAX_WORDS", 50)
    words = [f"w{i}" for i in range(100)]
    kept = []
    for order in (words, words[::-1]):
        counts = WordCounts()
        counts.add(order)
        kept.append(counts.counts)
    assert len(kept[0]) == 50 and kept[0] == kept[1]


# ---- WordPiece


def test_merges_are_those_of_byte_pair_encoding(tmp_path):
    """By hand: of the pairs, b+c occurs most (9); then a+bc (6), then x+bc (3)."""
    words = Counter({"abc": 6, "xbc": 3, "ad": 2})
    counts = WordCounts()
    counts.add(words)
    train_vocabulary("wordpiece", counts, 64, tmp_path / "vocab.txt")
    entries = (tmp_path / "vocab.txt").read_text().splitlines()
    alphabet = [form for c in "abcdx" for form in (c, f"##{c}")]
    expected = [*SPECIAL_TOKENS, *alphabet, "##bc", "abc", "xbc", "ad"]
    # After the last pair that occurs, the trainer continues with parts of words for a while.
    assert entries[: len(expected)] == expected
    assert set(entries[len(expected) :]) <= {"##ab", "##xb", "##ad", "##abc", "##xbc"}


def test_rare_characters_give_way_when_the_alphabet_fills_half_of_the_vocabulary(tmp_path):
    text = [chr(0x4E00 + i) * (200 - i) for i in range(100)]
    report = train("wordpiece", text, 64, tmp_path / "vocab.txt")
    entries = (tmp_path / "vocab.txt").read_text().splitlines()
    assert report["characters"] == 32 and report["characters_left_out"] == 68
    assert entries == [*SPECIAL_TOKENS, *(chr(0x4E00 + i) for i in range(32))]


# ---- SentencePiece


@pytest.mark.parametrize("kind", KINDS)
def test_no_word_is_unknown_to_a_vocabulary_of_the_requested_size(kind, tmp_path):
    path = file_for(kind, tmp_path)
    report = train(kind, make_text(), 300, path)
    tokenizer = load_tokenizer(path, lowercase=True)
    assert report["entries"] == len(tokenizer.pieces) == 300
    assert tokenizer.pieces[:5] == SPECIAL_TOKENS and len(set(tokenizer.pieces)) == 300
    assert not any(tokenizer.unk_id in tokenizer.encode(line) for line in make_text())


def test_unigram_is_trained_on_thinned_out_counts_of_large_texts(monkeypatch):
    words = {f"w{i}": i for i in range(1, 1000)}
    assert vocabulary._thin_out(words) == words
    monkeypatch.setattr(vocabulary, "UNIGRAM_CHARACTERS", 100_000)
    thinned = vocabulary._thin_out(words)
    characters = sum(count * (len(word) + 1) for word, count in thinned.items())
    assert characters == pytest.approx(100_000, rel=0.01)
    assert all(abs(thinned[f"w{i}"] / thinned["w999"] - i / 999) < 0.03 for i in range(200, 1000))


@pytest.mark.parametrize("kind", KINDS)
def test_words_that_the_trainer_cannot_have_are_counted(kind, tmp_path):
    text = [*make_text(50), "a\u2581b \u2585 a\ue000b \ud800"]
    assert train(kind, text, 100, tmp_path / "vocab")["words_left_out"] == 4


TOO_MANY = ["".join(chr(0x4E00 + (37 * i + j) % 900) for j in range(30)) for i in range(900)]


@pytest.mark.parametrize(
    ("kind", "text", "size", "message"),
    [
        *((kind, ["", "\ue000"], 100, f"no words, so no {kind} vocabulary") for kind in KINDS),
        ("bpe", TOO_MANY, 600, r"room for \d+ of the text's 900 characters, .* needs 98%"),
        ("letters", [], 100, "'letters'. Available: wordpiece, unigram, bpe, words"),
        ("wordpiece", ["a"], 63, "vocab_size=63 is too small .* at least 64"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_nothing_written(kind, text, size, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(kind, text, size, tmp_path / "vocab")
    assert not os.listdir(tmp_path)


def test_a_vocabulary_larger_than_the_table_is_refused():
    tokenizer = WordPieceTokenizer("\n".join([*SPECIAL_TOKENS, "a"]).encode(), lowercase=True)
    check_vocabulary(tokenizer, 6, "vocab.txt")
    with pytest.raises(ValueError, match="vocab.txt has 6 entries.*set model.vocab_size=6"):
        check_vocabulary(tokenizer, 5, "vocab.txt")
