"""onnxruntime in the inference benchmark: the weights as torch exports them, in float32."""

import logging
import os
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import torch

from bert_jax.tools.benchmark.rivals.inference_torch import batches, load
from bert_jax.tools.benchmark.side_by_side import time_texts

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class _Outputs(torch.nn.Module):
    """Wraps a transformers network to return the compared tensor only."""

    def __init__(self, network: torch.nn.Module, name: str):
        super().__init__()
        self._network, self._name = network, name

    def forward(self, input_ids, attention_mask, token_type_ids):
        inputs = dict(zip(_INPUTS, (input_ids, attention_mask, token_type_ids), strict=True))
        return getattr(self._network(**inputs), self._name)


def build(
    model: str, texts: list[str], classifies: bool, max_length: int
) -> Callable[[], dict[str, Any]]:
    """Measures the seconds from all texts to their outputs; see `side_by_side.time_texts`.

    Batches are those of torch. onnxruntime has its own settings: all cores and optimizations.

    Args:
      model: folder of the exported model.
      texts: texts to compute.
      classifies: whether outputs are probabilities of classes, instead of sentence vectors.
      max_length: tokens of a text, at most.
    """
    tokenizer, network = load(model, classifies)
    outputs = _Outputs(network.cpu(), "logits" if classifies else "last_hidden_state").eval()
    # Different tensors: torch.export makes one input of a tensor that is given three times.
    examples = tuple(torch.ones((2, 8), dtype=torch.int64) for _ in _INPUTS)
    examples[1][0, 6:] = 0
    sizes = {0: torch.export.Dim("texts", max=4096), 1: torch.export.Dim("seq", min=2, max=512)}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of its own internals
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(
            outputs,
            examples,
            path,
            input_names=_INPUTS,
            dynamic_shapes=(sizes,) * len(_INPUTS),
            dynamo=True,
            verbose=False,
        )
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def compute(texts: list[str]) -> list[Any]:
        values: list[Any] = [None] * len(texts)
        for numbers, batch in batches(tokenizer, texts, max_length):
            (rows,) = session.run(None, {name: batch[name] for name in _INPUTS})
            rows = np.asarray(rows)
            if classifies:
                exps = np.exp(rows - rows.max(axis=1, keepdims=True))
                rows = exps / exps.sum(axis=1, keepdims=True)
            else:
                mask = batch["attention_mask"][..., None].astype(np.float32)
                rows = (rows * mask).sum(axis=1) / mask.sum(axis=1)
            for number, row in zip(numbers, rows, strict=True):
                values[number] = row
        return values

    return lambda: time_texts(compute, texts)
