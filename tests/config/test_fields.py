"""Fields by name, and values that follow from several fields."""

import re

import pytest

from bert_jax.config import defaults
from bert_jax.config.fields import (
    data_dir,
    describe_model,
    fields,
    has_corpus,
    reinitialized_pattern,
    value_of,
)


def test_fields_are_dotted_names_in_order(make_config):
    config = make_config(seed=3)
    names = dict(fields(config))
    assert list(names) == sorted(names)
    assert (names["seed"], value_of(config, "seed"), value_of(config, "model.name")) == (
        3,
        3,
        "bert",
    )


def test_labelled_examples_are_not_a_corpus(make_config, make_labelled):
    assert has_corpus(make_config()) and not has_corpus(make_labelled())
    assert not any(map(has_corpus, (defaults.span(), defaults.tagging())))


def test_data_is_in_the_folder_of_the_run_by_default(make_config):
    assert data_dir(make_config(), "/run") == "/run/data"
    assert data_dir(make_config(**{"data.dir": "/data"}), "/run") == "/data"


@pytest.mark.parametrize(
    "arguments, paths",
    [
        (("bert", 12, 0), []),
        (("bert", 12, 1), ["bert/pooler/kernel", "bert/encoder/layer_11/output/bias"]),
        (
            ("bert", 12, 3),
            ["bert/pooler/kernel", *(f"bert/encoder/layer_{i}/x" for i in (9, 10, 11))],
        ),
        (("other", 2, 1), ["other/pooler/kernel", "other/encoder/layer_1/x"]),
    ],
)
def test_parameters_that_are_not_taken_from_the_source(arguments, paths):
    pattern = reinitialized_pattern(*arguments)
    everything = [
        f"{name}/{part}"
        for name in ("bert", "other")
        for part in (
            *("pooler/kernel", "embeddings/word_embeddings/embedding"),
            *(f"encoder/layer_{i}/{leaf}" for i in range(12) for leaf in ("x", "output/bias")),
        )
    ]
    found = [path for path in everything if pattern and re.search(pattern, path)]
    assert set(paths) <= set(found)
    units = {path.rpartition("/")[0] for path in found}
    assert all(path.startswith(arguments[0] + "/") for path in found)
    layers = {unit.split("/")[2] for unit in units if "layer_" in unit}
    _, num_layers, count = arguments
    assert layers == {f"layer_{i}" for i in range(num_layers - count, num_layers)}
    assert not any("embeddings" in path for path in found)


def test_the_line_of_the_banner(make_config):
    config = make_config(**{"data.vocab": "vocab.txt", "data.lowercase": False})
    assert describe_model(config) == (
        "12 layers, hidden 768, 12 heads, gelu_tanh, next_sentence=True, vocabulary vocab.txt"
        " (not lower cased)"
    )
