"""Reads a configuration: fields by dotted names, and values that follow from several fields."""

import os
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from bert_jax.files.buckets import local


def fields(config: ConfigDict | dict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted name, value) of each field, in alphabetical order."""
    for name, value in sorted(config.items()):
        if isinstance(value, ConfigDict | dict):
            yield from fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def value_of(config: ConfigDict, name: str) -> Any:
    """Returns the value of a field, given its dotted name."""
    for part in name.split("."):
        config = config[part]
    return config


def has_corpus(config: ConfigDict) -> bool:
    """Returns whether the training data is a corpus of text rather than labelled examples."""
    return "source" in config.data


def data_dir(config: ConfigDict, workdir: str) -> str:
    """Returns the folder of the run's vocabulary and shards; of a bucket, the working copy."""
    return local(config.data.get("dir") or os.path.join(workdir, "data"))


def reinitialized_pattern(model_name: str, num_layers: int, reinit_layers: int) -> str:
    """Returns a regular expression for the paths of the parameters not taken from `init_from`.

    Args:
      model_name: `config.model.name`, under which the encoder's parameters are stored.
      num_layers: of the encoder.
      reinit_layers: number of layers, counted from the last one, that start from random parameters
        together with the pooler; 0 gives an empty pattern, which stands for no parameters.
    """
    if not reinit_layers:
        return ""
    layers = "|".join(str(layer) for layer in range(num_layers - reinit_layers, num_layers))
    return rf"^{model_name}/(pooler|encoder/layer_({layers}))/"


def describe_model(config: ConfigDict) -> str:
    """Returns what a run takes from the source of `config.init_from`, for its banner."""
    model = config.model
    heads = f" {model.num_heads} heads," if "num_heads" in model else ""
    return (
        f"{model.num_layers} layers, hidden {model.hidden_size},{heads}"
        f" {model.activation}, next_sentence={model.next_sentence}, vocabulary {config.data.vocab}"
        f" ({'' if config.data.lowercase else 'not '}lower cased)"
    )
