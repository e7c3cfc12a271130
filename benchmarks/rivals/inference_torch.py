"""transformers in the inference benchmark: the same texts through the exported weights."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.rivals.torch_device import DEVICE, autocast
from benchmarks.side_by_side import time_texts

# Tokens of a batch, padding included; the faster size counts: the activations of the first fit into
# caches, the second launches fewer operations. Batches of a fixed number of texts are
# slower: short texts make them too small and long ones too large.
BATCH_TOKENS = (1024, 4096)


def build(
    model: str, texts: list[str], classifies: bool, max_length: int, dtype: str, compiles: bool
) -> Callable[[], dict[str, Any]]:
    """Measures the seconds from all texts to their outputs; see `side_by_side.time_texts`.

    Args:
      model: folder of the exported model.
      texts: texts to compute.
      classifies: whether outputs are probabilities of classes, instead of sentence vectors.
      max_length: maximum number of tokens of a text.
      dtype: "float32"; "autocast" to bfloat16; or "bfloat16", to which the weights are cast.
      compiles: whether torch.compile compiles the model, for any shape.
    """
    tokenizer, network = load(model, classifies)
    network = network.to(torch.bfloat16) if dtype == "bfloat16" else network
    if compiles:
        network = torch.compile(network, dynamic=True)

    @torch.inference_mode()
    def compute(texts: list[str], batch_tokens: int) -> list[Any]:
        values: list[Any] = [None] * len(texts)
        for numbers, batch in batches(tokenizer, texts, max_length, batch_tokens):
            batch = {name: torch.from_numpy(array).to(DEVICE) for name, array in batch.items()}
            with autocast("bfloat16" if dtype == "autocast" else "float32"):
                outputs = network(**batch)
            if classifies:
                rows = outputs.logits.float().softmax(-1)
            else:
                mask = batch["attention_mask"][..., None]
                rows = (outputs.last_hidden_state.float() * mask).sum(1) / mask.sum(1)
            for number, row in zip(numbers, rows.cpu().numpy(), strict=True):
                values[number] = row
        return values

    return lambda: time_texts(compute, texts, BATCH_TOKENS)


def load(model: str, classifies: bool) -> tuple[Any, Any]:
    """Returns the fast tokenizer and the network of a folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    auto = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModel
    return tokenizer, auto.from_pretrained(model).eval().to(DEVICE)


def batches(
    tokenizer: Any, texts: Sequence[str], max_length: int, batch_tokens: int
) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
    """Yields the text indices and the network inputs, int64[texts, seq], of each batch."""
    encoded = tokenizer(list(texts), truncation=True, max_length=max_length)
    for numbers in by_length(list(map(len, encoded["input_ids"])), batch_tokens):
        batch = {name: [rows[i] for i in numbers] for name, rows in encoded.items()}
        yield numbers, dict(tokenizer.pad(batch, return_tensors="np"))


def by_length(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Returns the text indices of each batch, longest texts first.

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
