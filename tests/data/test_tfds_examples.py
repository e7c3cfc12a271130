"""Examples from datasets of tensorflow-datasets that each test run builds itself."""

import warnings
from collections import Counter

import numpy as np
import pytest

from bert_jax.data import tfds_text
from bert_jax.data.tables import Columns
from bert_jax.data.text_tasks import GLUE
from bert_jax.data.tfds_examples import read_tfds_tags, read_tfds_texts

ROWS = [
    {
        "sentence1": f"One {i}",
        "sentence2": "Two\0" if i == 3 else "",
        "label": i % 2,
        "score": i / 10,
        "topics": ["a", "b"][: i % 3],
        "tokens": ["EU", "rejects"],
        "ner": [1 + i % 2, 0],
        "idx": 1000 + i,
    }
    for i in range(70)
]
HIDDEN = [row | {"label": -1, "score": -1.0} for row in ROWS]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A data directory of tensorflow-datasets with the dataset `tiny_tasks`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets as tfds

        class TinyTasks(tfds.core.GeneratorBasedBuilder):
            # tensorflow-datasets looks for files beside the package that a longer name tells.
            __module__ = "tiny_tasks"
            VERSION = tfds.core.Version("1.0.0")

            def _info(self):
                names = tfds.features
                features = {
                    "sentence1": names.Text(),
                    "sentence2": names.Text(),
                    "label": names.ClassLabel(names=["not_equivalent", "equivalent"]),
                    "score": names.Scalar(np.float32),
                    "topics": names.Sequence(names.ClassLabel(names=["a", "b"])),
                    "tokens": names.Sequence(names.Text()),
                    "ner": names.Sequence(names.ClassLabel(names=["O", "B-ORG", "I-ORG"])),
                    "idx": names.Scalar(np.int32),
                }
                return tfds.core.DatasetInfo(builder=self, features=names.FeaturesDict(features))

            def _split_generators(self, dl_manager):
                return {"train": enumerate(ROWS), "test": enumerate(HIDDEN)}

            def _generate_examples(self):
                raise NotImplementedError

        folder = tmp_path_factory.mktemp("tfds")
        TinyTasks(data_dir=folder, file_format="array_record").download_and_prepare()
    return folder


@pytest.fixture(autouse=True)
def use_data_dir(data_dir, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
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
    columns = Columns("sentence1", label="score")
    examples = by_id(read_tfds_texts("tiny_tasks", columns, Counter()))
    assert [e.labels for e in examples] == [(str(row["score"]),) for row in ROWS]
    examples = by_id(read_tfds_texts("tiny_tasks", Columns("sentence1", label="topics"), Counter()))
    assert [e.labels for e in examples] == [tuple(row["topics"]) for row in ROWS]


def test_hidden_labels():
    columns = Columns("sentence1", label="label")
    examples = list(read_tfds_texts("tiny_tasks[test]", columns, Counter(), labelled=False))
    assert len(examples) == 70 and all(e.labels is None for e in examples)
    with pytest.raises(ValueError, match=r"tfds:tiny_tasks\[test\], record 0: no label"):
        next(read_tfds_texts("tiny_tasks[test]", columns, Counter()))


def test_tags():
    examples = list(read_tfds_tags("tiny_tasks", "tokens", "ner", counts := Counter()))
    assert {(e.words, e.tags) for e in examples} == {(("EU", "rejects"), ("B-ORG", "O"))}
    assert [e.document for e in examples] == list(range(70))
    assert counts == {"tags_converted": 35, "mixed_scheme_files": 1, "nul_lines": 0}
    examples = list(read_tfds_tags("tiny_tasks", "tokens", "ner", Counter(), labelled=False))
    assert {e.tags for e in examples} == {None}


@pytest.mark.parametrize(
    "argument, columns, message",
    [
        (
            "tiny_tasks",
            Columns("premise"),
            "'premise' is no feature of tiny_tasks, which has idx, l",
        ),
        ("tiny_tasks", Columns("idx"), "record 0: 'idx' is a int, no text"),
        ("tiny_tasks[dev]", Columns("sentence1"), "no split 'dev' but test, train"),
        ("tiny_tasks[train[:0]]", Columns("sentence1"), "no split 'train\\[:0\\]'"),
        ("none", Columns("sentence1"), "tfds:none is not prepared"),
    ],
)
def test_errors(argument, columns, message):
    with pytest.raises(ValueError, match=message):
        list(read_tfds_texts(argument, columns, Counter(), labelled=False))
