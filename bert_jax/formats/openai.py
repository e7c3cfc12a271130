"""The weights that were released with openai/finetune-transformer-lm.

    params_0.npy ... params_9.npy    all tensors, flat and one after the other, cut into ten parts
    params_shapes.json               the shape of each, in the order of the program's variables
    encoder_bpe_40000.json, vocab_40000.bpe    the vocabulary

Its `train.py` keeps the table of positions and that of words, which are the first two tensors, in
one variable with the special tokens between them. Kernels are those of convolutions over one
position, [1, in, out].
"""

import json
import math
import os
import pathlib
from typing import Any

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.formats.foreign import Choices, ForeignCheckpoint
from bert_jax.formats.gpt import find_vocabulary, gpt_checkpoint
from bert_jax.formats.model_configs import GPT
from bert_jax.formats.names.gpt import released_names
from bert_jax.formats.weight_table import Arrays

TITLE = "openai/finetune-transformer-lm"
SHAPES = "params_shapes.json"
_PARTS = 10
# Tensors of a layer.
_LAYER = len(released_names(1)) - len(released_names(0))


def open_checkpoint(path: str, choices: Choices) -> ForeignCheckpoint:
    """Opens a folder. Raises UserError if it is incomplete, or its files do not fit together."""
    choices.check_activation(path, "GPT", "gelu_tanh")
    arrays = tensors(path)
    positions, words = (arrays[name] for name in released_names(0))
    hidden = positions.shape[-1]
    # The files have the sizes; heads have 64 features in the released train.py.
    sizes = {
        "vocab_size": len(words),
        "n_positions": len(positions),
        "n_embd": hidden,
        "n_layer": (len(arrays) - 2) // _LAYER,
        "n_head": max(1, hidden // 64),
    }
    model = GPT.read(sizes, path)
    note = (
        f"The files have no configuration: {model['num_heads']} heads of 64 features, and the other"
        " values of the released train.py."
    )
    vocabulary, _ = find_vocabulary(path, choices)
    return gpt_checkpoint(path, "openai", model, vocabulary, True, arrays, note)


def matches(path: str) -> bool:
    return os.path.isfile(os.path.join(path, SHAPES))


def tensors(path: str) -> Arrays:
    """Returns the tensors of a folder by the names of the program's variables."""
    shapes = _read_shapes(os.path.join(path, SHAPES))
    flat = np.concatenate([_read_part(path, number) for number in range(_PARTS)])
    sizes = [math.prod(shape) for shape in shapes]
    if sum(sizes) != len(flat):
        raise UserError(
            f"The files params_0.npy to params_{_PARTS - 1}.npy in {path} have {len(flat):,}"
            f" numbers, and {SHAPES} says {sum(sizes):,}: get the files again."
        )
    arrays: Arrays = {}
    names = released_names((len(shapes) - 2) // _LAYER)
    parts = np.split(flat, np.cumsum(sizes)[:-1])
    for name, shape, part in zip(names, shapes, parts, strict=True):
        is_convolution = name.endswith("/w") and len(shape) == 3 and shape[0] == 1
        arrays[name] = part.reshape(shape[1:] if is_convolution else shape)
    return arrays


def _read_shapes(path: str) -> list[tuple[int, ...]]:
    try:
        values: Any = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        shapes = [tuple(map(int, shape)) for shape in values]
    except FileNotFoundError:
        raise UserError(f"{path} is missing: it has the shapes of the tensors.") from None
    except (ValueError, TypeError, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None
    if len(shapes) < 2 or (len(shapes) - 2) % _LAYER or len(shapes[0]) != 2 or len(shapes[1]) != 2:
        raise UserError(
            f"{path} has {len(shapes)} shapes: the released model has two tables and {_LAYER}"
            " tensors for each layer."
        )
    return shapes


def _read_part(path: str, number: int) -> np.ndarray:
    name = os.path.join(path, f"params_{number}.npy")
    try:
        array = np.load(name, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(
            f"{name} is missing: the weights are params_0.npy to params_{_PARTS - 1}.npy."
        ) from None
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{name} cannot be read: {error}.") from None
    if array.ndim != 1 or array.dtype.kind != "f":
        raise UserError(
            f"{name} is not a part of the released weights: it has the form {array.dtype}"
            f"{list(array.shape)}, not a row of floating-point numbers."
        )
    return array
