"""Files of text: the same documents for any cuts, and a policy for malformed text."""

import bz2
import codecs
import dataclasses
import gzip
import json
import lzma
import pickle
import sys
import tracemalloc
from collections import Counter

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config.data import DataConfig
from bert_jax.text import files as text_files
from bert_jax.text import lines as text_lines
from bert_jax.text import sources as text
from bert_jax.text.sources import make_source

CONFIG = DataConfig(line_format="sentences", on_bad_text="error")


def read(source: str, **changes) -> tuple[list[list[str]], Counter]:
    """All documents of a source, and what was counted."""
    source = make_source(dataclasses.replace(CONFIG, source=source, **changes))
    counts = Counter()
    documents = [d for chunk in source.chunks() for d in source.read(chunk, counts)]
    return documents, +counts


def write(path, data: bytes | str) -> str:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return f"text:{path}"


def naive(data: str) -> list[list[str]]:
    """google-research/bert's reading of a file, before its tokenization."""
    documents = [[]]
    for line in data.split("\n"):
        if line := line.strip():
            documents[-1].append(line)
        else:
            documents.append([])
    return [document for document in documents if document]


# Texts with the traps: white space beyond ASCII, lines of it, every other kind of line end.
LINES = st.lists(
    st.one_of(
        st.sampled_from(["", " ", "\t", "\u3000", "\x85", "\x1c", "\u2028", "a\rb", "a\x0bb"]),
        st.text(st.characters(exclude_characters="\n\0", exclude_categories=("Cs",)), max_size=9),
    ),
    max_size=40,
)


@settings(max_examples=30, deadline=None)
@given(lines=LINES, range_bytes=st.sampled_from([1, 7, 64]), block=st.sampled_from([16, 1 << 18]))
def test_sentences_are_the_stripped_lines_however_the_file_is_cut(
    tmp_path_factory, lines, range_bytes, block
):
    # The first line keeps hypothesis's text from looking like a binary file.
    data = "\n".join(["the first of all the lines of this file, " * 20, *lines])
    path = tmp_path_factory.mktemp("text") / "a.txt"
    source = write(path, data)
    with pytest.MonkeyPatch.context() as patch:
        for module in (text, text_files):
            patch.setattr(module, "RANGE_BYTES", range_bytes)
        patch.setattr(text_files, "BLOCK", block)
        documents, _ = read(source)
    assert documents == naive(data.replace("\r\n", "\n"))


def test_files_are_taken_once_in_sorted_order_and_cut_into_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "RANGE_BYTES", 100)
    monkeypatch.setattr(text, "RANGE_BYTES", 100)
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    for name in ("sub/deep/c", "a", "b"):
        write(tmp_path / f"{name}.txt", f"{name} one.\n{name} two.\n\n" * 40)
    globs = f"text:{tmp_path}/b.*, {tmp_path}/**/*.txt,{tmp_path}/a.txt"
    source = make_source(dataclasses.replace(CONFIG, source=globs))
    chunks = pickle.loads(pickle.dumps(source)).chunks()
    assert len(chunks) > 9 and chunks == pickle.loads(pickle.dumps(chunks))
    documents = [d for chunk in chunks for d in source.read(chunk, Counter())]
    names = ("b", "a", "sub/deep/c")
    assert documents == [[f"{name} one.", f"{name} two."] for name in names for _ in range(40)]


COMPRESS = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("name", COMPRESS)
def test_compressed_files_are_recognized_by_their_bytes(tmp_path, name):
    # Two members one after the other are one file; its name suggests another format.
    compress = COMPRESS[name]
    source = write(tmp_path / "a.txt", compress(b"One.\nTwo.\n") + compress(b"Three.\n\nFour.\n"))
    assert read(source)[0] == [["One.", "Two.", "Three."], ["Four."]]
    data = compress("".join(f"{i * i % 977}\n" for i in range(50_000)).encode())
    source = write(tmp_path / "b.txt", data[: len(data) // 2])
    with pytest.raises(ValueError, match="b.txt is corrupt or truncated"):
        read(source)


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        (
            "Mr. Low went.  He ran! Why?\nOnce more.\n\nAn end.\n",
            {"line_format": "paragraphs"},
            [["Mr. Low went.", "He ran!", "Why?", "Once more."], ["An end."]],
        ),
        (
            "Mr.\n  Low\nwent. He\nran.\n\n\nOnce\nmore.",
            {"line_format": "wrapped", "document_separator": "file"},
            [["Mr. Low went.", "He ran.", "Once more."]],
        ),
        (
            "Mr. Low went.  He ran!\n\nOnce more.\nAn end.",
            {"line_format": "paragraphs", "document_separator": "line"},
            [["Mr. Low went.", "He ran!"], ["Once more."], ["An end."]],
        ),
        (
            "Mr.\n  Low\nwent. He\nran.\n\n\nOnce\nmore.",
            {"line_format": "wrapped", "document_separator": "line"},
            [["Mr. Low went.", "He ran."], ["Once more."]],
        ),
        (  # without spaces
            "今天天气很好。我们去\n公园吧!你说呢?\n",
            {"line_format": "wrapped", "document_separator": "file", "language": "zh"},
            [["今天天气很好。", "我们去公园吧!", "你说呢?"]],
        ),
    ],
    ids=["paragraphs", "wrapped", "lines", "wrapped paragraphs", "Chinese"],
)
def test_lines_are_joined_and_split_into_sentences(text, changes, expected, tmp_path):
    assert read(write(tmp_path / "a.txt", text), **changes)[0] == expected


@settings(max_examples=50, deadline=None)
@given(
    st.text(st.sampled_from("aB .!?。“”\"'()\x85\xa0\u2028\u3000\u0301é½1\t")),
    st.sampled_from(["en", "zh", "de", "hi", "xx"]),
)
def test_splitting_sentences_keeps_every_character(paragraph, language):
    sentences = text_lines.split_sentences(paragraph, language)
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)


def test_sentences_after_wide_white_space_do_not_panic():
    # sentencex 1.0.32 alone panics on these.
    assert text_lines.split_sentences("See B\u2028. Then go.", "en") == ["See B .", "Then go."]
    assert text_lines.split_sentences("B\xa0. C", "fr")


def test_overlong_documents_and_paragraphs_are_cut_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(text_lines, "MAX_DOCUMENT", 10)
    monkeypatch.setattr(text_lines, "MAX_PARAGRAPH", 10)
    source = write(tmp_path / "a.txt", "abcd\nefgh\nijkl\nmnop\n")
    assert read(source) == ([["abcd", "efgh"], ["ijkl", "mnop"]], {"cut_documents": 1})
    documents, counts = read(source, line_format="wrapped", document_separator="file")
    assert sum(documents, []) == ["abcd efgh", "ijkl mnop"]
    assert counts == {"cut_paragraphs": 1, "cut_documents": 1}


# Malformed text: (bytes, name of its count, documents when repaired, when skipped, message).
BAD_TEXT = {
    "invalid UTF-8": (
        b"A good line.\nA b\xffd line.\n",
        "invalid_utf8_lines",
        [["A good line.", "A b\ufffdd line."]],
        [["A good line."]],
        r"a.txt:2: invalid UTF-8 \(invalid start byte\)",
    ),
    "NUL": (
        b"A good line of many words.\nA b\0d line.\n",
        "nul_lines",
        [["A good line of many words.", "A bd line."]],
        [["A good line of many words."]],
        "a.txt:2: a NUL byte",
    ),
    "NUL alone ends no document": (
        b"A good line of quite many words.\n\0\nMore.\n",
        "nul_lines",
        [["A good line of quite many words.", "More."]],
        [["A good line of quite many words.", "More."]],
        "a.txt:2: a NUL byte",
    ),
    "overlong": (
        b"Good.\n" + b"words of ten " * 3 + b"\nMore.\n",
        "overlong_lines",
        [["Good.", "words of ten words", "of ten words of ten", "More."]],
        [["Good.", "More."]],
        "a.txt:2: a line of more than 20 bytes",
    ),
    "overlong without a space": (
        b"Good.\n" + "天".encode() * 10 + b"\n\nMore.\n",
        "overlong_lines",
        [["Good.", "天" * 6, "天" * 4], ["More."]],
        [["Good."], ["More."]],
        "a.txt:2: a line of more than 20 bytes",
    ),
    "UTF-16": (
        "Größe.\n\nAn end.\n".encode("utf-16"),
        "utf16_files",
        [["Größe."], ["An end."]],
        None,
        "a.txt: a file in UTF-16; iconv -f UTF-16 -t UTF-8 converts it",
    ),
    "UTF-32": (
        codecs.BOM_UTF32_BE + "Größe.\n".encode("utf-32-be"),
        "utf32_files",
        [["Größe."]],
        None,
        "a.txt: a file in UTF-32; iconv -f UTF-32 -t UTF-8 converts it",
    ),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_malformed_text_is_repaired_or_skipped_and_counted_or_named(case, tmp_path, monkeypatch):
    data, name, repaired, skipped, message = BAD_TEXT[case]
    if name == "overlong_lines":
        monkeypatch.setattr(text_lines, "MAX_LINE", 20)
    source = write(tmp_path / "a.txt", data)
    assert read(source, on_bad_text="replace") == (repaired, {name: 1})
    if skipped is None:
        with pytest.raises(ValueError, match=f"There is no text in .*{name}: 1"):
            read(source, on_bad_text="skip")
    else:
        assert read(source, on_bad_text="skip") == (skipped, {name: 1})
    with pytest.raises(ValueError, match=message):
        read(source, on_bad_text="error")


def test_line_numbers_count_from_the_start_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "RANGE_BYTES", 10)
    source = write(tmp_path / "a.txt", b"A line.\n\n" * 50 + b"A b\xffd one.\n")
    with pytest.raises(ValueError, match="a.txt:101: invalid UTF-8"):
        read(source)


def test_bom_and_line_ends_of_windows_are_dropped_and_counted(tmp_path):
    source = write(tmp_path / "a.txt", codecs.BOM_UTF8 + b"One.\r\nTwo.\r\n\r\nThree.")
    documents, counts = read(source)
    assert documents == [["One.", "Two."], ["Three."]]
    assert counts == {"utf8_boms": 1, "crlf_lines": 3}


def test_binary_and_empty_files_are_left_out_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "RANGE_BYTES", 100)
    write(tmp_path / "a.bin", bytes(range(256)) * 40)
    write(tmp_path / "b.txt", "")
    write(tmp_path / "c.txt", " \n\t\n" * 1000)
    write(tmp_path / "d.txt", "\n" * 1000 + "One.\n\n" * 50)
    documents, counts = read(f"text:{tmp_path}/*", on_bad_text="skip")
    assert documents == [["One."]] * 50
    assert counts == {"binary_files": 1, "files_without_text": 3}


BINARY = bytes(range(256)) * 40


@pytest.mark.parametrize(
    "source, content, changes, message",
    [
        ("text:/nowhere/x", "", {}, "No file matches '/nowhere/x' in data.source"),
        ("csv:a", "", {}, "Unknown data.source='csv:a'. Available: installed_docs"),
        ("installed_docs:x", "", {}, "takes no argument, but got 'x'"),
        ("", "One.", {"line_format": "wrapped"}, "wrapped needs data.document_separator=file"),
        ("", "One.", {"language": "english"}, "data.language='english' is not a language code"),
        ("", " \n\n", {}, "There is no text in .*a.txt.*files_without_text: 1"),
        ("", BINARY, {"on_bad_text": "replace"}, "a.txt is a binary file"),
        ("", BINARY, {"on_bad_text": "error"}, "a.txt is a binary file"),
        ("", COMPRESS["zstd"](b"One.\n"), {}, "pip install zstandard"),
    ],
)
def test_sources_that_cannot_be_used(tmp_path, monkeypatch, source, content, changes, message):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ValueError, match=message):
        read(source or write(tmp_path / "a.txt", content), **changes)


def test_an_overlong_line_takes_bounded_memory(tmp_path):
    write(tmp_path / "a.txt", b"x" * 20_000_000)
    tracemalloc.start()
    try:
        policy = text_lines.BadText("replace", Counter(), str)
        lines = text_lines.read_lines(text_files.FileRange(str(tmp_path / "a.txt")), policy)
        length = sum(map(len, lines))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert length == 20_000_000 and policy.counts == {"overlong_lines": 1}
    assert peak < 8e6


def test_fingerprint_tells_the_files_by_name_size_and_hash(tmp_path):
    source = write(tmp_path / "a.txt", "abc")
    fingerprint = make_source(dataclasses.replace(CONFIG, source=source)).fingerprint()
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert fingerprint["files"] == [{"name": "a.txt", "bytes": 3, "sha256": digest}]
    assert json.loads(json.dumps(fingerprint)) == fingerprint
