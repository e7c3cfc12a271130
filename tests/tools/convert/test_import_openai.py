"""The weights that were released with openai/finetune-transformer-lm: names, layouts, errors."""

import json
import re

import numpy as np
import pytest

from bert_jax.formats import format_of
from bert_jax.formats.names import gpt as gpt_names
from tests.tools.convert.hf_folders import (
    GPT_PIECES,
    read_certificate,
    run_import,
    worst,
    write_gpt_vocabulary,
)

pytest.importorskip("ftfy")
pytest.importorskip("spacy")

WORDS = "gpt/embeddings/word_embeddings/embedding"
# Of a layer, in the order of the released files: shapes as multiples of the hidden size.
RELEASED = (
    ("c_attn/w", (1, 1, 3)),
    ("c_attn/b", (3,)),
    ("c_proj/w", (1, 1, 1)),
    ("c_proj/b", (1,)),
    ("ln_1/g", (1,)),
    ("ln_1/b", (1,)),
    ("c_fc/w", (1, 1, 4)),
    ("c_fc/b", (4,)),
    ("c_proj/w", (1, 4, 1)),
    ("c_proj/b", (1,)),
    ("ln_2/g", (1,)),
    ("ln_2/b", (1,)),
)


def layer_shapes(hidden):
    """Returns the shapes of a layer; the first dimension of a kernel is 1, its width."""
    return [
        tuple(
            1 if axis == 0 and name.endswith("/w") else hidden * n for axis, n in enumerate(times)
        )
        for name, times in RELEASED
    ]


@pytest.fixture
def released(tmp_path):
    """A folder as it was released, of a small model: all tensors flat, in ten parts."""
    rng = np.random.default_rng(0)
    shapes = [(40, 128), (len(GPT_PIECES), 128), *layer_shapes(128), *layer_shapes(128)]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    folder = tmp_path / "released"
    folder.mkdir()
    flat = np.concatenate([array.ravel() for array in arrays])
    for number, part in enumerate(np.array_split(flat, 10)):
        np.save(folder / f"params_{number}.npy", part)
    (folder / "params_shapes.json").write_text(json.dumps(shapes))
    write_gpt_vocabulary(folder, "encoder_bpe_40000.json", "vocab_40000.bpe")
    return folder, arrays


def test_the_shapes_are_those_of_the_released_file(shared_data):
    """With the published sizes, the order of our names gives the published shapes."""
    path = shared_data / "checkpoints" / "gpt1" / "params_shapes.json"
    shapes = [tuple(shape) for shape in json.loads(path.read_text())]
    names = gpt_names.released_names(12)
    assert len(names) == len(shapes) == 146
    assert shapes == [(512, 768), (40478, 768), *12 * layer_shapes(768)]
    of_layer = [re.sub("^h0/((attn|mlp)/)?", "", name) for name in names[2:14]]
    assert of_layer == [name for name, _ in RELEASED]


def test_the_released_files_are_imported(released):
    folder, arrays = released
    assert format_of(str(folder)) == "openai"
    run, certificate = run_import("from_openai", folder), read_certificate(folder)
    assert certificate["format"] == "openai/finetune-transformer-lm"
    assert worst(certificate) < 1e-3
    assert (run.config.model.num_heads, run.config.model.num_layers) == (2, 2)
    params, rows = run.params, len(GPT_PIECES)
    np.testing.assert_array_equal(params["gpt/embeddings/position_embeddings/embedding"], arrays[0])
    np.testing.assert_array_equal(params[WORDS][:rows], arrays[1])
    special = ["_start_", "_delimiter_", "_classify_"]
    assert certificate["tensors"]["fresh_rows"] == {f"{WORDS}[{rows}:]": special}
    for i in range(2):
        path, of_layer = f"gpt/encoder/layer_{i}", arrays[2 + 12 * i : 14 + 12 * i]
        of_layer = [array[0] if array.ndim == 3 else array for array in of_layer]
        for place, leaf in enumerate(("kernel", "bias")):
            parts = np.split(of_layer[place], 3, axis=-1)
            for name, part in zip(("query", "key", "value"), parts, strict=True):
                np.testing.assert_array_equal(params[f"{path}/attention/{name}/{leaf}"], part)
        names = ("attention/output", "attention/layer_norm", "intermediate", "output", "layer_norm")
        for number, name in enumerate(names, 1):
            leaf = "scale" if name.endswith("norm") else "kernel"
            np.testing.assert_array_equal(params[f"{path}/{name}/{leaf}"], of_layer[2 * number])
            np.testing.assert_array_equal(params[f"{path}/{name}/bias"], of_layer[2 * number + 1])


def rewrite(name, change):
    return lambda folder: np.save(folder / name, change(np.load(folder / name)))


BROKEN = {
    "missing part": (lambda f: (f / "params_3.npy").unlink(), "params_3.npy is missing"),
    "no shapes": (
        lambda f: (f / "params_shapes.json").write_text("[[1]]"),
        "has 1 shapes: the released model has two tables and 12 tensors for each layer",
    ),
    "no json": (lambda f: (f / "params_shapes.json").write_text("{"), "cannot be read"),
    "a short part": (rewrite("params_9.npy", lambda x: x[1:]), "numbers, and params_shapes.json"),
    "another form": (rewrite("params_0.npy", lambda x: x[None]), "it has the form float32"),
    "a pickle": (
        lambda f: np.save(f / "params_0.npy", np.array([{}]), allow_pickle=True),
        "params_0.npy cannot be read",
    ),
    "no vocabulary": (
        lambda f: (f / "encoder_bpe_40000.json").unlink(),
        "encoder_bpe_40000.json is missing",
    ),
}


@pytest.mark.parametrize("broken, message", BROKEN.values(), ids=list(BROKEN))
def test_released_files_that_cannot_be_imported(released, broken, message):
    folder, _ = released
    broken(folder)
    with pytest.raises(ValueError, match=message) as error:
        run_import("from_openai", folder)
    assert "\n" not in str(error.value) and not (folder.parent / "out").exists()
