"""The operations of jax that models are composed of, as nodes of ONNX."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from jax.extend.core import Literal, Primitive
from onnx import helper

from bert_jax.exchange.onnx.graph import Graph, Value, is_same, pairs
from bert_jax.files.errors import UserError

# A layer norm of flax as one operation: (x, scale[, bias]) -> x normalized.
LAYER_NORM = Primitive("layer_norm")
LAYER_NORM.def_abstract_eval(lambda x, *_, epsilon: x)


# ------------------------------------------------------------------ functions that are one node


def gelu_of(equation: Any) -> str:
    """Returns the kind of GELU, "none" or "tanh", that a whole operation computes; "": none."""
    if equation.primitive.name in ("checkpoint", "remat", "remat2") and len(equation.invars) == 1:
        names = {inner.primitive.name for inner in equation.params["jaxpr"].eqns}
        return "none" if "erfc" in names else "tanh" if "tanh" in names else ""
    return ""


def softmax_input(equation: Any, made: Mapping[Any, Any]) -> Any:
    """Returns the x of exp(x - max(x)) / sum(exp(x - max(x))) over the last axis, or None.

    Args:
      equation: any equation of a jaxpr.
      made: variable -> the equation that computes it.
    """

    def find(atom: Any, *names: str) -> Any:
        """Returns the first equation of one of these names that an array is broadcast from."""
        passed = ("broadcast_in_dim", "reshape", "stop_gradient", "max")
        while not isinstance(atom, Literal) and (source := made.get(atom)) is not None:
            if source.primitive.name in names:
                return source
            if source.primitive.name not in passed:
                return None
            atom = next(x for x in source.invars if not isinstance(x, Literal))
        return None

    if equation.primitive.name != "div":
        return None
    exp, total = find(equation.invars[0], "exp"), find(equation.invars[1], "reduce_sum")
    difference = find(exp.invars[0], "sub") if exp and total else None
    if difference is None or (largest := find(difference.invars[1], "reduce_max")) is None:
        return None
    x = difference.invars[0]
    is_softmax = (
        total.invars[0] is exp.outvars[0]
        and largest.invars[0] is x
        and total.params["axes"] == largest.params["axes"] == (len(x.aval.shape) - 1,)
    )
    return x if is_softmax else None


# ------------------------------------------------------------------ elementwise operations


def _simple(op: str, **attributes) -> Callable[..., str]:
    return lambda graph, *names: graph.add(op, *names, **attributes)


# By the name of a primitive of jax: (graph, *names of inputs) -> name of the output.
ELEMENTWISE: dict[str, Callable[..., str]] = {
    **{
        name: _simple(op)
        for name, op in {
            **{"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow"},
            **{"max": "Max", "min": "Min", "neg": "Neg", "abs": "Abs", "sqrt": "Sqrt"},
            **{"exp": "Exp", "log": "Log", "tanh": "Tanh", "erf": "Erf", "logistic": "Sigmoid"},
            **{"sin": "Sin", "cos": "Cos", "and": "And", "or": "Or", "not": "Not"},
            **{"eq": "Equal", "lt": "Less", "le": "LessOrEqual"},
            **{"gt": "Greater", "ge": "GreaterOrEqual"},
            **{"copy": "Identity", "copy_p": "Identity", "stop_gradient": "Identity"},
        }.items()
    },
    "rem": _simple("Mod", fmod=1),
    "ne": lambda graph, x, y: graph.add("Not", graph.add("Equal", x, y)),
    "select_n": lambda graph, condition, no, yes: graph.add("Where", condition, yes, no),
    "erfc": lambda graph, x: graph.add("Sub", graph.constant(1, np.float32), graph.add("Erf", x)),
    "clamp": lambda graph, low, x, high: graph.add("Min", graph.add("Max", x, low), high),
    "rsqrt": lambda graph, x: graph.add("Reciprocal", graph.add("Sqrt", x)),
    "square": lambda graph, x: graph.add("Mul", x, x),
}


# ------------------------------------------------------------------ other operations


def _cast(graph: Graph, equation: Any, x: Value) -> Value:
    dtype = np.dtype(equation.params["new_dtype"])
    if dtype == equation.invars[0].aval.dtype:
        return x
    return Value(graph.add("Cast", x.name, to=helper.np_dtype_to_tensor_dtype(dtype)), x.shape)


def _integer_pow(graph: Graph, equation: Any, x: Value) -> Value:
    return Value(
        graph.add("Pow", x.name, graph.constant(equation.params["y"], np.float32)), x.shape
    )


def _broadcast(graph: Graph, equation: Any, x: Value, *_: Value) -> Value:
    if not x.shape:
        return x
    rank, places = len(equation.params["shape"]), equation.params["broadcast_dimensions"]
    shape: list[Any] = [1] * rank
    for place, size in zip(places, x.shape, strict=True):
        shape[place] = size
    if not (new := [axis for axis in range(rank) if axis not in places]):
        return Value(x.name, tuple(shape))
    return Value(graph.add("Unsqueeze", x.name, graph.constant(new, np.int64)), tuple(shape))


def _reshape(graph: Graph, equation: Any, x: Value, *_: Value) -> Value:
    old, new = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    name = graph.exact(x, old)
    # 0: the size of the input on the same axis; -1: what remains.
    sizes = [
        size if isinstance(size, int) else (0 if is_same([size], old[i : i + 1]) else -1)
        for i, size in enumerate(new)
    ]
    target = graph.constant(sizes, np.int64) if sizes.count(-1) < 2 else graph.shape(new)
    return Value(graph.add("Reshape", name, target), tuple(new))


def _squeeze(graph: Graph, equation: Any, x: Value) -> Value:
    if not x.shape:
        return x
    axes = equation.params["dimensions"]
    shape = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    return Value(graph.add("Squeeze", x.name, graph.constant(axes, np.int64)), shape)


def _transpose(graph: Graph, equation: Any, x: Value) -> Value:
    if not x.shape:
        return x
    order = equation.params["permutation"]
    name = graph.add("Transpose", x.name, perm=list(order))
    return Value(name, tuple(x.shape[axis] for axis in order))


def _reduce(op: str, of_bools: bool = False) -> Callable[..., Value]:
    def reduce(graph: Graph, equation: Any, x: Value) -> Value:
        old, axes = equation.invars[0].aval.shape, equation.params["axes"]
        name = graph.exact(x, old, axes)
        if of_bools:
            name = graph.add("Cast", name, to=onnx.TensorProto.INT32)
        name = graph.add(op, name, graph.constant(axes, np.int64), keepdims=0)
        if of_bools:
            name = graph.add("Cast", name, to=onnx.TensorProto.BOOL)
        sizes = x.shape or old
        return Value(name, tuple(size for axis, size in enumerate(sizes) if axis not in axes))

    return reduce


def _argmax(graph: Graph, equation: Any, x: Value) -> Value:
    (axis,), name = equation.params["axes"], graph.exact(x, equation.invars[0].aval.shape)
    name = graph.add("ArgMax", name, axis=axis, keepdims=0)
    return Value(graph.add("Cast", name, to=onnx.TensorProto.INT32), equation.outvars[0].aval.shape)


def _dot_general(graph: Graph, equation: Any, x: Value, y: Value) -> Value:
    """A matrix product, batched over further axes that both operands have."""
    (x_sum, y_sum), (x_batch, y_batch) = equation.params["dimension_numbers"]
    x_rank, y_rank = (len(atom.aval.shape) for atom in equation.invars)
    shape = equation.outvars[0].aval.shape
    x_free = [axis for axis in range(x_rank) if axis not in (*x_sum, *x_batch)]
    y_free = [axis for axis in range(y_rank) if axis not in (*y_sum, *y_batch)]
    if len(x_sum) != 1 or len(y_free) != 1 or (x_batch and len(x_free) != 1):
        raise UserError("A product of this model has a form that is not translated to ONNX.")
    names = [graph.exact(v, a.aval.shape) for v, a in zip((x, y), equation.invars, strict=True)]
    if x_rank == y_rank == 2:
        x_turned, y_turned = int(x_sum == (0,)), int(y_sum == (1,))
        if x_turned or y_turned:
            return Value(graph.add("Gemm", *names, transA=x_turned, transB=y_turned), shape)
    orders = [*x_batch, *x_free, *x_sum], [*y_batch, *y_sum, *y_free]
    for place, order in enumerate(orders):
        if order != sorted(order):
            names[place] = graph.add("Transpose", names[place], perm=order)
    # Named as its kernel.
    name = names[1].removesuffix("/kernel") if names[1].endswith("/kernel") else ""
    return Value(graph.add("MatMul", *names, name=name), shape)


def _iota(graph: Graph, equation: Any) -> Value:
    shape, axis = equation.outvars[0].aval.shape, equation.params["dimension"]
    dtype, size = np.dtype(equation.params["dtype"]), shape[axis]
    new = [other for other in range(len(shape)) if other != axis]
    sizes = tuple(1 if other in new else size for other in range(len(shape)))
    if isinstance(size, int):
        return Value(graph.constant(np.arange(size, dtype=dtype).reshape(sizes)), sizes)
    zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
    name = graph.add("Range", zero, graph.add("Squeeze", graph.size(size)), one)
    name = graph.add("Cast", name, to=helper.np_dtype_to_tensor_dtype(dtype))
    if new:
        name = graph.add("Unsqueeze", name, graph.constant(new, np.int64))
    return Value(name, sizes)


def _concatenate(graph: Graph, equation: Any, *values: Value) -> Value:
    atoms = equation.invars
    names = [graph.exact(x, atom.aval.shape) for x, atom in zip(values, atoms, strict=True)]
    shape = equation.outvars[0].aval.shape
    return Value(graph.add("Concat", *names, axis=equation.params["dimension"]), shape)


def _stack(graph: Graph, equation: Any, *values: Value) -> Value:
    axis, shape = equation.params["axis"], equation.outvars[0].aval.shape
    axes = graph.constant([axis], np.int64)
    pairs = zip(values, equation.invars, strict=True)
    names = [graph.add("Unsqueeze", graph.exact(x, atom.aval.shape), axes) for x, atom in pairs]
    return Value(graph.add("Concat", *names, axis=axis), shape)


def _pad(graph: Graph, equation: Any, x: Value, fill: Value) -> Value:
    low, high, between = zip(*equation.params["padding_config"], strict=True)
    if any(between):
        raise UserError("Padding between elements is not translated to ONNX.")
    name = graph.exact(x, equation.invars[0].aval.shape)
    pads = graph.constant([*low, *high], np.int64)
    return Value(graph.add("Pad", name, pads, fill.name), equation.outvars[0].aval.shape)


def _slice(graph: Graph, equation: Any, x: Value) -> Value:
    old, new = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    params = equation.params
    strides = params["strides"] or [1] * len(old)
    cut = [i for i, (a, b) in pairs(old, new) if str(a) != str(b)]
    if not cut:
        return x
    name = graph.exact(x, old, cut)
    sides = params["start_indices"], params["limit_indices"]
    starts, limits = (graph.shape([side[axis] for axis in cut]) for side in sides)
    axes, steps = (graph.constant(n, np.int64) for n in (cut, [strides[axis] for axis in cut]))
    shape = [b if i in cut else a for i, (a, b) in pairs(x.shape or old, new)]
    return Value(graph.add("Slice", name, starts, limits, axes, steps), tuple(shape))


def _split(graph: Graph, equation: Any, x: Value) -> list[Value]:
    name = graph.exact(x, equation.invars[0].aval.shape)
    sizes, axis = equation.params["sizes"], equation.params["axis"]
    parts = graph.constant(sizes, np.int64)
    names = graph.add("Split", name, parts, outputs=len(sizes), axis=axis)
    return [Value(n, v.aval.shape) for n, v in zip(names, equation.outvars, strict=True)]


def _size(graph: Graph, equation: Any) -> Value:
    number = graph.add("Squeeze", graph.size(equation.params["dim"]))
    return Value(graph.add("Cast", number, to=onnx.TensorProto.INT32), ())


def _gather(graph: Graph, equation: Any, x: Value, indices: Value) -> Value:
    """A part of an array, rows of a table, or positions of each row of a batch."""
    form, out = equation.params["dimension_numbers"], equation.outvars[0].aval.shape
    old, places = (atom.aval.shape for atom in equation.invars)
    num_batch, rank = len(form.operand_batching_dims), len(places) - 1
    if not rank:
        return _part(graph, equation, x, indices)
    leading = tuple(range(num_batch))
    (axis,) = form.start_index_map if len(form.start_index_map) == 1 else (-1,)
    is_plain = (
        form.operand_batching_dims == form.start_indices_batching_dims == leading
        and form.collapsed_slice_dims == (axis,) == (num_batch,)
        and form.offset_dims == tuple(range(rank, len(out)))
        and is_same(equation.params["slice_sizes"][axis + 1 :], old[axis + 1 :])
    )
    if not is_plain:
        raise UserError("Positions are read in a way that is not translated to ONNX.")
    name = graph.exact(x, old)
    if num_batch:
        at = graph.add("Cast", graph.exact(indices, places), to=onnx.TensorProto.INT64)
        return Value(graph.add("GatherND", name, at, batch_dims=num_batch), out)
    if not indices.shape:
        indices = Value(graph.exact(indices, places), places)
    at = graph.add("Squeeze", indices.name, graph.constant([rank], np.int64))
    return Value(graph.add("Gather", name, at, axis=0), (*indices.shape[:-1], *out[rank:]))


def _part(graph: Graph, equation: Any, x: Value, starts: Value) -> Value:
    """Returns the part of an array that begins at int32[axes]."""
    form, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    old, places = (atom.aval.shape for atom in equation.invars)
    axes, name = form.start_index_map, graph.exact(x, old)
    begins = graph.add("Cast", graph.exact(starts, places), to=onnx.TensorProto.INT64)
    ends = graph.add("Add", begins, graph.shape([sizes[axis] for axis in axes]))
    name = graph.add("Slice", name, begins, ends, graph.constant(axes, np.int64))
    if form.collapsed_slice_dims:
        name = graph.add("Squeeze", name, graph.constant(form.collapsed_slice_dims, np.int64))
    return Value(name, tuple(equation.outvars[0].aval.shape))


def _norm(graph: Graph, equation: Any, x: Value, *parts: Value) -> Value:
    shape = equation.invars[0].aval.shape
    names = [graph.exact(x, shape), *(part.name for part in parts)]
    options = {"axis": -1, "epsilon": equation.params["epsilon"]}
    return Value(graph.add("LayerNormalization", *names, **options), shape)


# By the name of a primitive of jax: (graph, equation, *values) -> its result, or several.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "convert_element_type": _cast,
    "integer_pow": _integer_pow,
    "optimization_barrier": lambda graph, equation, *values: list(values),
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "reduce_sum": _reduce("ReduceSum"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_or": _reduce("ReduceMax", of_bools=True),
    "reduce_and": _reduce("ReduceMin", of_bools=True),
    "argmax": _argmax,
    "dot_general": _dot_general,
    "iota": _iota,
    "concatenate": _concatenate,
    "stack": _stack,
    "pad": _pad,
    "slice": _slice,
    "split": _split,
    "dim_as_value": _size,
    "gather": _gather,
    "layer_norm": _norm,
}
