"""Products of an ONNX graph in int8: dynamic quantization with a scale for each output feature."""

from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

_MAX = 127  # of an int8, in both directions


def products(graph: onnx.ModelProto) -> list[str]:
    """Returns the names of the products with a kernel: the paths of their parameters."""
    kernels = {tensor.name for tensor in graph.graph.initializer}
    return [x.name for x in graph.graph.node if x.op_type == "MatMul" and x.input[1] in kernels]


def quantize(graph: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Returns a graph in which the products with these names are computed in int8.

    Each column of a kernel is scaled so that its largest absolute value is 127. The input gets one
    scale and one zero point as it is computed, from the smallest and the largest value of the batch
    (DynamicQuantizeLinear). Sums are int32.
    """
    kernels = {tensor.name: tensor for tensor in graph.graph.initializer}
    nodes, inputs, new = [], {}, []
    for node in graph.graph.node:
        if node.name not in names:
            nodes.append(node)
            continue
        x, path = node.input
        if x not in inputs:  # several products may read it
            inputs[x] = [f"{x}/{part}" for part in ("int8", "scale", "zero_point")]
            nodes.append(helper.make_node("DynamicQuantizeLinear", [x], inputs[x]))
        values, scale, zero_point = inputs[x]
        for part, array in zip(("int8", "scales"), _columns(kernels.pop(path)), strict=True):
            new.append(numpy_helper.from_array(array, f"{path}/{part}"))
        total, cast, scales = (f"{path}/{part}" for part in ("sum", "float32", "both_scales"))
        nodes += [
            helper.make_node("MatMulInteger", [values, f"{path}/int8", zero_point], [total]),
            helper.make_node("Cast", [total], [cast], to=onnx.TensorProto.FLOAT),
            helper.make_node("Mul", [scale, f"{path}/scales"], [scales]),
            helper.make_node("Mul", [cast, scales], list(node.output)),
        ]
    ends = graph.graph.input, graph.graph.output
    made = helper.make_graph(nodes, graph.graph.name, *ends, [*kernels.values(), *new])
    return helper.make_model(
        made,
        opset_imports=graph.opset_import,
        ir_version=graph.ir_version,
        producer_name=graph.producer_name,
    )


def _columns(tensor: onnx.TensorProto) -> tuple[np.ndarray, np.ndarray]:
    """float32[in, out] -> int8[in, out], float32[out] scales."""
    kernel = numpy_helper.to_array(tensor)
    scales = np.abs(kernel).max(axis=0) / _MAX
    scales = np.where(scales > 0, scales, 1).astype(np.float32)
    return np.clip(np.round(kernel / scales), -_MAX, _MAX).astype(np.int8), scales
