"""The dataset `tiny_tasks` of tensorflow-datasets, which a test run builds itself."""

import warnings

import numpy as np

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


def build(folder) -> None:
    """Makes the dataset; once in a process, since the library keeps its name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets as tfds

        class TinyTasks(tfds.core.GeneratorBasedBuilder):
            # tensorflow-datasets looks for files next to the package that a longer name contains.
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

        TinyTasks(data_dir=folder, file_format="array_record").download_and_prepare()
