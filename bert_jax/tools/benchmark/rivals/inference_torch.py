"""transformers in the inference benchmark: the same texts through the exported weights."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers

from bert_jax.tools.benchmark.rivals import DEVICE

# Tokens of a batch with its padding. On a CPU, batches of a fixed number of texts are slower: short
# texts make them too small and long ones too large for the caches.
_BATCH_TOKENS = 4096


def build(
    model: str, texts: list[str], classifies: bool, dtype: str
) -> Callable[[], dict[str, Any]]:
    """Measures the seconds from all texts to their outputs, float32[texts, ...].

    Args:
      model: folder of the exported model.
      texts: texts to compute.
      classifies: whether outputs are probabilities of classes, instead of sentence vectors.
      dtype: float32 or bfloat16, of weights and activations.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    auto = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModel
    network = auto.from_pretrained(model).eval().to(DEVICE, getattr(torch, dtype))
    longest = network.config.max_position_embeddings

    @torch.inference_mode()
    def measure() -> dict[str, Any]:
        start = time.perf_counter()
        values: list[Any] = [None] * len(texts)
        encoded = tokenizer(texts, truncation=True, max_length=longest)
        for numbers in by_length(list(map(len, encoded["input_ids"]))):
            batch = {name: [rows[i] for i in numbers] for name, rows in encoded.items()}
            batch = tokenizer.pad(batch, return_tensors="pt").to(DEVICE)
            outputs = network(**batch)
            if classifies:
                rows = outputs.logits.float().softmax(-1)
            else:
                mask = batch["attention_mask"][..., None]
                rows = (outputs.last_hidden_state.float() * mask).sum(1) / mask.sum(1)
            for number, row in zip(numbers, rows.cpu().numpy(), strict=True):
                values[number] = row
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "outputs": np.array(values, np.float32)}

    return measure


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
