"""The weights that were released with openai/finetune-transformer-lm: names and layouts."""

import json

import numpy as np

from bert_jax.formats.names import gpt as gpt_names
from tests.tools.convert.hf_folders import (
    GPT_PIECES,
    RELEASED,
    layer_shapes,
    read_certificate,
    run_import,
    worst,
)
from tests.twins import to_theirs

WORDS = "gpt/embeddings/word_embeddings/embedding"


def test_the_shapes_are_those_of_the_released_file(shared_data):
    """With the published sizes, the order of our names gives the published shapes."""
    path = shared_data / "checkpoints" / "gpt1" / "params_shapes.json"
    shapes = [tuple(shape) for shape in json.loads(path.read_text())]
    assert len(gpt_names.released_names(12)) == len(shapes) == 146
    assert shapes == [(512, 768), (40478, 768), *12 * layer_shapes(768)]


def test_the_released_files_are_imported(openai):
    folder, arrays = openai
    run, certificate = run_import("from_openai", folder), read_certificate(folder)
    assert certificate["format"] == "openai/finetune-transformer-lm"
    assert worst(certificate) < 1e-3
    assert (run.config.model.num_heads, run.config.model.num_layers) == (2, 2)
    rows, special = len(GPT_PIECES), ["_start_", "_delimiter_", "_classify_"]
    assert certificate["tensors"]["fresh_rows"] == {f"{WORDS}[{rows}:]": special}
    names = ["positions_embed.weight", "tokens_embed.weight"]
    names += [f"h.{i}.{name}" for i in range(2) for name, _ in RELEASED]
    found = to_theirs({**run.params, WORDS: run.params[WORDS][:rows]})
    assert found.keys() == {f"transformer.{name}" for name in names}
    for name, array in zip(names, arrays, strict=True):
        array = array[0] if array.ndim == 3 else array
        np.testing.assert_array_equal(found[f"transformer.{name}"], array)
