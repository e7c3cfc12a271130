"""Byte-level BPE and XLM-RoBERTa's tokenizer, against the `tokenizers` library and transformers."""

import json
import random
import shutil
import sys

import pytest

from bert_jax.formats.foreign import Choices
from bert_jax.formats.hf_vocabulary import folder_vocabulary
from bert_jax.text.tokenizers import load_tokenizer
from tests.text.byte_level import ROBERTA, SENTENCES, train_byte_level

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=["roberta", "prefix", "modernbert", "uncased"])
def pair(request, tmp_path_factory):
    """Our tokenizer and the library's, of one file."""
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    train_byte_level(path, request.param)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    theirs.encode_special_tokens = True
    return load_tokenizer(path, lowercase=request.param == "uncased"), theirs


def fuzz(count: int) -> list[str]:
    """Random texts of words, spaces of all kinds, marks, and characters of all of Unicode."""
    rng = random.Random(0)
    parts = [
        *("the", "The", " fox", "'s", "'S", "'ll", "don't", "12", "½", "٣", "中国", "é", "e\u0301"),
        *(" ", "  ", "   ", "      ", "\n", "\t", "\u00a0", "\u3000", "\u2028", "\x85", "\x1c"),
        *(
            "|||PHONE|||",
            "<s>",
            "[MASK]",
            "<mask>",
            "_",
            "-",
            "…",
            "😀",
            "\u200d",
            "각",
            "\u1100\u1161",
        ),
    ]
    texts = []
    for _ in range(count):
        some = rng.choices(parts, k=rng.randint(0, 9))
        some += [chr(rng.choice((0x100, 0x3000, 0xD7FF, 0x1FFFF, 0x10FFFF)) - rng.randint(0, 255))]
        rng.shuffle(some)
        texts.append("".join(some))
    return texts


def test_ids_are_the_library_s(pair):
    ours, theirs = pair
    for text in (*SENTENCES[:3], "", " ", *fuzz(1000)):
        expected = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text) == expected.ids, ascii(text)


def test_special_tokens_asked_for_take_the_spaces_that_the_file_says(pair):
    ours, theirs = pair
    theirs.encode_special_tokens = False
    mask = ours.pieces[ours.mask_id]
    for text in (f"the {mask} fox", f" {mask}{mask}  {mask}.", f"the{mask}"):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, special_tokens=True) == expected
    theirs.encode_special_tokens = True


def test_truncation_and_padding_of_the_file_are_not_applied(tmp_path):
    train_byte_level(path := tmp_path / "tokenizer.json", "roberta")
    expected = load_tokenizer(path, lowercase=False).encode(SENTENCES[0])
    theirs = tokenizers.Tokenizer.from_file(str(path))
    theirs.enable_truncation(4)
    theirs.enable_padding(length=100)
    theirs.save(str(path))
    assert load_tokenizer(path, lowercase=False).encode(SENTENCES[0]) == expected


def test_a_missing_package_is_reported(tmp_path, monkeypatch):
    train_byte_level(path := tmp_path / "tokenizer.json", "roberta")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"tokenizer.json is .*: pip install 'bert_jax\[bpe\]'"):
        load_tokenizer(path, lowercase=False)


def test_pieces_stand_for_the_characters_of_a_text(pair):
    ours, _ = pair
    lengths = ours.piece_lengths()
    for text in SENTENCES[:3]:
        assert sum(lengths[i] for i in ours.encode(text)) == len("".join(text.split()))


def test_special_tokens_and_pairs_are_transformers(tmp_path):
    train_byte_level(tmp_path / "tokenizer.json", "roberta")
    vocabulary, _ = folder_vocabulary(str(tmp_path), Choices())
    ours = vocabulary.tokenizer(False)
    theirs = transformers.RobertaTokenizer.from_pretrained(tmp_path)
    assert ours.encode("a <mask> fox", special_tokens=True) == theirs.encode(
        "a <mask> fox", add_special_tokens=False
    )
    assert ours.num_separators == 2
    pair = [ours.cls_id, *ours.encode("a fox"), 2, 2, *ours.encode("it's"), 2]
    assert theirs("a fox", "it's")["input_ids"] == pair


def test_two_files_are_the_tokenizer_json(tmp_path):
    train_byte_level(tmp_path / "tokenizer.json", "roberta")
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    (two := tmp_path / "two").mkdir()
    (two / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(["#version: 0.2", *map(" ".join, model["merges"]), ""])
    (two / "merges.txt").write_text(merges, encoding="utf-8")
    found = folder_vocabulary(str(two), Choices())[0].tokenizer(False)
    expected = load_tokenizer(tmp_path / "tokenizer.json", False)
    assert found.pieces == expected.pieces
    for text in (*SENTENCES[:3], *fuzz(200)):
        assert found.encode(text) == expected.encode(text)


ADDED = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)


@pytest.mark.parametrize(
    "part, value, message",
    [
        ("normalizer", {"type": "NFKC"}, "normalizer='NFKC': only 'NFC' or 'Lowercase'"),
        ("normalizer", {"type": "Lowercase"}, "lower-cases text: set data.lowercase=True"),
        ("pre_tokenizer", {"type": "Whitespace"}, "pre_tokenizer='Whitespace': only 'ByteLevel'"),
        ("added_tokens", [{"id": 9999, "content": "x", **ADDED}], "does not number its pieces"),
        ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": []}, r"lacks \[PAD\], \[UNK\]"),
        ("added_tokens", [{"id": 0}], "cannot be used: missing field"),
        ("model", {"type": "WordLevel"}, "not the tokenizer.json of a byte-level BPE"),
    ],
)
def test_other_components_are_refused(tmp_path, part, value, message):
    path = tmp_path / "tokenizer.json"
    train_byte_level(path, "roberta")
    content = json.loads(path.read_text()) | {part: value}
    if part == "model":
        content["added_tokens"] = []
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        load_tokenizer(path, lowercase=False)


# ------------------------------------------------------------------ XLM-RoBERTa


@pytest.fixture(scope="module")
def xlm(tmp_path_factory):
    """A folder with fairseq's SentencePiece model, and one with the tokenizer.json of it."""
    import sentencepiece

    from bert_jax.text.sentencepiece_tokenizer import parse_model

    folder = tmp_path_factory.mktemp("xlm")
    (folder / "text.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"),
        model_prefix=str(folder / "sentencepiece.bpe"),
        vocab_size=70,
        character_coverage=1.0,
        minloglevel=2,
    )
    content = (folder / "sentencepiece.bpe.model").read_bytes()
    model = parse_model(content, "model")
    pieces = [(piece.piece, piece.score) for piece in model.pieces[3:]]
    vocab = [*((name, 0.0) for name in ROBERTA), *pieces, ("<mask>", 0.0)]
    charsmap = model.normalizer_spec.precompiled_charsmap
    theirs = transformers.XLMRobertaTokenizer(vocab=vocab, _spm_precompiled_charsmap=charsmap)
    (other := folder / "json").mkdir()
    theirs.save_pretrained(other)
    return folder, other


def test_tokenizer_json_comes_before_the_model(xlm, tmp_path):
    """As in transformers; here the model is none at all."""
    folder = shutil.copytree(xlm[1], tmp_path / "both")
    (folder / "sentencepiece.bpe.model").write_text("another model")
    both, alone = (folder_vocabulary(str(path), Choices())[0] for path in (folder, xlm[1]))
    assert both == alone


@pytest.mark.parametrize("number", [0, 1], ids=["model", "tokenizer.json"])
def test_ids_of_xlm_roberta_are_transformers(xlm, number):
    ours = folder_vocabulary(str(xlm[number]), Choices())[0].tokenizer(False)
    theirs = transformers.AutoTokenizer.from_pretrained(xlm[1])
    assert list(ours.pieces[:4]) == list(ROBERTA) and ours.pieces[-1] == "<mask>"
    assert (ours.pad_id, ours.mask_id) == (1, len(ours.pieces) - 1)
    for text in SENTENCES[:3]:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
    first, second = (ours.encode(text) for text in ("The fox", "sleeps."))
    pair = [0, *first, *[2] * ours.num_separators, *second, 2]
    assert theirs("The fox", "sleeps.")["input_ids"] == pair
