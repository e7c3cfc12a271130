"""Translates a jax function into an ONNX graph.

The function is traced with symbolic sizes. Each operation of its jaxpr becomes one node of ONNX, or
a few: whatever a model is composed of, its graph computes the same. Layer norms, softmaxes and
GELUs become one node each, for which runtimes have fast kernels.

An array that is broadcast stays small, since most operations of ONNX broadcast by themselves.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.export
import numpy as np
import onnx
from jax.extend.core import Literal
from onnx import helper

from bert_jax.exchange.onnx.graph import Graph, Sizes, Value, joint
from bert_jax.exchange.onnx.operations import (
    ELEMENTWISE,
    LAYER_NORM,
    OPERATIONS,
    gelu_of,
    softmax_input,
)
from bert_jax.files.errors import UserError

# (parameters by path, inputs by name) -> outputs by name.
Function = Callable[[Mapping[str, jax.Array], Mapping[str, jax.Array]], dict[str, jax.Array]]
# Operations whose inner jaxpr is read in their place, and the parameters that may hold it.
_INLINED = {
    *("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
}
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def make_graph(
    function: Function,
    params: Mapping[str, np.ndarray],
    inputs: Mapping[str, Sizes],
    limits: Sequence[str] = (),
) -> onnx.ModelProto:
    """Returns a function as a model of ONNX, whose initializers are the parameters.

    Args:
      function: a pure function of int32 inputs; the sizes of its outputs follow from theirs.
      params: parameter path -> array.
      inputs: name -> sizes; equal names mean equal sizes. The graph takes them as int64.
      limits: constraints on sizes, such as "seq <= 512".

    Raises:
      UserError: the function has an operation that is not translated.
    """
    scope = jax.export.SymbolicScope(list(limits))
    specs = {
        name: jax.ShapeDtypeStruct(
            jax.export.symbolic_shape(", ".join(map(str, sizes)), scope=scope), "int32"
        )
        for name, sizes in inputs.items()
    }
    weights = {path: jax.ShapeDtypeStruct(x.shape, x.dtype) for path, x in params.items()}
    order: list[str] = []  # of the function's outputs; jax sorts them

    def ordered(params: Any, batch: Any) -> dict[str, jax.Array]:
        outputs = function(params, batch)
        order[:] = outputs
        return outputs

    with _whole_norms():
        traced = jax.jit(ordered).trace(weights, specs)
    graph = Graph()
    for name, sizes in inputs.items():
        graph.add_sizes(name, sizes)
    args = [Value(path, params[path].shape) for path in sorted(params)]
    for name in sorted(inputs):
        cast = graph.add("Cast", name, to=onnx.TensorProto.INT32)
        args.append(Value(cast, specs[name].shape))
    results = _run(graph, traced.jaxpr.jaxpr, traced.jaxpr.consts, args)
    outputs = {}
    for name, value, leaf in zip(
        sorted(traced.out_info), results, traced.jaxpr.out_avals, strict=True
    ):
        graph.add("Identity", graph.exact(value, leaf.shape), outputs=[name])
        outputs[name] = _info(name, onnx.TensorProto.FLOAT, leaf.shape)
    return graph.model(
        [_info(name, onnx.TensorProto.INT64, sizes) for name, sizes in inputs.items()],
        [outputs[name] for name in order],
        params,
    )


def _info(name: str, kind: Any, sizes: Sequence[Any]) -> onnx.ValueInfoProto:
    shape = [size if isinstance(size, int) else str(size) for size in sizes]
    return helper.make_tensor_value_info(name, kind, shape)


@contextlib.contextmanager
def _whole_norms() -> Iterator[None]:
    """Traces each layer norm of flax as one operation."""

    def intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        if not isinstance(module, nn.LayerNorm) or context.method_name != "__call__":
            return call(*args, **kwargs)
        params = module.variables["params"]
        parts = [params[name] for name in ("scale", "bias") if name in params]
        return LAYER_NORM.bind(*args, *parts, epsilon=module.epsilon)

    with nn.intercept_methods(intercept):
        yield


def _run(graph: Graph, jaxpr: Any, constants: Sequence[Any], args: Sequence[Value]) -> list[Value]:
    """Adds the operations of a jaxpr; returns its results."""
    arrays = [Value(graph.constant(np.asarray(x)), np.shape(x)) for x in constants]
    found: dict[Any, Value] = dict(zip(jaxpr.constvars, arrays, strict=True))
    found |= zip(jaxpr.invars, args, strict=True)

    def read(atom: Any) -> Value:
        if isinstance(atom, Literal):
            aval: Any = atom.aval
            return Value(graph.constant(atom.val, aval.dtype), np.shape(atom.val))
        return found[atom]

    made = {variable: equation for equation in jaxpr.eqns for variable in equation.outvars}
    for equation in jaxpr.eqns:
        values = [read(atom) for atom in equation.invars]
        if (atom := softmax_input(equation, made)) is not None:
            results = [_of_last_axis(graph, "Softmax", read(atom), atom, axis=-1)]
        else:
            results = _translate(graph, equation, values)
        found |= zip(equation.outvars, results, strict=True)
    return [read(atom) for atom in jaxpr.outvars]


def _of_last_axis(graph: Graph, op: str, x: Value, atom: Any, **attributes: Any) -> Value:
    """Adds a node of one input whose last axis is not broadcast."""
    shape = atom.aval.shape
    name = graph.exact(x, shape, [len(shape) - 1])
    return Value(graph.add(op, name, **attributes), (*(x.shape or shape)[:-1], shape[-1]))


def _translate(graph: Graph, equation: Any, values: list[Value]) -> list[Value]:
    name = equation.primitive.name
    if kind := gelu_of(equation):
        (atom,) = equation.invars
        return [_of_last_axis(graph, "Gelu", values[0], atom, approximate=kind)]
    if name in _INLINED:
        inner = next(equation.params[key] for key in _INNER if key in equation.params)
        return _run(graph, getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), values)
    if name in ELEMENTWISE:
        return [Value(ELEMENTWISE[name](graph, *(x.name for x in values)), joint(values))]
    if name not in OPERATIONS:
        raise UserError(
            f"The model has the operation {name!r}, which is not translated to ONNX: leave the"
            " part that has it out, or export with to_stablehlo or to_hf."
        )
    result = OPERATIONS[name](graph, equation, *values)
    return result if isinstance(result, list) else [result]
