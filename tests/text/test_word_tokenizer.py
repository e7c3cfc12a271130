"""Words, their ids and their characters; bilm-tf's numbers written out by hand."""

import pickle

import numpy as np
import pytest

from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import count_words, merge_counts, train_vocabulary
from bert_jax.text.word_tokenizer import WordTokenizer

OURS = b"<S>\n</S>\n<UNK>\nthe\ncat\n.\n"
# Words that another program split: "n't" is none of basic tokenization's.
GIVEN = b"the\ndo\nn't\n<S>\n</S>\n<UNK>\n"


def pieces(tokenizer, text, **options):
    return [tokenizer.pieces[i] for i in tokenizer.encode(text, **options)]


def test_the_vocabulary_decides_how_text_is_split():
    assert pieces(WordTokenizer(OURS, False), "the cat.") == ["the", "cat", "."]
    assert pieces(WordTokenizer(GIVEN, False, grows=True), "the U.S. don't") == [
        *("the", "U.S.", "don't")
    ]
    # Without words, text is taken as it is given.
    assert WordTokenizer(b"<S>\n</S>\n<UNK>\n", False).is_tokenized


def test_a_given_word_is_one_piece_whatever_it_contains():
    for vocabulary in (OURS, GIVEN):
        tokenizer = WordTokenizer(vocabulary, False, grows=True)
        (first,), (second,) = tokenizer.encode_word("U.S."), tokenizer.encode_word("U.S.")
        assert first == second and tokenizer.pieces[first] == "U.S."
        assert tokenizer.encode_word("") == []
    assert WordTokenizer(OURS, True).encode_word("Cat") == [4]


def test_unseen_words_grow_only_if_wanted():
    fixed, grows = WordTokenizer(OURS, False), WordTokenizer(OURS, False, grows=True)
    assert fixed.encode("a dog a") == [2, 2, 2]
    assert grows.encode("a dog a") == [6, 7, 6]
    assert grows.pieces[6:] == ["a", "dog"] and grows.vocabulary_size == 6
    assert grows.is_continuation.shape == (8,)
    # Another process starts from the file again.
    copy = pickle.loads(pickle.dumps(grows))
    assert len(copy.pieces) == 6 and copy.encode("dog") == [6]
    assert copy.fingerprint == grows.fingerprint == fixed.fingerprint


def test_characters_are_bytes_between_markers_all_one_higher_than_in_bilm_tf():
    tokenizer = WordTokenizer(OURS, False, grows=True)
    (unseen,) = tokenizer.encode_word("né")
    characters = tokenizer.characters
    assert characters.dtype == np.int16 and characters.shape == (7, 50)
    padding = [261] * 47
    assert characters[tokenizer.cls_id].tolist() == [259, 257, 260, *padding]
    assert characters[tokenizer.sep_id].tolist() == [259, 258, 260, *padding]
    assert characters[4].tolist()[:6] == [259, 100, 98, 117, 260, 261]
    (long,) = tokenizer.encode_word("a" * 60)
    assert tokenizer.characters[long].tolist() == [259, *[98] * 48, 260]
    assert characters[unseen].tolist()[:6] == [259, 111, 0xC3 + 1, 0xA9 + 1, 260, 261]


def test_a_trained_vocabulary_has_all_words_by_frequency(tmp_path):
    chunks = ["b b a Dog, <S>", "a b , c"]
    counts = merge_counts((count_words("words", [text], False) for text in chunks), "words")
    counted = train_vocabulary("words", counts, vocab_size=64, path=tmp_path / "vocab.txt")
    expected = ["<S>", "</S>", "<UNK>", "b", ",", "a", "<", ">", "Dog", "S", "c"]
    assert (tmp_path / "vocab.txt").read_text().split("\n") == [*expected, ""]
    assert counted["entries"] == len(expected) and counted["words"] == 8
    tokenizer = load_tokenizer(tmp_path / "vocab.txt", lowercase=False)
    assert isinstance(tokenizer, WordTokenizer) and not tokenizer.is_tokenized
    assert tokenizer.unk_id not in tokenizer.encode(" ".join(chunks))


def test_a_file_without_the_three_markers_is_no_vocabulary_of_words(tmp_path):
    with pytest.raises(
        ValueError, match="lacks </S>, <UNK>: a vocabulary of words has one line for"
    ):
        WordTokenizer(b"<S>\nthe\n", False, "vocab.txt")
    with pytest.raises(ValueError, match=r"vocab.txt is not UTF-8 text \(line 2\)"):
        WordTokenizer(b"<S>\n\xff\n", False, "vocab.txt")
