"""Lines and JSON objects of files, and the treatment of malformed bytes."""

import gzip
import json
from collections import Counter

import pytest

from bert_jax.data.labelled.reading import has_objects, read_lines, read_objects


@pytest.fixture
def write(tmp_path):
    def write(content: bytes, name: str = "file.txt") -> str:
        path = tmp_path / name
        path.write_bytes(content)
        return str(path)

    return write


def lines_of(path):
    counts = Counter()
    lines = list(read_lines(path, counts))
    return lines, +counts


def test_lines_end_at_newlines_only(write):
    text = "a\u2028b\x0bc\x85d\x1ee, and many more characters\n\nlast"
    lines = [(1, text.split("\n")[0]), (2, ""), (3, "last")]
    assert lines_of(write(text.encode()))[0] == lines
    assert lines_of(write(gzip.compress(text.encode()), "file.gz"))[0] == lines


def test_marks_carriage_returns_and_nul_are_repaired_and_counted(write):
    content = b"\xef\xbb\xbffirst\r\n" + b"second\n" * 30 + b"th\0ird\r\n"
    lines, counts = lines_of(write(content))
    assert [lines[0], lines[1], lines[-1]] == [(1, "first"), (2, "second"), (32, "third")]
    assert counts == {"utf8_boms": 1, "crlf_lines": 2, "nul_lines": 1}


def test_blocks_do_not_show_in_the_lines(write):
    expected = ["x" * (i % 700) + "é" for i in range(3000)]
    assert [line for _, line in lines_of(write("\n".join(expected).encode()))[0]] == expected


@pytest.mark.parametrize(
    "content, message",
    [
        (b"good\n\xc4\xe3\xba\xc3\n", r"line 2: invalid UTF-8 \(.* at byte 0\); iconv converts"),
        ("text".encode("utf-16"), "is in UTF-16: iconv -f UTF-16 -t UTF-8"),
        (bytes(range(256)), "is a binary file"),
    ],
)
def test_other_encodings_are_errors(write, content, message):
    with pytest.raises(ValueError, match=message):
        lines_of(write(content))
    with pytest.raises(ValueError, match="there is no such file"):
        lines_of("none.tsv")


OBJECTS = [{"a": 1}, {"a": "two\nlines \u4f60"}]


@pytest.mark.parametrize(
    "content, places",
    [
        ("\n".join(map(json.dumps, OBJECTS)), ["line 1", "line 2"]),
        ("\n\n".join(map(json.dumps, OBJECTS)) + "\r\n", ["line 1", "line 3"]),
        (json.dumps(OBJECTS, indent=2), ["element 1", "element 2"]),
    ],
)
def test_objects_a_line_or_in_an_array(write, content, places):
    path = write(content.encode())
    assert list(read_objects(path, Counter())) == [
        (f"{path}, {place}", value) for place, value in zip(places, OBJECTS, strict=True)
    ]


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"a": 1}\n{"a": 1', r"line 2: invalid JSON \("),
        ('{"a": 1}\n5', "line 2: a JSON int instead of objects"),
        ("[{}, []]", "element 2: a JSON list instead"),
        ("[" * 100_000, "JSON lists instead of objects"),
    ],
)
def test_broken_objects(write, content, message):
    with pytest.raises(ValueError, match=message):
        list(read_objects(write(content.encode()), Counter()))


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("a.jsonl", "", True),
        ("a.json.gz", "plain", True),
        ("a.txt", '\n{"tokens": []}\n', True),
        ("a.txt", "[ O\n", False),
        ("a.txt", "{ O\n", False),
        ("a.tsv", "5\n", False),
        ("a.tsv", "", False),
    ],
)
def test_json_is_told_by_its_name_or_its_first_line(write, name, content, expected):
    assert has_objects(write(content.encode(), name)) is expected
