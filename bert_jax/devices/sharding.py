"""Where arrays live: the mesh, and parameter paths -> shardings by a table of rules.

`data` splits the batch; `fsdp` splits the batch too, and every large parameter with its optimizer
moments; `tensor` splits attention heads, the inner layer of the feed-forward network and the
vocabulary. The parameter rules are defined with the models (`models.MODELS`, `models.heads`),
whose modules do not use them: jax.jit gets the shardings of its arguments, and XLA inserts the
communication.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.mesh_utils import create_device_mesh, create_hybrid_device_mesh
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from bert_jax.devices.trees import flatten, path_name
from bert_jax.files.errors import UserError

AXES = ("data", "fsdp", "tensor")
_BATCH = PartitionSpec(("data", "fsdp"))

# (regular expression that is searched for in a parameter's path, a mesh axis for each dimension);
# the first row that matches decides.
Rules = Sequence[tuple[str, PartitionSpec]]


def make_mesh(data: int = -1, fsdp: int = 1, tensor: int = 1, devices: Sequence[Any] = ()) -> Mesh:
    """Arranges all devices in a mesh; a size of -1 is the number of remaining devices.

    Args:
      data, fsdp, tensor: sizes of the axes.
      devices: devices to use instead of all.

    Raises:
      UserError: the sizes do not use exactly the devices that exist.
    """
    sizes = {"data": data, "fsdp": fsdp, "tensor": tensor}
    devices = devices or jax.devices()
    open_axes = [name for name, size in sizes.items() if size == -1]
    if len(open_axes) > 1:
        raise UserError(f"Only one of config.mesh.{' and config.mesh.'.join(open_axes)} may be -1.")
    if open_axes:
        taken = math.prod(size for size in sizes.values() if size != -1)
        sizes[open_axes[0]] = len(devices) // taken
    if math.prod(sizes.values()) != len(devices):
        product = " x ".join(f"{name}={size}" for name, size in sizes.items())
        raise UserError(
            f"The mesh {product} does not use the {len(devices)} devices that exist: the product"
            " of config.mesh.data, .fsdp and .tensor must be that number (-1: the remaining"
            " devices)."
        )
    arranged = arrange(tuple(sizes.values()), devices)
    return Mesh(arranged, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def arrange(sizes: Sequence[int], devices: Sequence[Any]) -> np.ndarray:
    """Returns an array of the devices, in which neighbors along the last axes have fast links.

    TPU slices, and machines with GPUs, are connected by a slower network (`slice_index` tells them
    apart), which is left to the first axes as far as their sizes allow.

    Args:
      sizes: sizes of the axes; their product is the number of devices.
      devices: devices, equally many in each slice.
    """
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    # Axes may have to split an axis of a TPU's network, such as 64 x 2 x 2 on 16 x 16 chips.
    options = {"devices": devices, "allow_split_physical_axes": True}
    if slices == 1:
        return create_device_mesh(sizes, **options)
    outer, left = [], slices
    for size in sizes:
        outer.append(math.gcd(size, left))
        left //= outer[-1]
    inner = [size // part for size, part in zip(sizes, outer, strict=True)]
    return create_hybrid_device_mesh(inner, outer, **options)


def describe_devices(mesh: Mesh) -> str:
    """Returns "8 x cpu (TFRT_CPU), 1 process, mesh data=8 x fsdp=1 x tensor=1"."""
    device = jax.devices()[0]
    shape = " x ".join(f"{name}={size}" for name, size in mesh.shape.items())
    processes = jax.process_count()
    return (
        f"{jax.device_count()} x {device.device_kind} ({device.platform}),"
        f" {processes} process{'es' if processes > 1 else ''}, mesh {shape}"
    )


def on_mesh(mesh: Mesh, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, to be given to jax.jit, with the mesh in use while it is traced.

    Kernels that XLA cannot split over devices by itself need it.
    """

    @functools.wraps(function)
    def traced(*args, **kwargs):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(*args, **kwargs)

    return traced


def split_rows(x: jax.Array) -> jax.Array:
    """Returns float[batch, ...], split along the batch axis only.

    Models call it after the embeddings and each sub-layer. Without it XLA splits hidden states by
    features, as the parameters are over `fsdp`, and moves them between devices again and again:
    a step of BERT-Base took twice the memory and five times as long. It returns `x` itself where
    no mesh of `make_mesh` is in use, or where the mesh cannot split the rows evenly.

    Args:
      x: float[batch, ...].
    """
    mesh = _mesh_in_use()
    if mesh is None or x.shape[0] % batch_shards(mesh):
        return x
    return jax.lax.with_sharding_constraint(x, _BATCH)


def gather_features(param: jax.Array) -> jax.Array:
    """Returns a parameter float[rows, features] with all features of its rows on each device.

    Embedding tables, and kernels that a loop reads, are split by features over `fsdp`. Rows looked
    up in such a table would be split likewise, and a loop would gather a kernel at every iteration.
    """
    if _mesh_in_use() is None:
        return param
    rows_as_before = PartitionSpec(PartitionSpec.UNCONSTRAINED, None)
    return jax.lax.with_sharding_constraint(param, rows_as_before)


def _mesh_in_use() -> AbstractMesh | None:
    """Returns the mesh that is in use while a program is traced, if it is one of `make_mesh`."""
    mesh = jax.sharding.get_abstract_mesh()
    is_ours = mesh.axis_names == AXES and set(mesh.axis_types) == {AxisType.Auto}
    return mesh if is_ours else None


def batch_shards(mesh: Mesh | AbstractMesh) -> int:
    """Returns the number of parts that the mesh splits a batch into."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def even_parts(mesh: Mesh, rows: int, parts: int) -> tuple[int, int]:
    """Returns the number of equal parts in which a batch is computed, and the rows of each.

    The devices share the rows of a part evenly. To make this possible, the parts may have more rows
    in all than the batch, and there may be fewer of them. A batch of all these rows has the same
    parts.

    Args:
      mesh: the devices.
      rows: rows of the batch.
      parts: maximum number of parts.
    """
    shards = batch_shards(mesh)
    of_part = -(-rows // (parts * shards)) * shards
    return -(-rows // of_part), of_part


def padded_rows(mesh: Mesh, rows: int, parts: int = 1) -> int:
    """Returns the number of rows of a batch as it is computed (`even_parts`), padding included."""
    return math.prod(even_parts(mesh, rows, parts))


def spec_of(rules: Rules, path: str) -> PartitionSpec:
    """Returns the PartitionSpec of a parameter "bert/encoder/layer_0/attention/query/kernel".

    Raises:
      UserError: no row of the table matches.
    """
    for pattern, spec in rules:
        if re.search(pattern, path):
            return spec
    raise UserError(
        f"No sharding rule matches the parameter {path!r}: add a row to the rules of its model"
        " (bert_jax.models.MODELS) or of the heads (bert_jax.models.heads.HEAD_RULES)."
    )


def state_shardings(mesh: Mesh, rules: Rules, state: Any) -> Any:
    """Returns the shardings of a training state.

    Args:
      mesh: the devices.
      rules: sharding rules of the parameters.
      state: arrays or ShapeDtypeStructs; its `params`, and all leaves of the optimizer state with
        the path and shape of a parameter, follow the rules; its `carry` is split like a batch if
        the devices can share its rows evenly; the others are replicated.
    """
    shapes = {name: leaf.shape for name, leaf in flatten(state.params).items()}

    def of_leaf(path, leaf):
        name = path_name(path)
        if name.startswith("carry/"):
            return rows_sharding(mesh, leaf.shape[0])
        for parameter, shape in shapes.items():
            if name.endswith("/" + parameter) and leaf.shape == shape:
                return _checked(mesh, rules, parameter, shape)
        return replicated(mesh)

    return jax.tree_util.tree_map_with_path(of_leaf, state)


def parameter_shardings(mesh: Mesh, rules: Rules, params: Any) -> Any:
    """Returns the shardings of a parameter tree."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _checked(mesh, rules, path_name(path), leaf.shape), params
    )


def _checked(mesh: Mesh, rules: Rules, path: str, shape: tuple[int, ...]) -> NamedSharding:
    spec = spec_of(rules, path)
    for size, axis in zip(shape, spec, strict=False):
        if axis is not None and size % mesh.shape[axis]:
            raise UserError(
                f"Parameter {path} of shape {shape} cannot be split over {axis}="
                f"{mesh.shape[axis]} devices: {size} is not divisible by it. Choose another"
                f" config.mesh.{axis}, or, for the vocabulary, model.pad_vocab_to_multiple_of."
            )
    return NamedSharding(mesh, spec)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of arrays whose first dimension is the batch."""
    return NamedSharding(mesh, _BATCH)


def rows_sharding(mesh: Mesh, rows: int) -> NamedSharding:
    """Returns the sharding of arrays [rows, ...]; replicated if devices cannot share the rows."""
    return replicated(mesh) if rows % batch_shards(mesh) else batch_sharding(mesh)


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of arrays that every device holds."""
    return NamedSharding(mesh, PartitionSpec())


def abstract(tree: Any, shardings: Any) -> Any:
    """Returns the shapes, dtypes and shardings of an array tree; creates no array.

    Args:
      tree: tree of arrays, or of anything with `shape` and `dtype`.
      shardings: a tree of the same structure, or one sharding for all of its leaves.
    """
    if isinstance(shardings, Sharding):
        where = shardings
        shardings = jax.tree.map(lambda _: where, tree)
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        tree,
        shardings,
    )


def put(array: np.ndarray, like: Any) -> jax.Array:
    """Returns an array that every process has, on the devices with the sharding of `like`."""
    return jax.make_array_from_callback(like.shape, like.sharding, lambda index: array[index])


@functools.lru_cache(maxsize=64)  # called for each step
def local_rows(mesh: Mesh, batch_size: int) -> tuple[int, int]:
    """Returns the rows [start, stop) of a global batch that this process's devices hold."""
    index_map = batch_sharding(mesh).addressable_devices_indices_map((batch_size,))
    bounds = [index[0].indices(batch_size)[:2] for index in index_map.values() if index]
    return min(start for start, _ in bounds), max(stop for _, stop in bounds)


def shard_batch(
    mesh: Mesh, local: Mapping[str, np.ndarray], batch_size: int, first_row: int
) -> dict[str, jax.Array]:
    """Puts a batch on the devices.

    Args:
      mesh: the devices.
      local: [rows of this process, ...] arrays, the global batch's rows from `first_row` on.
      batch_size: rows of the global batch.
      first_row: see `local`.

    Returns:
      Global arrays [batch_size, ...], split over `data` and `fsdp`.
    """
    sharding = batch_sharding(mesh)

    def put(array: np.ndarray) -> jax.Array:
        def part(index):
            start, stop, _ = index[0].indices(batch_size)
            return array[start - first_row : stop - first_row]

        return jax.make_array_from_callback((batch_size, *array.shape[1:]), sharding, part)

    return {name: put(array) for name, array in local.items()}
