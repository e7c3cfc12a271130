"""Tables of texts: their forms, quoting, labels, and rows that are broken."""

import csv
import json

import pytest

from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.tables import (
    Columns,
    form_of,
    parse_column,
    read_plain_texts,
    read_table,
)
from bert_jax.data.labelled.texts import read_texts

PAIRS = Columns("a", "b", "label")


@pytest.fixture
def read(read_file):
    def read(content, columns=PAIRS, name="file.tsv", **arguments):
        return read_file(read_table, content, name, columns=columns, **arguments)

    return read


def test_a_row_is_an_example_with_its_place(read, tmp_path):
    (first, second), counts = read("label\ta\tb\n1\tone \ttwo\n0\tthree\t\n")
    assert first == TextExample(f"{tmp_path}/file.tsv, line 2", "0", "one ", "two", ("1",))
    assert (second.id, second.text_b, second.labels) == ("1", "", ("0",))
    assert counts == {"empty_texts": 1}


def test_tsv_is_not_quoted(read):
    examples, _ = read('a\tb\tlabel\n"He said\tyes"\tx\n""\t"\ty\n')
    assert [(e.text_a, e.text_b) for e in examples] == [('"He said', 'yes"'), ('""', '"')]


TRICKY = [
    ['comma, "quotes"', "two\nlines\n\nand a blank one", "x"],
    ["", '"', "y"],
    ["\u2028", "a" * 200_000, "z"],
]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_quoted_fields_are_what_the_csv_module_wrote(read, tmp_path, ending):
    with open(tmp_path / "written", "w", newline="") as file:
        writer = csv.writer(file, lineterminator=ending)
        writer.writerows([["a", "b", "label"], *TRICKY])
    examples, counts = read((tmp_path / "written").read_bytes(), name="f.csv")
    assert [[e.text_a, e.text_b, *e.labels] for e in examples] == TRICKY
    assert [e.where.split()[-1] for e in examples] == ["2", "6", "7"]
    assert counts == {"empty_texts": 2} | ({"crlf_lines": 4} if ending == "\r\n" else {})


def test_columns_by_number_where_there_is_no_header(read):
    examples, _ = read("gj04\t1\t\tA sentence.\n", Columns(3, label=1))
    assert [(e.where[-6:], e.text_a, e.labels) for e in examples] == [
        ("line 1", "A sentence.", ("1",))
    ]
    assert [parse_column(name) for name in ("3", "text", "")] == [3, "text", None]


def test_json_lines_and_arrays_are_tables_too(read):
    rows = [{"a": "x", "b": "y", "label": value} for value in ("c", 2, 0.5, True)]
    expected = [("c",), ("2",), ("0.5",), ("true",)]
    for content in ("\n".join(map(json.dumps, rows)), json.dumps(rows, indent=1)):
        examples, _ = read(content, name="f.json")
        assert [e.labels for e in examples] == expected


def test_labels_are_stripped_and_counted(read):
    examples, counts = read("a\tb\tlabel\nx\ty\t good \n\n \nx\ty\tgood\n")
    assert [e.labels for e in examples] == [("good",)] * 2
    assert counts == {"labels_stripped": 1, "blank_lines": 2}


def test_several_labels_in_a_column_a_list_or_columns_of_their_own(read):
    separated = Columns("a", label="label", separator=",")
    examples, _ = read("a\tlabel\nx\tp,q\ny\t\n", separated)
    assert [e.labels for e in examples] == [("p", "q"), ()]
    rows = [{"a": "x", "label": ["p", "q"]}, {"a": "y", "label": []}]
    examples, _ = read("\n".join(map(json.dumps, rows)), separated, "f.jsonl")
    assert [e.labels for e in examples] == [("p", "q"), ()]
    own = Columns("a", label=("p", "q"))
    examples, _ = read("a,p,q\nx,1,1.0\ny,0,false\n", own, "f.csv")
    assert [e.labels for e in examples] == [("p", "q"), ()]


def test_labels_are_not_looked_at_where_they_are_not_wanted(read):
    for content in ("a\tb\nx\ty\n", "a\tb\tlabel\nx\ty\t\n"):
        examples, _ = read(content, labelled=False)
        assert [(e.text_a, e.text_b, e.labels) for e in examples] == [("x", "y", None)]


def test_ids_of_the_file(read):
    examples, _ = read("index\ta\n7\tx\n7\ty\n", Columns("a", id="index"), labelled=False)
    assert [e.id for e in examples] == ["7", "7"]


def test_only_the_rows_of_one_value(read):
    columns = Columns("a", label="label", keep=("language", "zh"))
    examples, counts = read("language\ta\tlabel\nen\tx\t1\nzh\ty\t0\n", columns)
    assert [(e.id, e.text_a) for e in examples] == [("0", "y")]
    assert counts == {"rows_left_out": 1}


@pytest.mark.parametrize(
    "content, name, message",
    [
        ("", "f.tsv", "f.tsv has no examples"),
        ("a\tb\tlabel\n\n", "f.tsv", "has no examples"),
        ("a\tb\tlabel\nx\ty\n", "f.tsv", "line 2: 2 columns where the header has 3"),
        ("a\tb\tlabel\nx\ty\tz\t1\n", "f.tsv", "line 2: 4 columns where the header has 3"),
        (
            "a\ttext\tlabel\nx\ty\tz\n",
            "f.tsv",
            r"no column 'b' \(data.text_b\); it has 'a', 'te",
        ),
        ("a\tb\ta\nx\ty\tz\n", "f.tsv", "the header has 'a' more than once"),
        ("a\tb\tlabel\nx\ty\tz\nx\ty\t\n", "f.tsv", "line 3: no label"),
        ('a,b,label\nx,y,z\n"x,y,z\nx,y,z\n', "f.csv", "line 3: .* quote that is never closed"),
        ('a,b,label\n"x"x,y,z\n', "f.csv", "line 2: a broken row of CSV"),
        (
            '{"a": "x", "b": "y"}',
            "f.jsonl",
            r"no column 'label' \(data.label\); it has 'a'",
        ),
        (
            '{"a": "x", "b": 5, "label": 1}',
            "f.jsonl",
            r"'b' \(data.text_b\) is a JSON int, 5, ins",
        ),
        ('{"a": "x", "b": "\\ud800", "label": 1}', "f.jsonl", "'b' .* lone surrogate"),
        ('{"a": "x", "b": "y", "label": null}', "f.jsonl", "line 1: no label"),
        ('{"a": "x", "b": "y", "label": {}}', "f.jsonl", "a JSON dict instead of a label"),
        ("text\nlabel\n", "f", "f is not a table: its name must end in .tsv, .csv or .json"),
    ],
)
def test_errors(read, content, name, message):
    with pytest.raises(ValueError, match=message):
        read(content, name=name)


@pytest.mark.parametrize(
    "content, columns, message",
    [
        (
            "a\tp\tq\nx\t-1\t0\n",
            {"label": ("p", "q")},
            "line 2: '-1' for the label 'p', instead of",
        ),
        ("a\nx\n", {}, "data.label is missing: name the column"),
        ("", {"label": 1}, "all columns by the header .* or all by numbers"),
    ],
)
def test_errors_of_columns(read, content, columns, message):
    with pytest.raises(ValueError, match=message):
        read(content, Columns("a", **columns))


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("f.TSV", "{}", "tsv"),
        ("f.csv.gz", "", "csv"),
        ("f.ndjson", "", "json"),
        ("f.txt", "[a\tb", "tsv"),
        ("f", "a\tb", "tsv"),
        ("f", '{"a": 1}', "json"),
    ],
)
def test_form(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content)
    assert form_of(str(tmp_path / name)) == expected


def test_plain_lines_are_texts_one_for_one(read_file):
    content = b"\xef\xbb\xbfone\ttab\r\n\r\n two\n"
    examples, counts = read_file(read_plain_texts, content, "f.txt")
    assert [(e.id, e.text_a, e.text_b, e.labels) for e in examples] == [
        ("0", "one\ttab", None, None),
        ("1", "", None, None),
        ("2", " two", None, None),
    ]
    assert counts == {"utf8_boms": 1, "crlf_lines": 2, "empty_texts": 1}
    with pytest.raises(ValueError, match="has no lines"):
        read_file(read_plain_texts, "", "f.txt")


def test_lines_are_texts_or_objects(tmp_path):
    (path := tmp_path / "in.txt").write_bytes(
        b"\xef\xbb\xbf first \r\n\n"
        b'  {"text_a": "a", "text_b": "b"}\n'
        b'{"text_a": "a", "text_b": null, "label": 3}\n'
        b"last"
    )
    texts = list(read_texts(str(path)))
    pairs = [("first", None), ("", None), ("a", "b"), ("a", None), ("last", None)]
    assert [(text.text_a, text.text_b) for text in texts] == pairs
    assert [text.where for text in texts] == [f"{path}, line {n}" for n in range(1, 6)]
    assert [str(text) for text in texts[1:4]] == ["", "a | b", "a"]


@pytest.mark.parametrize(
    "line, message",
    [
        ('{"text_a": "a"', "line 2: not a JSON object .*write a text that begins with {"),
        ('{"text": "a"}', "line 2: an object needs a string `text_a`.* its fields are text"),
        ('{"text_a": 3}', "line 2: an object needs a string `text_a`"),
    ],
)
def test_a_text_that_cannot_be_used_is_named(line, message, tmp_path):
    (path := tmp_path / "in.txt").write_text(f"fine\n{line}\n")
    with pytest.raises(ValueError, match=message):
        list(read_texts(str(path)))
