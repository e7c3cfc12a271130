"""SentencePiece models as tokenizers: ours, and ones trained elsewhere."""

import io

import pytest
import sentencepiece

from bert_jax.text.sentencepiece_tokenizer import SentencePieceTokenizer
from bert_jax.text.tokenization import SPECIAL_TOKENS
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import count_words, train_vocabulary

TEXT = [
    "The quick brown fox, it is said, jumps over the lazy dog; the dog sleeps.",
    "Nothing is lost (or so they say): it jumps, it sleeps, and it's over.",
    "我们是中国人。我们说中文。",
] * 5


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("model") / "vocab.model"
    train_vocabulary("bpe", count_words("bpe", TEXT, lowercase=True), 200, path)
    return str(path)


def train_elsewhere(**options) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        vocab_size=400,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def pieces(tokenizer, text, **options):
    return [tokenizer.pieces[i] for i in tokenizer.encode(text, **options)]


def test_ids_are_those_of_the_library(model):
    tokenizer = load_tokenizer(model, lowercase=True)
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    assert tokenizer.pieces[:5] == SPECIAL_TOKENS
    assert len(tokenizer.pieces) == processor.get_piece_size()
    for text in [*TEXT, "", "unseen: ¿qué?", "  two  spaces\t"]:
        assert tokenizer.encode(text) == processor.encode(text.lower())
    cased = load_tokenizer(model, lowercase=False)
    assert cased.encode("THE") == processor.encode("THE") != processor.encode("the")
    assert cased.fingerprint != tokenizer.fingerprint


def test_a_special_token_replaces_a_word_with_its_space(model):
    tokenizer = load_tokenizer(model, lowercase=True)
    found = pieces(tokenizer, "The [MASK] is [SEP] lost, [MASK].", special_tokens=True)
    assert [p for p in found if p in SPECIAL_TOKENS] == ["[MASK]", "[SEP]", "[MASK]"]
    assert found[0] == "▁the" and found[-2:] == ["[MASK]", "."] and "▁" not in found


def test_special_tokens_that_a_model_would_find_in_text_are_text_all_the_same():
    vocabulary = train_elsewhere(
        user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"], pad_id=3, byte_fallback=True
    )
    theirs = sentencepiece.SentencePieceProcessor(model_proto=vocabulary)
    assert theirs.piece_to_id("[MASK]") in theirs.encode("the [MASK]")
    tokenizer = SentencePieceTokenizer(vocabulary, lowercase=False)
    assert tokenizer.mask_id not in tokenizer.encode("the [MASK]")
    assert tokenizer.mask_id in tokenizer.encode("the [MASK]", special_tokens=True)
    assert tokenizer.pieces[tokenizer.pad_id] == "<pad>"
    assert tokenizer.pieces[tokenizer.unk_id] == "<unk>"


def test_a_model_without_the_special_tokens_is_refused():
    with pytest.raises(ValueError, match=r"x.model lacks \[PAD\], \[MASK\]: .*control_symbols"):
        SentencePieceTokenizer(train_elsewhere(), lowercase=False, path="x.model")


def test_continuation_is_what_no_space_goes_before(model):
    tokenizer = load_tokenizer(model, lowercase=True)
    for index, piece in enumerate(tokenizer.pieces):
        starts = index < 5 or piece[0] in "▁,.;:()'。" or "\u4e00" <= piece[0] <= "\u9fff"
        assert tokenizer.is_continuation[index] == (not starts), piece
    bytewise = SentencePieceTokenizer(
        train_elsewhere(control_symbols=["<cls>", "<sep>", "<mask>"], pad_id=3, byte_fallback=True),
        lowercase=False,
    )
    assert bytewise.is_continuation[bytewise.pieces.index("<0xE4>")]


@pytest.mark.parametrize("text", ["it is lost, they say.", "我们是中国人。", "the dog (it sleeps)"])
def test_decode_gives_the_text_back(model, text):
    tokenizer = load_tokenizer(model, lowercase=True)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    ids = [tokenizer.cls_id, *tokenizer.encode("The [MASK].", special_tokens=True)]
    assert tokenizer.decode(ids) == "[CLS] the [MASK]."
