"""Unknown tokens and case, of texts and vocabularies that are made to fit or not."""

import pytest

from bert_jax.text.tokenizers import Vocabulary
from bert_jax.tools.doctor import words
from tests.tiny import SPECIAL
from tests.tools.doctor.conftest import bad, found

TEXTS = ["the House of Ann and Bob", "the river in the Town of Rome"]
SMALL = "the house of ann and bob river in town rome".split()
CASED = ["the", "House", "of", "Ann", "and", "Bob", "river", "in", "Town", "Rome"]


def look(pieces, lowercase, texts=tuple(TEXTS)):
    content = ("\n".join([*SPECIAL, *pieces]) + "\n").encode()
    tokenizer = Vocabulary("vocab.txt", "vocab.txt", ".txt", content).tokenizer(lowercase)
    return list(words.check(words.count(texts, tokenizer), tokenizer, "train"))


@pytest.mark.parametrize("pieces, lowercase", [(SMALL, True), (CASED, False)])
def test_a_vocabulary_that_fits(pieces, lowercase):
    findings = look(pieces, lowercase)
    assert bad(findings) == []
    found(findings, "ok", "0.00% of 13 tokens are unknown")


def test_a_vocabulary_without_capitals_for_text_that_is_not_lower_cased():
    findings = look(SMALL, False)
    assert "lowercase=true" in found(findings, "warning", "the vocabulary has no capitals").fix
    # House, Ann, Bob, Town, Rome of 13 words
    unknown = found(findings, "problem", "38.46% of 13 tokens are unknown, such as 'House', 'Ann'")
    assert unknown.fix.startswith("Fix the casing mismatch first")


def test_capitals_that_no_text_reaches():
    findings = look(CASED, True)
    assert found(findings, "warning", "has words with capitals").fix.endswith("lowercase=false")


def test_text_without_capitals_for_a_vocabulary_with_some():
    findings = look([*CASED, *SMALL], False, ["the river of the house"])
    found(findings, "note", "train: the text is in lower case")


def test_the_share_of_unknown_tokens_decides():
    texts = ["the house of ann"] * 8 + ["the quux of ann"]  # 1 of 36
    finding = found(look(SMALL, True, texts), "warning", "2.78% of 36 tokens are unknown")
    assert "train:wordpiece" in finding.fix
    found(look(SMALL, True, texts * 1 + ["the house"] * 9), "ok", "1.85% of 54 tokens")


def test_vocabularies_of_words_leave_out_rare_ones():
    content = ("\n".join(["<S>", "</S>", "<UNK>", *SMALL]) + "\n").encode()
    tokenizer = Vocabulary("vocab.txt", "vocab.txt", ".txt", content).tokenizer(True)
    texts = ["the house of ann"] * 8 + ["the quux of ann"]
    assert bad(words.check(words.count(texts, tokenizer), tokenizer, "train")) == []


def test_the_released_vocabularies(shared_data):
    pieces = {
        name: (shared_data / "vocab" / name / "vocab.txt").read_text().split("\n")[:-1]
        for name in ("bert-base-cased", "bert-base-uncased", "bert-base-multilingual-cased")
    }
    assert {name for name, of in pieces.items() if words.is_cased(of)} == {
        "bert-base-cased",
        "bert-base-multilingual-cased",
    }
