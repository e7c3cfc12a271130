"""What is added to batches on the host for ELMo, and tokenizers that do not fit."""

import numpy as np
import pytest

from bert_jax.models import make_add_fields, reads_new_words
from bert_jax.text.tokenization import SPECIAL_TOKENS
from bert_jax.text.word_tokenizer import WordTokenizer
from bert_jax.text.wordpiece import WordPieceTokenizer
from tests.models.test_elmo import make_elmo_config
from tests.tiny import make_model

VOCABULARY = b"<S>\n</S>\n<UNK>\nthe\ncat\n.\n"
PIECES = "\n".join([*SPECIAL_TOKENS, "a"]).encode()


def test_characters_of_words_and_zeros_in_padding():
    tokenizer = WordTokenizer(VOCABULARY, False, grows=True)
    add = make_add_fields(make_elmo_config(), tokenizer)
    ids = np.array([[3, *tokenizer.encode("unseen"), 1], [4, 1, 1]], np.int32)
    batch = {"input_ids": ids, "example_ids": np.array([[1, 1, 1], [1, 0, 0]], np.int32)}
    full = add(batch)
    assert full["character_ids"].dtype == np.int32
    np.testing.assert_array_equal(full["character_ids"][0], tokenizer.characters[[3, 6, 1]])
    assert not full["character_ids"][1, 1:].any() and full["character_ids"][1, 0].all()
    assert set(full) == {*batch, "character_ids"}
    reverse = add(batch | {"reverse_ids": ids[:, ::-1]})
    np.testing.assert_array_equal(
        reverse["reverse_character_ids"][0], full["character_ids"][0, ::-1]
    )


def test_words_past_the_softmax_are_unknown_where_they_are_predicted():
    tokenizer, ids = WordTokenizer(VOCABULARY, False), np.array([[0, 4, 5, 3]], np.int32)
    batch = {"input_ids": ids, "next_ids": ids, "example_ids": np.ones_like(ids)}
    full = make_add_fields(make_elmo_config(vocab_size=5), tokenizer)(batch)
    assert full["next_ids"].tolist() == [[0, 4, 2, 3]]
    assert full["input_ids"].tolist() == [[0, 4, 5, 3]]
    embeddings = make_elmo_config(vocab_size=5, tokens="embeddings")
    assert make_add_fields(embeddings, tokenizer)(batch)["input_ids"].tolist() == [[0, 4, 2, 3]]


def test_tokenizers_that_do_not_fit_are_refused():
    pieces, words = WordPieceTokenizer(PIECES, True), WordTokenizer(VOCABULARY, False)
    with pytest.raises(ValueError, match="needs a vocabulary of words, and this one has pieces"):
        make_add_fields(make_elmo_config(), pieces)
    with pytest.raises(ValueError, match="max_characters=20 is not 50"):
        make_add_fields(make_elmo_config(max_characters=20), words)
    with pytest.raises(ValueError, match="6 entries, more than model.vocab_size=5"):
        make_add_fields(make_model(vocab_size=5), words)
    batch = {"input_ids": np.zeros((1, 2), np.int32)}
    assert make_add_fields(make_model(), words)(batch) is batch
    assert reads_new_words(make_elmo_config()) and not reads_new_words(make_model())
