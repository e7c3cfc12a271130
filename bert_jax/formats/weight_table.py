"""Tables of parameter names in other programs: strict import and export of weights.

Parameters are flat: path -> float32 array, such as "bert/encoder/layer_0/output/kernel". An import
is strict: each tensor of a checkpoint is a parameter or is known not to be one, and each parameter
is in the checkpoint or belongs to a head that the checkpoint lacks entirely. Anything else is an
error that lists names and shapes.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping

import ml_dtypes
import numpy as np

from bert_jax.files.errors import UserError

Arrays = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]
Transform = Callable[[np.ndarray], np.ndarray]

_MAX_DIFFERENCES = 12


# How the tensor of a format becomes a parameter, and back.
TRANSFORMS: dict[str, tuple[Transform, Transform]] = {
    "same": (lambda x: x, lambda x: x),
    # The format stores [out, in] for our [in, out].
    "transpose": (lambda x: x.T, lambda x: x.T),
    # The format has a first dimension of 1 more.
    "first_of_one": (lambda x: x[0], lambda x: x[None]),
    # The format lacks the first row, of zeros.
    "zero_row": (lambda x: np.concatenate([np.zeros_like(x[:1]), x]), lambda x: x[1:]),
}


@dataclasses.dataclass(frozen=True)
class WeightRow:
    """One parameter; `{i}` stands for the number of a layer.

    Attributes:
      path: the parameter's path in this package.
      tensor: its name in the format.
      transform: a key of TRANSFORMS.
      part: (number, count) where the tensor, after `transform`, holds `count` parameters of one
        shape side by side along its last dimension, and this is number `number` of them.
    """

    path: str
    tensor: str
    transform: str = "same"
    part: tuple[int, int] = (0, 1)


def dense(path: str, tensor: str, bias: bool = True) -> tuple[WeightRow, ...]:
    """Returns the rows of a dense layer that the format stores as torch does."""
    kernel = WeightRow(f"{path}/kernel", f"{tensor}.weight", "transpose")
    return (kernel, WeightRow(f"{path}/bias", f"{tensor}.bias"))[: 1 + bias]


def norm(path: str, tensor: str, bias: bool = True) -> tuple[WeightRow, ...]:
    """Returns the rows of a layer norm that the format stores as torch does."""
    scale = WeightRow(f"{path}/scale", f"{tensor}.weight")
    return (scale, WeightRow(f"{path}/bias", f"{tensor}.bias"))[: 1 + bias]


@dataclasses.dataclass(frozen=True)
class NonParameter:
    """A tensor that a checkpoint may hold and that is not a parameter.

    Attributes:
      pattern: regular expression of its full name.
      reason: description of the tensor.
      equals: required values: "" (anything), "arange", "zeros", "lower_triangle" (ones on
        and below the diagonal), or the name of the tensor that it duplicates (and replaces where
        that tensor is missing).
    """

    pattern: str
    reason: str
    equals: str = ""

    def check(self, name: str, tensors: Arrays) -> None:
        """Raises UserError if the tensor `name` has other values than it must have."""
        array = tensors[name]
        match self.equals:
            case "":
                return
            case "arange":
                expected = np.arange(array.shape[-1]).reshape(array.shape)
            case "zeros":
                expected = np.zeros_like(array)
            case "lower_triangle":
                expected = np.broadcast_to(np.tri(array.shape[-1]), array.shape)
            case original if original in tensors:
                expected = tensors[original]
            case _:
                return
        if not np.array_equal(array, expected):
            raise UserError(
                f"{name} is expected to be {self.reason}, but has other values: such models are"
                " not supported."
            )


@dataclasses.dataclass(frozen=True)
class WeightTable:
    """The tensors of one model in one format.

    Attributes:
      rows: the parameters.
      non_parameters: tensors that may be stored beside them.
      old_names: (pattern, replacement) that turn names of older versions into those of `rows`.
    """

    rows: tuple[WeightRow, ...]
    non_parameters: tuple[NonParameter, ...] = ()
    old_names: tuple[tuple[str, str], ...] = ()

    def current_name(self, tensor: str) -> str:
        """Returns the name that `rows` has for a tensor, which may have an older name."""
        for pattern, replacement in self.old_names:
            tensor = re.sub(pattern, replacement, tensor)
        return tensor

    def expand(self, num_layers: int) -> tuple[WeightRow, ...]:
        """Returns the rows for `num_layers` layers, without `{i}`."""
        return tuple(
            dataclasses.replace(
                row, path=row.path.replace("{i}", str(i)), tensor=row.tensor.replace("{i}", str(i))
            )
            for row in self.rows
            for i in range(num_layers if "{i}" in row.path else 1)
        )


@dataclasses.dataclass(frozen=True)
class ImportReport:
    """How the tensors of a checkpoint were used.

    Attributes:
      used: tensor -> paths of the parameters in it.
      renamed: tensor -> its current name, for tensors with an older name.
      transposed: tensors that were transposed.
      known_non_parameters: tensor -> reason.
      cast: tensor -> dtype, where it was not float32.
      missing: paths of the parameters that the checkpoint lacks.
    """

    used: dict[str, tuple[str, ...]]
    renamed: dict[str, str]
    transposed: tuple[str, ...]
    known_non_parameters: dict[str, str]
    cast: dict[str, str]
    missing: tuple[str, ...]


def import_params(
    tensors: Mapping[str, np.ndarray],
    table: WeightTable,
    num_layers: int,
    expected: Shapes,
    encoder: str,
    path: str = "the checkpoint",
) -> tuple[Arrays, ImportReport]:
    """Converts the tensors of a checkpoint to parameters.

    Args:
      tensors: tensors by their names in the checkpoint.
      table: names of the model's parameters in that format.
      num_layers: layers of the encoder.
      expected: shape of each parameter of the model, by path.
      encoder: first part of the encoder's parameter paths, such as "bert"; all others
        belong to heads, which may be missing as a whole.
      path: path of the checkpoint, for messages.

    Returns:
      The parameters by path, float32, and the report. Parameters of missing heads are left out.

    Raises:
      UserError: for unknown tensors, parameters that are missing or have another shape, and
        duplicates that differ from their original.
    """
    original: dict[str, str] = {}  # name in the checkpoint, by current name
    for name in tensors:
        if (current := table.current_name(name)) in original:
            raise UserError(f"The checkpoint has {current} twice, once as {name}.")
        original[current] = name
    arrays = {name: tensors[stored] for name, stored in original.items()}
    rows = _by_tensor(row for row in table.expand(num_layers) if row.path in expected)
    for known in table.non_parameters:  # a duplicate replaces an original that is missing
        copy = next((name for name in arrays if re.fullmatch(known.pattern, name)), None)
        if known.equals in rows and known.equals not in arrays and copy:
            arrays[known.equals], original[known.equals] = arrays.pop(copy), original.pop(copy)

    params, reasons, problems = {}, {}, []
    for name, array in arrays.items():
        known = (k for k in table.non_parameters if re.fullmatch(k.pattern, name))
        if parts := rows.get(name):
            if array.dtype.kind != "f" and array.dtype != ml_dtypes.bfloat16:
                raise UserError(
                    f"{path}: {original[name]} has the dtype {array.dtype}: quantized weights are"
                    " not supported; get them in float32, float16 or bfloat16."
                )
            params |= _to_parameters(array, parts)
        elif non_parameter := next(known, None):
            non_parameter.check(name, arrays)
            reasons[original[name]] = non_parameter.reason
        else:
            problems.append(f"- {original[name]}: {list(array.shape)}")

    problems.sort()
    missing = expected.keys() - params.keys()
    heads = {path.split("/")[0] for path in params} | {encoder}
    of_missing_heads = {name for name in missing if name.split("/")[0] not in heads}
    for name, parts in rows.items():
        shape = _tensor_shape(expected, parts)
        if parts[0].path in missing - of_missing_heads:
            problems.append(f"+ {name}: {list(shape)}")
        elif name in arrays and arrays[name].shape != shape:
            problems.append(f"- {original[name]}: {list(arrays[name].shape)}")
            problems.append(f"+ {name}: {list(shape)}")
    if problems:
        more = len(problems) - _MAX_DIFFERENCES
        raise UserError(
            f"The tensors of {path} do not match its configuration (- in the checkpoint,"
            f" + expected): {'; '.join(problems[:_MAX_DIFFERENCES])}"
            f"{f'; and {more} more' if more > 0 else ''}."
        )
    used = {original[name]: (name, parts) for name, parts in rows.items() if name in arrays}
    dtypes = {stored: arrays[name].dtype for stored, (name, _) in used.items()}
    return params, ImportReport(
        used={stored: tuple(p.path for p in parts) for stored, (_, parts) in used.items()},
        renamed={stored: name for stored, (name, _) in used.items() if stored != name},
        transposed=tuple(s for s, (_, p) in used.items() if p[0].transform == "transpose"),
        known_non_parameters=reasons,
        cast={stored: dtype.name for stored, dtype in dtypes.items() if dtype != np.float32},
        missing=tuple(sorted(of_missing_heads)),
    )


def export_params(params: Mapping[str, np.ndarray], table: WeightTable, format_name: str) -> Arrays:
    """Converts parameters to the names and layouts of a format; duplicates are not added.

    Raises UserError for a parameter that the table lacks.
    """
    num_layers = count_layers(params, (row.path for row in table.rows))
    rows = {row.path: row for row in table.expand(num_layers)}
    if unknown := sorted(params.keys() - rows.keys()):
        raise UserError(f"The format {format_name} has no name for {', '.join(unknown)}.")
    tensors: Arrays = {}
    for name, parts in _by_tensor(row for path, row in rows.items() if path in params).items():
        if len(parts) < parts[0].part[1]:
            raise UserError(
                f"The format {format_name} stores {name} as a whole, and of its parts only"
                f" {', '.join(part.path for part in parts)} is here."
            )
        arrays = [np.asarray(params[part.path]) for part in parts]
        array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)
        tensors[name] = np.ascontiguousarray(TRANSFORMS[parts[0].transform][1](array))
    return tensors


def weights_sha256(params: Mapping[str, np.ndarray]) -> str:
    """Returns a hash of names, shapes and float32 bytes (little-endian), sorted by name."""
    digest = hashlib.sha256()
    for name in sorted(params):
        array = np.ascontiguousarray(params[name], "<f4")
        digest.update(f"{name} {list(array.shape)}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def count_layers(names: Iterable[str], patterns: Iterable[str]) -> int:
    """Returns the number of layers: names are parameters or tensors, patterns have `{i}`."""
    layers = [re.escape(p).replace(r"\{i\}", r"(\d+)") for p in patterns if "{i}" in p]
    matches = (re.fullmatch(pattern, name) for name in names for pattern in layers)
    return max((int(match[1]) + 1 for match in matches if match), default=0)


def _by_tensor(rows: Iterable[WeightRow]) -> dict[str, tuple[WeightRow, ...]]:
    """Returns the rows of each tensor, in the order of their parts."""
    parts: dict[str, list[WeightRow]] = {}
    for row in rows:
        parts.setdefault(row.tensor, []).append(row)
    return {name: tuple(sorted(rows, key=lambda row: row.part)) for name, rows in parts.items()}


def _to_parameters(array: np.ndarray, parts: tuple[WeightRow, ...]) -> Arrays:
    """Returns the parameters in a tensor; the caller refuses a tensor of a wrong shape."""
    with np.errstate(over="ignore"):  # the caller refuses values that are not finite
        array = array.astype(np.float32, copy=False)
    array = TRANSFORMS[parts[0].transform][0](array)
    arrays = [array]
    if len(parts) > 1:
        arrays = np.array_split(np.atleast_1d(array), len(parts), axis=-1)
    return {part.path: np.ascontiguousarray(x) for part, x in zip(parts, arrays, strict=True)}


def _tensor_shape(expected: Shapes, parts: tuple[WeightRow, ...]) -> tuple[int, ...]:
    shape = expected[parts[0].path]
    if (count := parts[0].part[1]) > 1:
        shape = (*shape[:-1], shape[-1] * count)
    array = np.broadcast_to(np.float32(0), shape)  # takes no memory
    return TRANSFORMS[parts[0].transform][1](array).shape
