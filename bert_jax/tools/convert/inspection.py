"""Tensor names, shapes and dtypes in a checkpoint of any format."""

import contextlib
import math
from collections.abc import Iterable, Iterator

from bert_jax.devices.trees import flatten
from bert_jax.files.errors import UserError
from bert_jax.formats import FORMATS, format_of
from bert_jax.formats.hub import local_model
from bert_jax.formats.names import NAMES
from bert_jax.formats.weight_table import count_layers
from bert_jax.training.checkpoints import Checkpoints


def list_tensors(path: str) -> Iterator[str]:
    """Yields a line for each tensor of a checkpoint, then its format and its size.

    Args:
      path: a workdir, a folder of another program, a safetensors file or a TensorFlow checkpoint.

    Raises:
      UserError: `path` is not a checkpoint of a known format.
    """
    path = local_model(path)
    format = format_of(path)
    if format == "workdir":
        with contextlib.closing(Checkpoints(path, read_only=True)) as checkpoints:
            if (step := checkpoints.newest_good_step()) is None:
                raise UserError(f"{path} has no checkpoint yet.")
            tensors = flatten(checkpoints.read_params(step))
        description = "a workdir of bert_jax"
    else:
        tensors = FORMATS[format].tensors(path)
        description = f"{FORMATS[format].TITLE}; {_describe(format, tensors)}"
    width = max(map(len, tensors), default=0)
    for name, tensor in tensors.items():
        yield f"{name:<{width}}  {tensor.dtype.name}{list(tensor.shape)}"
    yield f"format      {description}"
    size = sum(math.prod(tensor.shape) for tensor in tensors.values())
    yield f"tensors     {len(tensors)} of {size:,} numbers"


def _describe(format: str, tensors: Iterable[str]) -> str:
    """Returns how many tensors are parameters of the model that has the most of them."""
    counts = {}
    for model, tables in NAMES.items():
        if table := tables.get(format):
            names = [table.current_name(tensor) for tensor in tensors]
            num_layers = count_layers(names, (row.tensor for row in table.rows))
            parameters = {row.tensor for row in table.expand(num_layers)}
            counts[model] = sum(name in parameters for name in names)
    best = max(counts, key=counts.__getitem__)
    return f"{counts[best]} of the names are parameters of {best}"
