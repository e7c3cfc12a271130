"""sentence-transformers in the inference benchmark: `encode` with its own settings.

The vectors have length 1 where the folder's modules.json says so; others are means.
"""

from collections.abc import Callable
from typing import Any

import sentence_transformers

from benchmarks.rivals.torch_device import DEVICE
from benchmarks.side_by_side import time_texts


def build(model: str, texts: list[str], max_length: int) -> Callable[[], dict[str, Any]]:
    """Measures the seconds from all texts to their vectors; see `side_by_side.time_texts`.

    Args:
      model: folder of the exported model.
      texts: texts to compute.
      max_length: maximum number of tokens of a text.
    """
    encoder = sentence_transformers.SentenceTransformer(model, device=DEVICE)
    encoder.max_seq_length = max_length
    return lambda: time_texts(lambda texts, _: list(encoder.encode(texts)), texts)
