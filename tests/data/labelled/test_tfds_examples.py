"""Examples from a dataset of tensorflow-datasets that each test run builds itself."""

from collections import Counter

import pytest

from bert_jax.data.labelled.conll import read_tagged
from bert_jax.data.labelled.published_sets import GLUE
from bert_jax.data.labelled.tables import Columns, read_table
from bert_jax.text import tfds as tfds_text
from tests.data.labelled.tiny_tasks import ROWS


@pytest.fixture(autouse=True)
def use_data_dir(tiny_tasks, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tiny_tasks))
    yield
    tfds_text.open_builder.cache_clear()
    tfds_text.open_split.cache_clear()


def by_id(examples):
    return sorted(examples, key=lambda e: int(e.id))


def test_a_pair_with_the_name_of_its_class():
    examples = by_id(GLUE["mrpc"].read("tfds:tiny_tasks[train]", counts := Counter()))
    assert [(e.id, e.text_a, e.text_b, e.labels) for e in examples] == [
        (
            str(row["idx"]),
            row["sentence1"],
            row["sentence2"].replace("\0", ""),
            (("not_equivalent", "equivalent")[row["label"]],),
        )
        for row in ROWS
    ]
    assert examples[0].where.startswith("tfds:tiny_tasks[train], record ")
    assert +counts == {"empty_texts": 69, "nul_lines": 1}


def test_numbers_and_several_labels():
    for label, written in (("score", lambda x: (str(x),)), ("topics", tuple)):
        columns = Columns("sentence1", label=label)
        examples = by_id(read_table("tfds:tiny_tasks", columns, Counter()))
        assert [e.labels for e in examples] == [written(row[label]) for row in ROWS]


def test_hidden_labels():
    columns = Columns("sentence1", label="label")
    examples = list(read_table("tfds:tiny_tasks[test]", columns, Counter(), labelled=False))
    assert len(examples) == 70 and all(e.labels is None for e in examples)
    with pytest.raises(ValueError, match=r"tfds:tiny_tasks\[test\]: 70 of 70 rows have no label"):
        next(read_table("tfds:tiny_tasks[test]", columns, Counter()))


def test_tags():
    examples = list(read_tagged("tfds:tiny_tasks", counts := Counter(), tags="ner"))
    assert {(e.words, e.tags) for e in examples} == {(("EU", "rejects"), ("B-ORG", "O"))}
    assert [e.document for e in examples] == list(range(70))
    assert counts["tags_converted"] == 35 and counts["mixed_scheme_files"] == 1
    examples = list(read_tagged("tfds:tiny_tasks", Counter(), labelled=False))
    assert {e.tags for e in examples} == {None}


@pytest.mark.parametrize(
    "argument, column, message",
    [
        ("tiny_tasks", "premise", r"record 0: no column 'premise' .*; it has 'idx', 'label'"),
        ("tiny_tasks", "idx", "record 0: 'idx' .* is a JSON int, [0-9]+, instead of text"),
        ("tiny_tasks[dev]", "sentence1", "no split 'dev'; it has test, train"),
        ("none", "sentence1", "tfds:none is not prepared"),
    ],
)
def test_errors(argument, column, message):
    with pytest.raises(ValueError, match=message):
        list(read_table(f"tfds:{argument}", Columns(column), Counter(), labelled=False))
