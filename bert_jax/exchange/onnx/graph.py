"""An ONNX graph that is built node by node, with sizes that are known only when it runs."""

import ast
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bert_jax.files.errors import UserError

# The first version of the operators with Gelu; onnxruntime reads it since 1.17.
OPSET = 20

# Names of sizes, and numbers.
Sizes = Sequence[str | int]


class Value(NamedTuple):
    """A tensor of the graph.

    Attributes:
      name: its name in the graph.
      shape: its sizes there: those of the traced array, or 1 where it is still to be broadcast; ()
        for a scalar that is broadcast to any shape.
    """

    name: str
    shape: tuple[Any, ...]


class Graph:
    """Nodes and constants, added while a jaxpr is read."""

    def __init__(self):
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[Any, onnx.TensorProto] = {}
        self._sizes: dict[str, str] = {}  # expression -> int64[1]
        self._count = 0

    def add(
        self,
        op: str,
        *inputs: str,
        outputs: int | Sequence[str] = 1,
        name: str = "",
        **attributes: Any,
    ) -> Any:
        """Adds a node; returns the name of its output, or of several outputs."""
        if isinstance(outputs, int):
            self._count += 1
            outputs = [f"{op}_{self._count}" + f".{i}" * (outputs > 1) for i in range(outputs)]
        node = helper.make_node(op, list(inputs), list(outputs), name or outputs[0], **attributes)
        self._nodes.append(node)
        return outputs[0] if len(outputs) == 1 else list(outputs)

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Returns the name of a constant; equal ones are stored once."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = numpy_helper.from_array(array, name)
        return self._constants[key].name

    def add_sizes(self, name: str, sizes: Sizes) -> None:
        """Reads the named sizes from the shape of an input."""
        for axis, size in enumerate(sizes):
            if isinstance(size, str) and size not in self._sizes:
                self._sizes[size] = self.add("Shape", name, start=axis, end=axis + 1)

    def size(self, size: Any) -> str:
        """Returns a number or an expression of sizes, such as "2*seq + 1", as int64[1]."""
        if isinstance(size, int | np.integer):
            return self.constant([size], np.int64)
        if (text := str(size)) not in self._sizes:
            self._sizes[text] = self._evaluate(ast.parse(text, mode="eval").body)
        return self._sizes[text]

    def _evaluate(self, node: ast.expr) -> str:
        names = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul"}
        match node:
            case ast.Name():
                return self._sizes[node.id]
            case ast.Constant(value=int(number)):
                return self.constant([number], np.int64)
            case ast.UnaryOp(op=ast.USub()):
                return self.add("Neg", self._evaluate(node.operand))
            case ast.BinOp() if op := names.get(type(node.op)):
                return self.add(op, self._evaluate(node.left), self._evaluate(node.right))
        raise UserError(f"A size of this model, {ast.unparse(node)}, has no translation to ONNX.")

    def shape(self, sizes: Sequence[Any]) -> str:
        """Returns int64[rank]."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(sizes, np.int64)
        return self.add("Concat", *map(self.size, sizes), axis=0)

    def exact(self, value: Value, shape: Sequence[Any], axes: Sequence[int] | None = None) -> str:
        """Returns a tensor that is broadcast to the traced shape, or along some axes only."""
        if value.shape and axes is not None:
            shape = [new if i in axes else old for i, (old, new) in pairs(value.shape, shape)]
        if is_same(value.shape, shape):
            return value.name
        return self.add("Expand", value.name, self.shape(shape))

    def model(
        self,
        inputs: list[onnx.ValueInfoProto],
        outputs: list[onnx.ValueInfoProto],
        params: Mapping[str, np.ndarray],
    ) -> onnx.ModelProto:
        """Returns the model of the nodes that the outputs need."""
        needed, nodes = {output.name for output in outputs}, []
        for node in reversed(self._nodes):
            if needed & set(node.output):
                needed |= set(node.input)
                nodes.append(node)
        initializers = [x for x in self._constants.values() if x.name in needed]
        initializers += [
            numpy_helper.from_array(np.ascontiguousarray(array), path)
            for path, array in params.items()
            if path in needed
        ]
        graph = helper.make_graph(nodes[::-1], "bert_jax", inputs, outputs, initializers)
        opsets = [helper.make_opsetid("", OPSET)]
        # 9: the version of the file format that has this set of operators.
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=9, producer_name="bert_jax"
        )


def is_same(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    return tuple(map(str, shape)) == tuple(map(str, other))


def pairs(shape: Sequence[Any], other: Sequence[Any]) -> Any:
    return enumerate(zip(shape, other, strict=True))


def joint(values: Sequence[Value]) -> tuple[Any, ...]:
    """Returns the shape of an operation that broadcasts its inputs."""
    shapes = [value.shape for value in values if value.shape]
    return tuple(
        next((size for size in sizes if str(size) != "1"), 1) for sizes in zip(*shapes, strict=True)
    )
