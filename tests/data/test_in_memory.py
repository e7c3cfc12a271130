"""Data in memory become the rows of a file."""

import dataclasses
import json

import datasets
import numpy as np
import pandas
import polars
import pyarrow
import pytest

from bert_jax.data.in_memory import is_table, read_examples, to_file
from bert_jax.data.labelled.examples import ChoiceExample, TaggedExample
from bert_jax.data.labelled.texts import Text, read_texts
from bert_jax.files.errors import UserError

ROWS = [{"text": "A cat.", "label": "good"}, {"text": "Ein Hund – ja.", "label": "bad"}]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
CLASSES = datasets.Features(
    {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
)
DATASET = datasets.Dataset.from_dict({**COLUMNS, "label": [1, 0]}, features=CLASSES)


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        iter(ROWS),
        COLUMNS,
        pandas.DataFrame(ROWS),
        pandas.DataFrame(ROWS, index=[7, 3]),
        pandas.DataFrame(ROWS).astype({"label": "category"}),
        polars.DataFrame(ROWS),
        pyarrow.table(COLUMNS),
        DATASET,
        DATASET.select([1, 0]).select([1, 0]),
        DATASET.to_iterable_dataset(),
        (COLUMNS["text"], COLUMNS["label"]),
        (np.array(COLUMNS["text"]), pandas.Series(COLUMNS["label"], index=[4, 2])),
    ],
    ids=lambda data: type(data).__name__,
)
def test_every_form_gives_the_same_rows(data, tmp_path):
    assert rows_of(data, tmp_path) == ROWS


def rows_of(data, folder) -> list[dict]:
    with open(to_file(data, folder, "train"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_values_are_those_of_json(tmp_path):
    table = pandas.DataFrame(
        {
            "number": [1, 2],
            "rating": np.array([3.8, np.nan], np.float32),
            "missing": ["x", None],
            "day": pandas.to_datetime(["2020-01-02", None]),
            "words": [["a", "b"], []],
        }
    )
    first, second = rows_of(table, tmp_path)
    assert first == {
        "number": 1,
        "rating": 3.8,
        "missing": "x",
        "day": "2020-01-02 00:00:00",
        "words": ["a", "b"],
    }
    assert second == {**dict.fromkeys(first), "number": 2, "words": []}


@pytest.mark.parametrize(
    ("texts", "labels", "row"),
    [
        ([("a b", "c")], [np.int64(1)], {"text_a": "a b", "text_b": "c", "label": 1}),
        ([["a", "b"]], [("O", "B-X")], {"tokens": ["a", "b"], "tags": ["O", "B-X"]}),
        (["a b"], [["x", "y"]], {"text": "a b", "label": ["x", "y"]}),
        (["a b"], [np.float64("nan")], {"text": "a b", "label": None}),
    ],
)
def test_texts_with_labels(texts, labels, row, tmp_path):
    assert rows_of((texts, labels), tmp_path) == [row]


@pytest.mark.parametrize("form", [pandas.DataFrame, dict, lambda x: (x["text"], x["label"])])
def test_integers_stay_integers_beside_missing_ones(form, tmp_path):
    """Of which pandas makes floats, so that a class would be called 1.0."""
    rows = {"text": ["a", "b", "c"], "label": np.array([0.0, np.nan, 1.0])}
    labels = [row["label"] for row in rows_of(form(rows), tmp_path)]
    assert labels == [0, None, 1] and [type(label) for label in labels[::2]] == [int, int]
    rows["label"] = np.array([0.5, np.nan, 1.0])
    assert [row["label"] for row in rows_of(form(rows), tmp_path)] == [0.5, None, 1.0]


def test_a_path_stays_as_it_is(tmp_path):
    assert to_file(tmp_path / "a.csv", tmp_path, "train") == str(tmp_path / "a.csv")


def test_places_name_the_argument():
    (text,) = read_examples(pandas.DataFrame({"text": ["A cat."]}), "texts", read_texts)
    assert (text.text_a, text.where) == ("A cat.", "texts[0]")
    with pytest.raises(UserError, match=r"^texts has no column of texts: 'n' has numbers\.$"):
        read_examples(pandas.DataFrame({"n": [1, 2]}), "texts", read_texts)


@pytest.mark.parametrize("nothing", [None, float("nan"), pandas.NA, " "])
def test_a_row_of_a_table_without_a_text_is_refused(nothing):
    """A model has an answer for an empty text, which nobody asked for."""
    table = pandas.DataFrame({"text": ["A cat.", nothing, "A dog.", nothing], "n": [1, 2, 3, 4]})
    with pytest.raises(UserError, match=r"^texts has no text in row 1, counted from 0 and 1 more"):
        read_examples(table, "texts", read_texts)
    assert len(read_examples(table[["text"]].iloc[[0, 2]], "texts", read_texts)) == 2


def test_what_is_optional_may_be_missing():
    choice = ChoiceExample(where="", id="", context="a", endings=("b", "c"))
    assert not choice.has_empty and not Text("a").has_empty
    assert Text("a", "").has_empty and TaggedExample("", "", ()).has_empty
    assert dataclasses.replace(choice, context=" ").has_empty


def test_a_list_is_no_table():
    assert not any(map(is_table, [[], "text", COLUMNS, pandas.Series(["a"]), DATASET["text"]]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (polars.LazyFrame(ROWS), "train is a LazyFrame: give train.collect()"),
        (datasets.DatasetDict(train=DATASET, test=DATASET), "the splits 'train', 'test'"),
        (pandas.DataFrame([["a", "b"]]), "columns without names (0, 1)"),
        (pandas.DataFrame({"label": [1, "x"]}), "values of several types"),
        ({"text": ["a"], "label": []}, "The columns of train have 1, 0 rows."),
        ((["a", "b"], [1]), "train has 2 texts and 1 labels."),
        (([1], [1]), "Text 0 of train is 1"),
        ((pandas.DataFrame(ROWS), [1]), "The texts of train are a table with the columns 'text',"),
        ((np.array([["a", "b", "c"]]), [1]), "has 3 texts"),
        ([("a", 1)], "train[0] is ('a', 1)"),
        (3, "train is of type int"),
    ],
)
def test_what_is_refused(data, message, tmp_path):
    with pytest.raises(UserError) as error:
        to_file(data, tmp_path, "train")
    assert message in str(error.value)
