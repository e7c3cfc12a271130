"""transformers in the inference benchmark: the same texts through the exported weights."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

_BATCH_SIZE = 32


def build(
    model: str, texts: str, classifies: bool, sorts: bool, output: str
) -> tuple[dict[str, Any], Callable[[], list[float]]]:
    """A measurement is the seconds from all texts to their outputs, which are then saved.

    Args:
      model: folder of the exported model.
      texts: file with a text a line.
      classifies: whether outputs are probabilities of classes, instead of sentence vectors.
      sorts: whether batches are made of texts sorted by length.
      output: .npy file to write.
    """
    with open(texts, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    auto = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModel
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = auto.from_pretrained(model).eval().to(device)
    order = sorted(range(len(lines)), key=lambda i: -len(lines[i])) if sorts else range(len(lines))

    @torch.inference_mode()
    def measure() -> list[float]:
        start = time.perf_counter()
        values: list[Any] = [None] * len(lines)
        for begin in range(0, len(lines), _BATCH_SIZE):
            numbers = order[begin : begin + _BATCH_SIZE]
            batch = tokenizer(
                [lines[i] for i in numbers],
                padding=True,
                truncation=True,
                max_length=network.config.max_position_embeddings,
                return_tensors="pt",
            ).to(device)
            outputs = network(**batch)
            if classifies:
                rows = outputs.logits.softmax(-1)
            else:
                mask = batch["attention_mask"][..., None]
                rows = (outputs.last_hidden_state * mask).sum(1) / mask.sum(1)
            for number, row in zip(numbers, rows.cpu().numpy(), strict=True):
                values[number] = row
        seconds = time.perf_counter() - start
        np.save(output, np.array(values, np.float32))
        return [seconds]

    return {}, measure
