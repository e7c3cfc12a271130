"""Tables of texts: their forms, quoting, labels, and rows that are broken."""

import csv
import json

import pytest

from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.table_rows import form_of
from bert_jax.data.labelled.tables import (
    Columns,
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


def shown(examples):
    """Each example as "id: text_a | text_b -> labels"."""
    lines = []
    for e in examples:
        texts = e.text_a if e.text_b is None else f"{e.text_a} | {e.text_b}"
        labels = "" if e.labels is None else f" -> {','.join(e.labels)}"
        lines.append(f"{e.id}: {texts}{labels}")
    return lines


LABELS = [{"a": "x", "b": "y", "label": value} for value in ("c", 2, 0.5, True)]
OF_JSON = ["0: x | y -> c", "1: x | y -> 2", "2: x | y -> 0.5", "3: x | y -> true"]
SEVERAL = Columns("a", label="label", separator=",")
LISTS = [{"a": "x", "label": ["p", "q"]}, {"a": "y", "label": []}]


@pytest.mark.parametrize(
    "content, columns, expected, counts",
    [
        (
            "label\ta\tb\n1\tone \ttwo\n0\tthree\t.\n",
            PAIRS,
            ["0: one  | two -> 1", "1: three | . -> 0"],
            {},
        ),
        # TSV is not quoted.
        (
            'a\tb\tlabel\n"He said\tyes"\tx\n""\t"\ty\n',
            PAIRS,
            ['0: "He said | yes" -> x', '1: "" | " -> y'],
            {},
        ),
        ("gj04\t1\t\tA sentence.\n", Columns(3, label=1), ["0: A sentence. -> 1"], {}),
        ("\n".join(map(json.dumps, LABELS)), PAIRS, OF_JSON, {}),
        (json.dumps(LABELS, indent=1), PAIRS, OF_JSON, {}),
        (
            "a\tb\tlabel\nx\ty\t good \n\n \nx\ty\tgood\n",
            PAIRS,
            ["0: x | y -> good", "1: x | y -> good"],
            {"labels_stripped": 1, "blank_lines": 2},
        ),
        # Several labels in a column, a list, or columns of their own.
        ("a\tlabel\nx\tp,q\ny\t\n", SEVERAL, ["0: x -> p,q", "1: y -> "], {}),
        ("\n".join(map(json.dumps, LISTS)), SEVERAL, ["0: x -> p,q", "1: y -> "], {}),
        (
            "a\tp\tq\nx\t1\t1.0\ny\t0\tfalse\n",
            Columns("a", label=("p", "q")),
            ["0: x -> p,q", "1: y -> "],
            {},
        ),
        ("index\ta\tlabel\n7\tx\t1\n", Columns("a", None, "label", id="index"), ["7: x -> 1"], {}),
        (
            "language\ta\tlabel\nen\tx\t1\nzh\ty\t0\n",
            Columns("a", label="label", keep=("language", "zh")),
            ["0: y -> 0"],
            {"rows_left_out": 1},
        ),
    ],
)
def test_rows_become_examples(read, content, columns, expected, counts):
    name = "f.json" if content[0] in "[{" else "f.tsv"
    examples, counted = read(content, columns, name)
    assert shown(examples) == expected and counted == counts


def test_texts_to_predict_need_no_labels(read, tmp_path):
    columns = Columns("a", "b", "label", negative="c")
    for content in ("c\tb\ta\nz\ty\tx\n", "c\tb\ta\tlabel\nz\ty\tx\t\n"):
        (example,), _ = read(content, columns, labelled=False)
        where = f"{tmp_path}/file.tsv, line 2"
        assert example == TextExample(where, "0", "x", "y", None, "z")
    with pytest.raises(ValueError, match=r"no column 'c' \(task.negative\)"):
        read("a\tb\nx\ty\n", columns, labelled=False)


TRICKY = [
    ['comma, "quotes"', "two\nlines\n\nand a blank one", "x"],
    ["|;", '"', "y"],
    ["\u2028x", "a" * 200_000, "z"],
]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_quoted_fields_are_what_the_csv_module_wrote(read, tmp_path, ending):
    with open(tmp_path / "written", "w", newline="") as file:
        writer = csv.writer(file, lineterminator=ending)
        writer.writerows([["a", "b", "label"], *TRICKY])
    examples, counts = read((tmp_path / "written").read_bytes(), name="f.csv")
    assert [[e.text_a, e.text_b, *e.labels] for e in examples] == TRICKY
    assert [e.where.split()[-1] for e in examples] == ["2", "6", "7"]
    assert counts == ({"crlf_lines": 4} if ending == "\r\n" else {})


OF_COLUMNS = {"label": ("p", "q")}


@pytest.mark.parametrize(
    "content, name, message",
    [
        ("a\tb\tlabel\n\n", "f.tsv", "f.tsv has no examples"),
        ("a\tp\tq\nx\t-1\t0\n", OF_COLUMNS, "line 2: '-1' for the label 'p', instead of"),
        ("a\nx\n", {}, "task.label is missing: name the column"),
        ("", {"label": 1}, "all columns by the header .* or all by numbers"),
        ("a\tb\tlabel\nx\ty\n", "f.tsv", "line 2: 2 columns where the header has 3"),
        ("a\tb\tlabel\nx\ty\tz\t1\n", "f.tsv", "line 2: 4 columns where the header has 3"),
        ("a\ttext\tlabel\nx\ty\tz\n", "f.tsv", r"no column 'b' \(task.text_b\); it has 'a', 'te"),
        ("a\tb\ta\nx\ty\tz\n", "f.tsv", "the header has 'a' more than once"),
        ("a\tb\tlabel\nx\ty\tz\nx\ty\t\n", "f.tsv", r"1 of 2 rows have no label \(line 3\)"),
        ('a,b,label\nx,y,z\n"x,y,z\nx,y,z\n', "f.csv", "line 3: .* quote that is never closed"),
        ('a,b,label\n"x"x,y,z\n', "f.csv", "line 2: a broken row of CSV"),
        ('{"a": "x", "b": "y"}', "f.jsonl", r"no column 'label' \(task.label\); it has 'a'"),
        ('{"a": "x", "b": 5, "label": 1}', "f.jsonl", r"'b' \(task.text_b\) is a JSON int, 5, ins"),
        ('{"a": "x", "b": "\\ud800", "label": 1}', "f.jsonl", "'b' .* lone surrogate"),
        ('{"a": "x", "b": "y", "label": null}', "f.jsonl", "no label .line 1"),
        ('{"a": "x", "b": "y", "label": {}}', "f.jsonl", "a JSON dict instead of a label"),
        ("text\nlabel\n", "f", "f is not a table: its name must end in .tsv, .csv or .json"),
    ],
)
def test_errors(read, content, name, message):
    with pytest.raises(ValueError, match=message):
        if isinstance(name, dict):
            read(content, Columns("a", **name))
        else:
            read(content, name=name)


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("f.TSV", "{}", "tsv"),
        ("f.csv.gz", "", "csv"),
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
    assert shown(examples) == ["0: one\ttab", "1: ", "2:  two"]
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
        ('{"text_a": 3}', "line 2: an object needs a string `text_a`.* its fields are text_a"),
    ],
)
def test_a_text_that_cannot_be_used_is_named(line, message, tmp_path):
    (path := tmp_path / "in.txt").write_text(f"fine\n{line}\n")
    with pytest.raises(ValueError, match=message):
        list(read_texts(str(path)))
