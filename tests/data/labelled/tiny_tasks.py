"""The dataset `tiny_tasks` of tensorflow-datasets, which a test run builds itself."""

import numpy as np

from tests.text import tfds_sets

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


def features(kinds):
    return {
        "sentence1": kinds.Text(),
        "sentence2": kinds.Text(),
        "label": kinds.ClassLabel(names=["not_equivalent", "equivalent"]),
        "score": kinds.Scalar(np.float32),
        "topics": kinds.Sequence(kinds.ClassLabel(names=["a", "b"])),
        "tokens": kinds.Sequence(kinds.Text()),
        "ner": kinds.Sequence(kinds.ClassLabel(names=["O", "B-ORG", "I-ORG"])),
        "idx": kinds.Scalar(np.int32),
    }


def build(folder) -> None:
    tfds_sets.build(folder, "TinyTasks", features, {"train": ROWS, "test": HIDDEN})
