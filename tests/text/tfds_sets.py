"""Builds small datasets of tensorflow-datasets, in the format that needs no TensorFlow."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def build(
    folder: Any,
    name: str,
    make_features: Callable[[Any], dict[str, Any]],
    splits: Mapping[str, Iterable[dict[str, Any]]],
    config: str | None = None,
) -> None:
    """Makes a dataset; once in a process, since the library keeps its name.

    Args:
      folder: the data directory.
      name: name of the builder's class, TinyCorpus for `tiny_corpus`.
      make_features: function (tfds.features) -> feature by name.
      splits: the records of each split.
      config: name of its only configuration; None: it has none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets as tfds

        def info(self):
            features = tfds.features.FeaturesDict(make_features(tfds.features))
            return tfds.core.DatasetInfo(builder=self, features=features)

        members = {
            # tensorflow-datasets looks for files next to the package that a longer name contains.
            "__module__": name.lower(),
            "VERSION": tfds.core.Version("1.0.0"),
            "BUILDER_CONFIGS": [tfds.core.BuilderConfig(name=config)] if config else [],
            "_info": info,
            "_split_generators": lambda self, manager: {n: enumerate(splits[n]) for n in splits},
            "_generate_examples": lambda self: iter(()),
        }
        builder = type(name, (tfds.core.GeneratorBasedBuilder,), members)
        builder(config=config, data_dir=folder, file_format="array_record").download_and_prepare()
