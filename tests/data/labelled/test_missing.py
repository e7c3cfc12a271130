"""Rows without text or label, and cells that are more than a text: read from each form of file."""

import json
import math
from collections import Counter

import pytest

from bert_jax.data.labelled.cells import decimal_marks, plain_number
from bert_jax.data.labelled.forms.label_kinds import find_faults
from bert_jax.data.labelled.table_rows import csv_writer
from bert_jax.data.labelled.tables import Columns, read_table

ROWS = [("one", "1"), ("two", None), ("", "0"), ("four", "nan"), ("five", "1")]
LACKS = r"2 of 5 rows have no label \(.* [13 25]+, .*\) and 1 of 5 rows have no text"


def write(path, form):
    if form == "csv":
        lines = [f"{text},{label or ''}" for text, label in ROWS]
        path.write_text("\n".join(["text,label", *lines]) + "\n")
    elif form == "jsonl":
        rows = [{"text": t or None, "label": math.nan if x == "nan" else x} for t, x in ROWS]
        del rows[1]["label"]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        import pyarrow as pa
        from pyarrow import parquet

        labels = [math.nan if x == "nan" else x and float(x) for _, x in ROWS]
        table = {"text": [text or None for text, _ in ROWS], "label": pa.array(labels)}
        parquet.write_table(pa.table(table), path)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_rows_without_text_or_label_are_reported_at_once_or_left_out(tmp_path, form):
    write(path := tmp_path / f"a.{form}", form)
    columns = Columns("text", label="label")
    with pytest.raises(ValueError, match=LACKS):
        list(read_table(str(path), columns, Counter()))
    counts = Counter()
    read = list(read_table(str(path), columns, counts, on_missing="skip"))
    assert [(e.text_a, *map(float, e.labels or ())) for e in read] == [("one", 1), ("five", 1)]
    assert counts["rows_without_label"] == 2 and counts["rows_without_text"] == 1
    assert len(list(read_table(str(path), columns, Counter(), labelled=False))) == 5


@pytest.mark.parametrize(
    "columns, cell, labels",
    [
        ({"separator": "[]"}, "['joy', \"it's\"]", ("joy", "it's")),
        ({"separator": "[]"}, "['joy' 'great fun']", ("joy", "great fun")),
        ({"separator": "[]"}, "[]", ()),
        ({"separator": "[]", "multi_hot": ("a", "b", "c")}, "[0, 1, 1]", ("b", "c")),
        ({"decimal": ","}, "1.234,5", ("1234.5",)),
        ({"decimal": ","}, "0,5", ("0.5",)),
        ({"decimal": "."}, "1,234.5", ("1234.5",)),
    ],
)
def test_labels_of_other_forms(tmp_path, columns, cell, labels):
    with open(path := tmp_path / "a.csv", "w", newline="") as file:
        csv_writer(file).writerows([["text", "label"], ["x", cell]])
    (example,) = read_table(str(path), Columns("text", label="label", **columns), Counter())
    assert example.labels == labels


@pytest.mark.parametrize("separator", [",", "[]"])
def test_nan_is_no_label_where_there_may_be_several(tmp_path, separator):
    """An empty cell has none of them."""
    cells = {",": ("p,q", "", "nan"), "[]": ("['p', 'q']", "", "nan")}[separator]
    with open(path := tmp_path / "a.csv", "w", newline="") as file:
        csv_writer(file).writerows([["text", "label"], *(["x", cell] for cell in cells)])
    columns, counts = Columns("text", label="label", separator=separator), Counter()
    read = read_table(str(path), columns, counts, on_missing="skip")
    assert [example.labels for example in read] == [("p", "q"), ()]
    assert counts["rows_without_label"] == 1


def test_numbers_in_cells():
    assert decimal_marks(["0,5", "3"]) == [","] and decimal_marks(["1,234", "2"]) == [".", ","]
    assert decimal_marks(["1,234.5"]) == ["."] and decimal_marks(["2,27", "a"]) == []
    assert plain_number("-1.234.567,8", ",") == "-1234567.8" and plain_number("0.5", ",") == "0.5"


def test_a_carriage_return_in_a_cell_is_quoted(tmp_path):
    with open(path := tmp_path / "a.csv", "w", newline="") as file:
        csv_writer(file).writerows([["text", "label"], ["a\rb", "x"], ["c", "y"]])
    assert path.read_bytes() == b'text,label\n"a\rb",x\nc,y\n'
    read = read_table(str(path), Columns("text", label="label"), Counter())
    assert [example.text_a for example in read] == ["a\rb", "c"]


@pytest.mark.parametrize(
    "line, separator",
    [("{}, so|x", "|"), ("{}, so;x", ";"), ("{}, a; b\tx", "\t"), ("{},x;y", ",")],
)
def test_the_separator_gives_all_rows_one_width(tmp_path, line, separator):
    second = "two" if separator == ";" else "two; or"
    lines = [line.format(word) for word in ("one", second, "three")]
    (path := tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    labels = [e.labels for e in read_table(str(path), Columns(0, label=1), Counter())]
    assert labels == [(line.rpartition(separator)[2],)] * 3


def test_likely_mistakes_in_names_of_labels():
    labels = [("Good",)] * 9 + [("good ",)] * 6 + [("bad",)] * 2
    alike, rare = find_faults(labels)
    assert alike.endswith("classes of their own: 'Good' (9), 'good ' (6)")
    assert rare == "1 classes have fewer than 5 examples: 'bad' (2)"
    assert not list(find_faults([("a",)] * 5 + [("b",)] * 5))
    (decimals,) = find_faults([("1",)] * 5 + [("1.0",)] * 5 + [("2",)] * 5)
    assert decimals.endswith("decimals only are classes of their own: '1' (5), '1.0' (5)")
