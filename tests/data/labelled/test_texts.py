"""Texts without labels, a line each, plain or as JSON objects."""

import pathlib

import pytest

from bert_jax.data.labelled.texts import Text, read_texts


def write(path: pathlib.Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def test_lines_are_texts_or_objects(tmp_path):
    path = write(
        tmp_path / "in.txt",
        b"\xef\xbb\xbf first \r\n\n"
        b'  {"text_a": "a", "text_b": "b"}\n'
        b'{"text_a": "a", "text_b": null, "label": 3}\n'
        b"last",
    )
    texts = list(read_texts(path))
    pairs = [("first", None), ("", None), ("a", "b"), ("a", None), ("last", None)]
    assert [(text.text_a, text.text_b) for text in texts] == pairs
    assert [text.where for text in texts] == [f"{path}, line {n}" for n in range(1, 6)]


@pytest.mark.parametrize(
    "line, message",
    [
        (b'{"text_a": "a"', "line 2: not a JSON object .*write a text that begins with {"),
        (b'{"a":' * 100_000, "line 2: not a JSON object"),
        (b'{"text": "a"}', "line 2: an object needs a string `text_a`.* its fields are text"),
        (b'{"text_a": 3}', "line 2: an object needs a string `text_a`"),
        (b"a \xff", "line 2: invalid UTF-8"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line, message, tmp_path):
    path = write(tmp_path / "in.txt", b"fine\n" + line + b"\n")
    with pytest.raises(ValueError, match=message):
        list(read_texts(path))


def test_a_text_is_shown_with_its_second_part():
    assert str(Text("a")) == "a" and str(Text("a", "b")) == "a | b"
