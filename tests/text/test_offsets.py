"""The characters of each id: cutting the text there gives the piece again."""

import io
import random
import unicodedata

import pytest
import sentencepiece

from bert_jax.text.offsets import character_spans
from bert_jax.text.tokenization import WordPieceTokenizer
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import count_words, train_vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*"abcdeiosαβγοδςσ가각", "ᄀ", "ᅡ", "ᆨ", *",.!-'", "中", "文"]
PIECES = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "una", "##ffa", "##ble"]
TEXTS = [
    "",
    "   ",
    "Unaffable, bad",
    "  a\tb\u2028c  d ",
    "a\u0000b\u200bc",  # dropped inside of a word
    "ÀÉ e\u0301a",  # accents, in the letter and separate
    "İab İ",  # lower case has two characters
    "ΟΔΟΣ. ΣΣ",  # a final sigma depends on its neighbours
    "中文a中",  # words without spaces
    "각가",  # taken apart into three characters and two
    "xyz a xbz",  # unknown
    "a" * 250 + " b",  # too long to be known
    "[MASK] [CLS]",
]


@pytest.fixture(params=[True, False], ids=["uncased", "cased"])
def tokenizer(request) -> WordPieceTokenizer:
    return WordPieceTokenizer("\n".join(PIECES).encode(), lowercase=request.param)


def normal(text: str, lowercase: bool) -> str:
    """What is left of a stretch of text without spaces."""
    if lowercase:
        text = unicodedata.normalize("NFD", text.lower())
    kept = (c for c in text if unicodedata.category(c) not in ("Cc", "Cf"))
    return "".join(c for c in kept if not (lowercase and unicodedata.category(c) == "Mn"))


def check(tokenizer, text):
    ids = tokenizer.encode(text)
    spans = character_spans(tokenizer, text)
    assert len(spans) == len(ids)
    before = 0
    for index, (start, stop) in zip(ids, spans, strict=True):
        assert 0 <= start < stop <= len(text)
        assert start >= before or unicodedata.category(text[start]) == "Lo"  # Hangul, taken apart
        before = start
        piece = tokenizer.pieces[index].removeprefix("##")
        found = normal(text[start:stop], tokenizer.lowercase)
        if index != tokenizer.unk_id:
            assert piece.replace("ς", "σ") in found.replace("ς", "σ")
            if not any("가" <= c <= "힣" for c in text[start:stop]):
                assert len(found) == len(piece) or "İ" in text[start:stop]


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_the_characters_of_a_piece_are_the_piece(text, tokenizer):
    check(tokenizer, text)


def test_any_mixture_of_characters(tokenizer):
    rng = random.Random(0)
    letters = [
        *"aabbcd eoi,.-",
        "É",
        "e\u0301",
        "İ",
        "Σ",
        "\u0000",
        "각",
        "中",
        "\u3000",
        "x",
        "\t",
    ]
    for _ in range(2000):
        check(tokenizer, "".join(rng.choices(letters, k=rng.randint(0, 12))))


def test_places_are_those_of_the_text_as_it_was_given(tokenizer):
    assert character_spans(tokenizer, " una,  b\u0000c xx ") == (
        [(1, 4), (4, 5), (7, 8), (9, 10), (11, 13)]
    )


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-chinese"])
def test_on_real_text(name, shared_data):
    tokenizer = load_tokenizer(shared_data / "vocab" / name / "vocab.txt", "uncased" in name)
    lines = (shared_data / "text" / "google_sample_text.txt").read_text().splitlines()
    for line in lines:
        ids = tokenizer.encode(line)
        for index, (start, stop) in zip(ids, character_spans(tokenizer, line), strict=True):
            piece = tokenizer.pieces[index].removeprefix("##")
            if index != tokenizer.unk_id:
                assert normal(line[start:stop], tokenizer.lowercase) == piece


# --------------------------------------------------------------------------------- SentencePiece

SENTENCES = ["The quick brown fox, it is said, jumps.", "我们是中国人。我们说中文。"] * 5


@pytest.fixture(scope="module", params=["train:bpe", "byte fallback"])
def model(request, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("model") / "vocab.model"
    if request.param == "train:bpe":
        train_vocabulary("bpe", count_words("bpe", SENTENCES, lowercase=True), 120, path)
        return str(path)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=400,
        hard_vocab_limit=False,
        byte_fallback=True,
        control_symbols=["[PAD]", "[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
    return str(path)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize(
    "text", ["The fox  jumps. ", "", "  it is İsaid é", "我们说中文 brown中", "\u2603 fox", "ﬁ x²"]
)
def test_pieces_of_sentencepiece_have_their_characters_in_order(model, lowercase, text):
    tokenizer = load_tokenizer(model, lowercase)
    ids, spans = tokenizer.encode(text), character_spans(tokenizer, text)
    assert len(ids) == len(spans)
    assert all(start <= stop for start, stop in spans)
    assert [stop for _, stop in spans] == sorted(stop for _, stop in spans)
    for index, (start, stop) in zip(ids, spans, strict=True):
        piece = tokenizer.pieces[index].replace("▁", "")
        # One character may become several, of which the library gives it to one piece.
        if piece.isascii() and piece.isalpha() and text[start:stop].isascii() and start < stop:
            assert (text[start:stop].lower() if lowercase else text[start:stop]) == piece
    covered = {place for start, stop in spans for place in range(start, stop)}
    assert covered >= {place for place, character in enumerate(text) if character != " "}
