"""transformers in the inference benchmark: the same texts through the exported weights."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers

# Tokens of a batch with its padding. On a CPU, batches of a fixed number of texts are slower: short
# texts make them too small and long ones too large for the caches.
_BATCH_TOKENS = 4096
_BATCH_SIZE = 32


def build(
    model: str, texts: str, classifies: bool, sorts: bool, dtype: str, output: str
) -> tuple[dict[str, Any], Callable[[], list[float]]]:
    """Returns a measurement of the seconds from all texts to their outputs, which are then saved.

    Args:
      model: folder of the exported model.
      texts: file with a text a line.
      classifies: whether outputs are probabilities of classes, instead of sentence vectors.
      sorts: whether texts are sorted by their number of tokens, in batches of `_BATCH_TOKENS`;
        otherwise they keep their order, in batches of `_BATCH_SIZE`.
      dtype: float32 or bfloat16, of weights and activations.
      output: .npy file to write.
    """
    with open(texts, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    auto = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModel
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = auto.from_pretrained(model).eval().to(device, getattr(torch, dtype))
    longest = network.config.max_position_embeddings

    @torch.inference_mode()
    def measure() -> list[float]:
        start = time.perf_counter()
        values: list[Any] = [None] * len(lines)
        encoded = tokenizer(lines, truncation=True, max_length=longest)
        lengths = list(map(len, encoded["input_ids"]))
        for numbers in by_length(lengths) if sorts else in_order(len(lines)):
            batch = {name: [rows[i] for i in numbers] for name, rows in encoded.items()}
            batch = tokenizer.pad(batch, return_tensors="pt").to(device)
            outputs = network(**batch)
            if classifies:
                rows = outputs.logits.float().softmax(-1)
            else:
                mask = batch["attention_mask"][..., None]
                rows = (outputs.last_hidden_state.float() * mask).sum(1) / mask.sum(1)
            for number, row in zip(numbers, rows.cpu().numpy(), strict=True):
                values[number] = row
        seconds = time.perf_counter() - start
        np.save(output, np.array(values, np.float32))
        return [seconds]

    return {}, measure


def by_length(lengths: Sequence[int], batch_tokens: int = _BATCH_TOKENS) -> list[list[int]]:
    """Returns the numbers of the texts of each batch, the longest texts first.

    A batch has as many texts as fit into `batch_tokens` when all are padded to its longest; a
    longer text is a batch of its own.
    """
    batches: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= batch_tokens:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches


def in_order(count: int) -> list[list[int]]:
    """Returns the numbers of the texts of each batch, in the order of the file."""
    starts = range(0, count, _BATCH_SIZE)
    return [list(range(start, min(start + _BATCH_SIZE, count))) for start in starts]
