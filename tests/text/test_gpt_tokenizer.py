"""GPT's tokenizer against a plain restatement of the released program, and its other properties.

The restatement does what openai/finetune-transformer-lm's text_utils.py does, one step after the
other and without any cache, on the same ftfy and spaCy. (transformers 5 has that program no more:
its OpenAIGPTTokenizer splits words as BERT does.)
"""

import builtins
import json
import re
import shutil

import numpy as np
import pytest

from bert_jax.text.gpt_tokenizer import GptTokenizer
from bert_jax.text.tokenizers import find_vocabulary, load_tokenizer, read_vocabulary
from tests.text.test_tokenization import fuzz_strings
from tests.text.test_tokenizers import write_gpt

TEXTS = (
    "Mr. Darcy's sister couldn't -- wouldn't -- come; \"Why?!\" he cried (twice).",
    "a\n\n b — c– d… it´s “so”\r\nx",
    "&lt;b&gt; &amp; <b> &amp;\n &amp;",
    "schÃ¶n â€” l’Ã©tÃ©",  # wrongly decoded
    "ﬁ ｆｕｌｌ İstanbul ΟΔΟΣ ẞ",
    "U.S. U.K.Government a.m. 10a.m. $3.50/day, v1.2-rc http://x.org/a_b?c=d :-) :( ) 8-D",
    "C:\\\\dir\\a +++ ** __ {{}} [[x]] ~~ ||",
    "\ud800 \0 \x1b[31mred\x1b[0m \u200b\ufeff",
    "_start_ <unk> </w> _classify_",
    "",
    " \n ",
    "中文字符和很长的一个句子没有空格",
    "a" * 300,
)


@pytest.fixture
def tiny(tmp_path):
    """Returns the folder of a small vocabulary."""
    pytest.importorskip("ftfy", reason="needs the extra gpt")
    pytest.importorskip("spacy", reason="needs the extra gpt")
    write_gpt(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def folder(shared_data):
    pytest.importorskip("ftfy", reason="needs the extra gpt")
    pytest.importorskip("spacy", reason="needs the extra gpt")
    return shared_data / "checkpoints" / "gpt1"


@pytest.fixture(scope="module")
def tokenizer(folder) -> GptTokenizer:
    return load_tokenizer(folder, lowercase=True)  # type: ignore


class Released:
    """The released program, restated."""

    PATTERN = "|".join(
        ["-+", "~+", "!+", '"+', ";+", r"\?+", r"\++", ",+", r"\)+", r"\(+", r"\+", "/+"]
        + [r"\*+", r"\[+", r"\]+", r"\}+", r"\{+", r"\|+", "_+"]
    )

    def __init__(self, folder):
        import ftfy
        from spacy.lang.en import English

        self.fix, self.nlp = ftfy.fix_text, English()
        self.ids = json.loads((folder / "encoder_bpe_40000.json").read_text())
        lines = (folder / "vocab_40000.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
        self.merges = {tuple(line.split()): rank for rank, line in enumerate(lines)}

    def standardize(self, text):
        for old, new in (("—", "-"), ("–", "-"), ("―", "-"), ("…", "..."), ("´", "'")):
            text = text.replace(old, new)
        text = re.sub(f"({self.PATTERN})", r" \1 ", text)
        text = re.sub(r"\s*\n\s*", " \n ", text)
        return re.sub(r"[^\S\n]+", " ", text).strip()

    def pieces(self, word):
        symbols = list(word[:-1]) + [word[-1] + "</w>"]
        while True:
            ranks = [self.merges.get(pair) for pair in zip(symbols, symbols[1:], strict=False)]
            if all(rank is None for rank in ranks):
                break
            best = min(rank for rank in ranks if rank is not None)
            place = ranks.index(best)  # one at a time, from the left
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
        joined = " ".join(symbols)
        return ("\n</w>" if joined == "\n  </w>" else joined).split(" ")

    def encode(self, text):
        words = [word.text.lower() for word in self.nlp(self.standardize(self.fix(text)))]
        return [self.ids.get(piece, 0) for word in words for piece in self.pieces(word)]


@pytest.fixture(scope="module")
def released(folder) -> Released:
    return Released(folder)


@pytest.fixture(scope="module")
def novels(shared_data) -> str:
    path = shared_data / "text" / "eltec_eng_train.txt"
    with open(path, encoding="utf-8") as file:
        return file.read(5_000_000)


# ------------------------------------------------------------------------- ids


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_odd_texts_have_the_ids_of_the_released_program(text, tokenizer, released):
    assert tokenizer.encode(text) == released.encode(text)


def test_random_texts_have_the_ids_of_the_released_program(tokenizer, released):
    for number, text in enumerate(fuzz_strings(0)):
        if number == 300:
            break
        assert tokenizer.encode(text) == released.encode(text), ascii(text)


def compare_lines(text, tokenizer, released):
    for line in text.split("\n"):
        assert tokenizer.encode(line) == released.encode(line), line


def test_novels_have_the_ids_of_the_released_program(novels, tokenizer, released):
    compare_lines(novels[:30_000], tokenizer, released)
    part = novels[100_000:110_000]  # with line breaks
    assert tokenizer.encode(part) == released.encode(part)


def test_words_are_forgotten_without_a_change_of_ids(tiny, novels):
    tokenizer, forgetful = (load_tokenizer(tiny, lowercase=True) for _ in range(2))
    forgetful.MAX_WORDS = 100  # type: ignore
    for line in novels[:3_000].split("\n"):
        assert forgetful.encode(line) == tokenizer.encode(line)


def test_decoding_joins_pieces_and_punctuation(tokenizer):
    ids = tokenizer.encode("Unaffable, isn't he?\nNo.")
    assert tokenizer.decode(ids) == "unaffable, isn't he? \n no."
    assert tokenizer.decode([40_478, *tokenizer.encode("yes"), 40_480]) == "_start_ yes _classify_"


def test_what_continues_a_word_depends_on_the_piece_before(tokenizer):
    ids = np.array([tokenizer.cls_id, *tokenizer.encode("unaffable me"), tokenizer.end_id])
    pieces = [tokenizer.pieces[i] for i in ids]
    assert pieces == ["_start_", "un", "af", "fable</w>", "me</w>", "_classify_"]
    assert tokenizer.continues(ids).tolist() == [False, False, True, True, False, False]
    assert tokenizer.continues(ids[:0]).tolist() == []


# --------------------------------------------------------------------- offsets


def test_places_are_those_of_the_text_as_it_was_given(tokenizer):
    text = " “It’s\n schÃ¶n”… &amp; Ｕnaffable"
    found = [text[start:stop] for start, stop in tokenizer.character_spans(text)]
    assert found[:7] == ["“", "It", "’s", "\n ", "sch", "Ã¶", "n"]
    assert found[7:] == ["”", "…", "&", "Ｕn", "af", "fable"]
    text = "\u3000e\u0301 o\0"  # ftfy replaces the first space and both words
    assert [text[start:stop] for start, stop in tokenizer.character_spans(text)] == ["e\u0301", "o"]


# ----------------------------------------------------------------------- files


def test_folder_files_and_copies_give_the_same_tokenizer(folder, tokenizer, tmp_path):
    shutil.copy(folder / "encoder_bpe_40000.json", tmp_path / "vocab.json")
    shutil.copy(folder / "vocab_40000.bpe", tmp_path / "merges.txt")
    given = read_vocabulary(folder)
    (tmp_path / given.copy_name).write_bytes(given.content)
    assert find_vocabulary(tmp_path) == str(tmp_path / "vocab.gpt")
    for path in (tmp_path, folder / "vocab_40000.bpe", tmp_path / "merges.txt"):
        assert read_vocabulary(path).content == given.content
    copy = load_tokenizer(tmp_path / "vocab.gpt", lowercase=True)
    assert (copy.pieces, copy.fingerprint) == (tokenizer.pieces, tokenizer.fingerprint)


def test_a_vocabulary_that_has_the_special_tokens_keeps_their_ids(tiny):
    ids = json.loads((tiny / "vocab.json").read_text())
    more = ("_start_", "_delimiter_", "_classify_", "zz</w>")
    ids |= {piece: len(ids) + i for i, piece in enumerate(more)}
    (tiny / "vocab.json").write_text(json.dumps(ids))
    tokenizer = load_tokenizer(tiny, lowercase=True)
    assert len(tokenizer.pieces) == len(ids)
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.end_id) == tuple(ids[p] for p in more[:3])


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("missing", ["ftfy", "spacy"])
def test_without_ftfy_or_spacy_it_refuses(tiny, missing, monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **options):
        if name.split(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    message = f"GPT's tokenizer needs the package {missing}: pip install 'bert_jax\\[gpt\\]'"
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tiny, lowercase=True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("merges.txt", None, "GPT's vocabulary has two files, and .*merges.txt is missing"),
        ("vocab.json", None, "vocab.json is missing: put it beside merges.txt"),
        ("vocab.json", b"[]", "vocab.json is not a vocabulary of GPT: it must be a JSON object"),
        ("vocab.json", b'{"a": 1}', "with the ids 0, 1, 2"),
        ("vocab.json", b"[1]", "vocab.json is not a vocabulary of GPT"),
        ("vocab.json", b"\xff", "vocab.json is not a vocabulary of GPT"),
        (
            "vocab.json",
            b'{"a": 0}',
            "the piece with id 0 must be <unk>, the unknown one, and it is",
        ),
        ("merges.txt", b"\xff", "The merges beside .*vocab.json are not UTF-8 text"),
        ("merges.txt", b"#\na b c\n", "it needs pieces, and merges of two pieces each"),
    ],
)
def test_bad_files_are_refused(tiny, name, content, message):
    with pytest.raises(ValueError, match="has lower case only: set data.lowercase=True"):
        load_tokenizer(tiny, lowercase=False)
    (tiny / name).unlink()
    if content is not None:
        (tiny / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tiny, lowercase=True)
