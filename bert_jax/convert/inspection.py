"""Names, shapes and types of the tensors of a checkpoint, of whatever form it is.

    python -m bert_jax.convert inspect PATH

PATH is a workdir, a folder of another program, a safetensors file or a TensorFlow checkpoint.
"""

import contextlib

import numpy as np

from bert_jax.commands.arguments import Arguments
from bert_jax.formats import google, huggingface
from bert_jax.formats.source import kind_of
from bert_jax.formats.tables import FORMATS, count_layers, expand, flatten

Tensors = dict[str, tuple[np.dtype, tuple[int, ...]]]


def run(words: list[str]) -> None:
    """The command's words after `inspect`.

    Raises:
      ValueError: if PATH is no checkpoint of a known form.
    """
    arguments = Arguments("inspect", "Lists the tensors of a checkpoint.")
    arguments.add_argument("path", metavar="PATH", help="a folder or a file")
    path = arguments.parse_args(words).path
    kind = kind_of(path)
    tensors = _READERS[kind](path)
    width = max(map(len, tensors), default=0)
    for name, (dtype, shape) in tensors.items():
        print(f"{name:<{width}}  {dtype.name}{list(shape)}")
    print(f"format      {_describe(kind, tensors)}")
    sizes = sum(int(np.prod(shape, dtype=np.int64)) for _, shape in tensors.values())
    print(f"tensors     {len(tensors)} of {sizes:,} numbers")


def _describe(kind: str, tensors: Tensors) -> str:
    if kind == "workdir":
        return "a workdir of bert_jax"
    form = FORMATS[kind]
    rows = {row.theirs for row in expand(form.rows, count_layers(tensors))}
    parameters = sum(form.todays_name(name) in rows for name in tensors)
    return f"{form.name}; {parameters} of the names are parameters of a BERT"


def _of_workdir(path: str) -> Tensors:
    from bert_jax.training.checkpoints import Checkpoints

    with contextlib.closing(Checkpoints(path, read_only=True)) as checkpoints:
        if (step := checkpoints.newest_good_step()) is None:
            raise ValueError(f"{path} has no checkpoint yet.")
        params = flatten(checkpoints.read_params(step))
    return {name: (array.dtype, array.shape) for name, array in params.items()}


def _of_huggingface(path: str) -> Tensors:
    arrays = huggingface.read(path)
    return {name: (array.dtype, array.shape) for name, array in arrays.items()}


def _of_google(path: str) -> Tensors:
    entries = google.open_bundle(path).entries
    return {name: (entry.dtype, entry.shape) for name, entry in entries.items()}


_READERS = {"workdir": _of_workdir, "huggingface": _of_huggingface, "google": _of_google}
