"""What tokenizers of all kinds have in common."""

import json
import pickle
import random

import pytest

from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import count_words, train_vocabulary
from tests.text.byte_level import train_byte_level

SENTENCES = ["The quick brown fox, it is said, jumps over the dog.", "我们是中国人。"] * 5
TEXTS = (
    "The fox  jumps. ",
    "",
    "  it is İsaid é",
    "我们说中文 brown中",
    "\u2603 fox",
    "ﬁ x², \ud800",
    "a e\u0301 \u0301b",
)


def write_gpt(folder) -> str:
    """Writes a small vocabulary in the two files of Hugging Face's form; returns their folder."""
    letters = "abcdefghijklmnopqrstuvwxyz.,'"
    pieces = ["<unk>", *letters, *(f"{c}</w>" for c in letters), "th", "the</w>", "\n</w>"]
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\n")
    return str(folder)


def load(kind, folder, lowercase=True) -> Tokenizer:
    if kind == "gpt":
        pytest.importorskip("ftfy", reason="needs the extra gpt")
        pytest.importorskip("spacy", reason="needs the extra gpt")
        return load_tokenizer(write_gpt(folder), lowercase)
    if kind in ("roberta", "modernbert"):
        pytest.importorskip("tokenizers")
        train_byte_level(folder / "tokenizer.json", kind)
        return load_tokenizer(folder / "tokenizer.json", lowercase=False)
    path = folder / ("vocab.model" if kind in ("bpe", "unigram") else "vocab.txt")
    train_vocabulary(kind, count_words(kind, SENTENCES, lowercase=True), 120, path)
    return load_tokenizer(path, lowercase)


@pytest.fixture(
    scope="module", params=["wordpiece", "bpe", "unigram", "words", "gpt", "roberta", "modernbert"]
)
def tokenizer(request, tmp_path_factory) -> Tokenizer:
    return load(request.param, tmp_path_factory.mktemp(request.param))


def test_a_pickled_tokenizer_is_the_same(tokenizer):
    ids = [tokenizer.encode(text) for text in TEXTS]
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert [copy.encode(text) for text in TEXTS] == ids
    assert copy.fingerprint == tokenizer.fingerprint and list(copy.pieces) == list(tokenizer.pieces)


def test_special_tokens_in_text_are_text_unless_asked_for(tokenizer):
    names = {tokenizer.pieces[i] for i in (tokenizer.cls_id, tokenizer.sep_id, tokenizer.end_id)}
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.end_id, tokenizer.mask_id}
    text = " the ".join(["", *sorted(names), ""])
    assert not special & set(tokenizer.encode(text))
    found = tokenizer.encode(text, special_tokens=True)
    assert [tokenizer.pieces[i] for i in found if i in special] == sorted(names)
    assert tokenizer.encode("", special_tokens=True) == []


def random_texts(count: int) -> list[str]:
    """Texts with odd spaces, and characters that are dropped or taken apart."""
    rng = random.Random(0)
    characters = [*"aabbcd eoi,.-\0\tÉİΣx각中\u2028\u3000\u200b", "[MASK]"]
    return ["".join(rng.choices(characters, k=rng.randint(0, 12))) for _ in range(count)]


def test_each_id_has_its_characters_in_order(tokenizer):
    for text in (*TEXTS, *random_texts(500)):
        ids, spans = tokenizer.encode(text), tokenizer.character_spans(text)
        assert len(ids) == len(spans)
        assert all(0 <= start <= stop <= len(text) for start, stop in spans)
        assert [stop for _, stop in spans] == sorted(stop for _, stop in spans), ascii(text)
        for index, (start, stop) in zip(ids, spans, strict=True):
            piece = tokenizer.pieces[index].replace("▁", "").removeprefix("##")
            piece = piece.removesuffix("</w>").removeprefix("Ġ")
            # One character may become several, of which SentencePiece gives it to one piece.
            if piece.isascii() and piece.isalpha() and text[start:stop].isascii() and start < stop:
                found = text[start:stop]
                assert (found.lower() if tokenizer.lowercase else found) == piece
        covered = {place for start, stop in spans for place in range(start, stop)}
        assert covered >= {place for place, character in enumerate(text) if character.isalpha()}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.bin", b"", "not a known kind of vocabulary: its name must end in .txt"),
        ("vocab.txt", None, "cannot be read: No such file"),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\nthe\n", r"vocab.txt lacks \[SEP\], \[MASK\]"),
        ("vocab.txt", b"[PAD]\n\xff\n", "not UTF-8 text \\(line 2\\)"),
        ("m.model", b"the\n", "m.model is not a SentencePiece model"),
        ("vocab.gpt", b'{"pieces": ', "vocab.gpt is not a byte-pair vocabulary of GPT"),
        ("", None, "has no vocabulary of GPT: it needs encoder_bpe_40000"),
    ],
)
def test_a_vocabulary_that_cannot_be_used_is_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path / name, lowercase=True)
