"""Labelled examples of Parquet files and of folders that Hugging Face `datasets` wrote."""

import json
from collections import Counter

import pyarrow as pa
import pytest

from bert_jax.data.labelled.conll import read_tagged
from bert_jax.data.labelled.detection import detect
from bert_jax.data.labelled.published_sets import GLUE
from bert_jax.data.labelled.questions import read_questions
from bert_jax.data.labelled.split import held_out, write_split
from bert_jax.data.labelled.tables import Columns, read_table
from tests.text.arrow_files import make_table, save_to_disk, write_parquet

CLASS = {"names": ["not_equivalent", "equivalent"], "_type": "ClassLabel"}
TAG = {"names": ["O", "B-PER", "I-PER"], "_type": "ClassLabel"}
COUNT = 30
COLUMNS = {
    "sentence1": [f"The first text of row {i % 25}, a long one." for i in range(COUNT)],
    "sentence2": [f"Its second text {i}, which is as long." for i in range(COUNT)],
    "label": [i % 2 for i in range(COUNT)],
    "score": [0.1 * i for i in range(COUNT)],
    "topics": [["x", "y"][: i % 3] for i in range(COUNT)],
    "image": [b"\xff\x00"] * COUNT,
}
TABLE = make_table(COLUMNS, {"label": CLASS}, {"score": pa.float32()})


@pytest.fixture(params=["file", "folder"])
def path(request, tmp_path) -> str:
    if request.param == "file":
        return write_parquet(tmp_path / "a.parquet", TABLE)
    return save_to_disk(tmp_path / "set", TABLE)


def shown(examples):
    return [(e.id, e.text_a, e.text_b, e.labels) for e in examples]


@pytest.mark.parametrize("label", ["label", "score", "topics"])
def test_examples_are_those_of_the_same_json_lines(path, label, tmp_path):
    names = {"label": lambda value: CLASS["names"][value], "score": lambda value: round(value, 6)}
    rows = [
        {name: names.get(name, lambda value: value)(values[i]) for name, values in COLUMNS.items()}
        for i in range(COUNT)
    ]
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps(row | {"image": ""}) + "\n" for row in rows))
    columns = Columns("sentence1", "sentence2", label)
    expected = shown(read_table(str(lines), columns, Counter()))
    assert shown(read_table(path, columns, Counter())) == expected


def test_hidden_labels_are_missing(tmp_path):
    table = make_table({"text": ["One."], "label": [-1]}, {"label": CLASS})
    path = write_parquet(tmp_path / "a.parquet", table)
    columns = Columns("text", label="label")
    assert len(list(read_table(path, columns, Counter(), labelled=False))) == 1
    with pytest.raises(ValueError, match=r"a.parquet: 1 of 1 rows have no label \(row 0\)"):
        list(read_table(path, columns, Counter()))


@pytest.mark.parametrize(
    "feature", [{"feature": TAG, "_type": "Sequence"}, {"feature": TAG, "_type": "List"}, [TAG]]
)
def test_tags_are_named_and_the_task_is_found(feature, tmp_path):
    columns = {"tokens": [["EU", "rejects"], ["Ann"]], "ner_tags": [[0, 0], [1]]}
    path = write_parquet(tmp_path / "a.parquet", make_table(columns, {"ner_tags": feature}))
    found = detect(path, {})
    assert found.task == "tagging" and found.fields["task.label"] == "ner_tags"
    examples = list(read_tagged(path, Counter(), words="tokens", tags="ner_tags"))
    assert [(e.words, e.tags) for e in examples] == [
        (("EU", "rejects"), ("O", "O")),
        (("Ann",), ("B-PER",)),
    ]


def test_questions_with_a_structure_of_lists(tmp_path):
    columns = {
        "id": ["q"],
        "context": ["Ann lives in Rome."],
        "question": ["Where?"],
        "answers": [{"text": ["Rome"], "answer_start": [13]}],
    }
    value = {"dtype": "string", "_type": "Value"}
    answers = {"feature": {"text": value, "answer_start": value}, "_type": "Sequence"}
    path = write_parquet(tmp_path / "a.parquet", make_table(columns, {"answers": answers}))
    assert detect(path, {}).task == "span"
    (question,) = read_questions(path, Counter())
    assert question.answers == (("Rome", 13),)


def test_the_task_is_found_and_a_part_is_held_out(path, tmp_path):
    found = detect(path, {})
    assert found.task == "classification"
    fields = [found.fields[f"task.{name}"] for name in ("text_a", "text_b", "label")]
    assert fields == ["sentence1", "sentence2", "label"]
    columns = Columns("sentence1", "sentence2", "label")
    examples = list(read_table(path, columns, Counter()))
    published = GLUE["mrpc"].read(path, Counter())  # with the columns of its dataset
    assert shown(published) == shown(examples)
    chosen = held_out(examples, 0.2, seed=0)
    parts = write_split(path, examples, chosen, True, str(tmp_path / "parts"))
    found = [shown(read_table(part, columns, Counter())) for part in parts]
    for side, part in zip((False, True), found, strict=True):
        assert [row[1:] for row in part] == [
            row[1:] for row, held in zip(shown(examples), chosen, strict=True) if held is side
        ]
