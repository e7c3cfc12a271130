"""OpenVINO in the inference benchmark: the graph of onnxruntime, in float32, bfloat16 or int8."""

import logging
import os
import tempfile
from collections.abc import Callable
from typing import Any

import openvino

from benchmarks.rivals.inference_onnx import INPUTS, export
from benchmarks.rivals.inference_torch import BATCH_TOKENS, batches, load
from benchmarks.side_by_side import time_texts

# Number of texts that the ranges of int8 are calibrated on.
_CALIBRATION_TEXTS = 300


def build(
    model: str, texts: list[str], classifies: bool, max_length: int, precision: str
) -> Callable[[], dict[str, Any]]:
    """Measures the seconds from all texts to their outputs; see `side_by_side.time_texts`.

    Batches are those of torch, as many at a time as OpenVINO chooses for throughput; a text alone
    is computed by a graph that is compiled for latency.

    Args:
      model: folder of the exported model.
      texts: texts to compute, which int8 is also calibrated on.
      classifies: whether outputs are probabilities of classes, instead of sentence vectors.
      max_length: maximum number of tokens of a text.
      precision: "float32", "bfloat16", or "int8", by nncf's post-training quantization.
    """
    core, hint = openvino.Core(), "bf16" if precision == "bfloat16" else "f32"
    tokenizer, network = load(model, classifies)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        export(network, classifies, path)
        graph = core.read_model(path)
        if precision == "int8":
            some = batches(tokenizer, texts[:_CALIBRATION_TEXTS], max_length, BATCH_TOKENS[0])
            graph = _quantized(graph, [{name: batch[name] for name in INPUTS} for _, batch in some])
        throughput, latency = (
            core.compile_model(
                graph, "CPU", {"PERFORMANCE_HINT": kind, "INFERENCE_PRECISION_HINT": hint}
            )
            for kind in ("THROUGHPUT", "LATENCY")
        )
    queue = openvino.AsyncInferQueue(throughput)

    def keep(request: Any, place: tuple[list[Any], list[int]]) -> None:
        values, numbers = place
        for number, row in zip(numbers, request.get_output_tensor().data.copy(), strict=True):
            values[number] = row

    queue.set_callback(keep)

    def compute(texts: list[str], batch_tokens: int) -> list[Any]:
        values: list[Any] = [None] * len(texts)
        for numbers, batch in batches(tokenizer, texts, max_length, batch_tokens):
            inputs = {name: batch[name] for name in INPUTS}
            if len(texts) == 1:
                return [latency(inputs)[0][0].copy()]
            queue.start_async(inputs, (values, numbers))
        queue.wait_all()
        return values

    return lambda: time_texts(compute, texts, BATCH_TOKENS)


def _quantized(graph: Any, calibration: list[Any]) -> Any:
    """Returns a graph with products in int8, with ranges calibrated on some batches."""
    import nncf  # only here: it is slow to import

    logging.getLogger("nncf").setLevel(logging.ERROR)
    return nncf.quantize(
        graph,
        nncf.Dataset(calibration),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(calibration),
    )
