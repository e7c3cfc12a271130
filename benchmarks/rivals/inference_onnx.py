"""onnxruntime in the inference benchmark: the weights as torch exports them, in float32 or int8."""

import logging
import os
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic

from benchmarks.rivals.inference_torch import BATCH_TOKENS, batches, load
from benchmarks.side_by_side import time_texts
from bert_jax.devices import processor

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Instructions whose sums of int8 products do not saturate.
_DOT_PRODUCTS = {"avx512_vnni", "avx_vnni"}


class _Outputs(torch.nn.Module):
    """Wraps a transformers network to return what is compared: probabilities, or vectors."""

    def __init__(self, network: torch.nn.Module, classifies: bool):
        super().__init__()
        self._network, self._classifies = network, classifies

    def forward(self, input_ids, attention_mask, token_type_ids):
        inputs = dict(zip(INPUTS, (input_ids, attention_mask, token_type_ids), strict=True))
        outputs = self._network(**inputs)
        if self._classifies:
            return outputs.logits.softmax(-1)
        mask = attention_mask[..., None].float()
        return (outputs.last_hidden_state * mask).sum(1) / mask.sum(1)


def export(network: Any, classifies: bool, path: str) -> None:
    """Writes the ONNX graph of a network, with int64[texts, seq] INPUTS of any sizes."""
    outputs = _Outputs(network.cpu(), classifies).eval()
    # Different tensors: torch.export makes one input of a tensor that is given three times.
    examples = tuple(torch.ones((2, 8), dtype=torch.int64) for _ in INPUTS)
    examples[1][0, 6:] = 0
    sizes = {0: torch.export.Dim("texts", max=4096), 1: torch.export.Dim("seq", min=2, max=512)}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of its own internals
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            outputs,
            examples,
            path,
            input_names=INPUTS,
            dynamic_shapes=(sizes,) * len(INPUTS),
            dynamo=True,
            verbose=False,
        )


def build(
    model: str, texts: list[str], classifies: bool, max_length: int, int8: bool
) -> Callable[[], dict[str, Any]]:
    """Measures the seconds from all texts to their outputs; see `side_by_side.time_texts`.

    Batches are those of torch. onnxruntime has its own settings: all cores and optimizations.

    Args:
      model: folder of the exported model.
      texts: texts to compute.
      classifies: whether outputs are probabilities of classes, instead of sentence vectors.
      max_length: maximum number of tokens of a text.
      int8: whether products are computed in int8, by dynamic quantization with a scale for each
        output feature.
    """
    tokenizer, network = load(model, classifies)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        export(network, classifies, path)
        if int8:
            has_dot_products = not _DOT_PRODUCTS.isdisjoint(processor.features())
            kind = QuantType.QInt8 if has_dot_products else QuantType.QUInt8
            quantized = os.path.join(folder, "int8.onnx")
            logging.disable(logging.WARNING)  # it advises preprocessing the graph
            quantize_dynamic(path, quantized, per_channel=True, weight_type=kind)
            logging.disable(logging.NOTSET)
            path = quantized
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def compute(texts: list[str], batch_tokens: int) -> list[Any]:
        values: list[Any] = [None] * len(texts)
        for numbers, batch in batches(tokenizer, texts, max_length, batch_tokens):
            rows: Any = session.run(None, {name: batch[name] for name in INPUTS})[0]
            for number, row in zip(numbers, rows, strict=True):
                values[number] = row
        return values

    return lambda: time_texts(compute, texts, BATCH_TOKENS)
