"""Words that are added to a WordPiece vocabulary: which, and with which ids."""

import string
from collections import Counter

import pytest

from bert_jax.config.data import DataConfig, num_frequent
from bert_jax.files.errors import UserError
from bert_jax.text.extra_tokens import count_extra_tokens, extend, frequent_words, read_words
from bert_jax.text.tokenization import SPECIAL_TOKENS
from bert_jax.text.word_tokenizer import WordTokenizer
from bert_jax.text.wordpiece import WordPieceTokenizer

LETTERS = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
PIECES = [*SPECIAL_TOKENS, *LETTERS, "the", "##ing"]
VOCABULARY = "\n".join(PIECES).encode()  # without a line break at its end
TOKENIZER = WordPieceTokenizer(VOCABULARY, lowercase=True)


def test_frequent_words_are_those_of_many_pieces():
    """By hand: `at` and `going` have 2 and 3 pieces, `été` none, `b2b` a digit; `rare` is rare."""
    counts = Counter(the=99, at=98, going=5, moon=7, river=7, b2b=50, rare=4, ж=6)
    found = frequent_words(counts, TOKENIZER, 4)
    assert found.words == ("moon", "river", "ж", "going")
    assert found.describe() == (
        "new tokens: 4 of 4 words that occur 5 times or more and have 3 pieces or more, or none:"
        " moon, river, ж, going"
    )
    with pytest.raises(UserError, match="frequent:5: the text has only 4 words that occur .*:4"):
        frequent_words(counts, TOKENIZER, 5)


def test_a_file_is_read_in_the_form_of_the_tokenizer(tmp_path):
    (tmp_path / "terms.txt").write_text("Moon\n\nthe\n  Éclair \nmoon\n")
    found = read_words(str(tmp_path / "terms.txt"), TOKENIZER)
    assert (found.words, found.known) == (("moon", "eclair"), ("the", "moon"))
    assert "new tokens: 2 of terms.txt: moon, eclair; 2 left out" in found.describe()
    assert count_extra_tokens(str(tmp_path / "terms.txt"), TOKENIZER) == 2


def test_new_pieces_follow_the_old_ones_and_begin_longer_words():
    tokenizer = WordPieceTokenizer(extend(VOCABULARY, ["moon", "river"]), lowercase=True)
    assert tokenizer.pieces == (*PIECES, "moon", "river")
    pieces = [tokenizer.pieces[index] for index in tokenizer.encode("the moonlit Moon")]
    assert pieces == ["the", "moon", "##l", "##i", "##t", "moon"]
    assert extend(VOCABULARY + b"\n", ["moon"]) == extend(VOCABULARY, ["moon"])


@pytest.mark.parametrize(
    "content, message",
    [
        ("moon\nNew York", "terms.txt:2: 'New York' is 2 words for the tokenizer"),
        ("moon's", "is 3 words for the tokenizer"),
        ("x" * 201, "above 200 letters"),
        ("the\n", "no word that the vocabulary lacks"),
        (b"\xff", "cannot be read: it is not UTF-8 text"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_cannot_be_used(content, message, tmp_path):
    path = tmp_path / "terms.txt"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message):
        read_words(str(path), TOKENIZER)


def test_settings_that_cannot_be_used():
    with pytest.raises(UserError, match="data.extra_tokens='frequent:0' is not frequent:N"):
        count_extra_tokens("frequent:0", TOKENIZER)
    with pytest.raises(UserError, match="is for a given vocabulary, and .*'train:wordpiece' is"):
        DataConfig(extra_tokens="terms.txt")
    words = WordTokenizer(b"<S>\n</S>\n<UNK>\nmoon\n", False)
    with pytest.raises(UserError, match="needs a WordPiece vocabulary .* of the kind 'words'"):
        count_extra_tokens("frequent:5", words)
    assert num_frequent("frequent.txt") == 0
