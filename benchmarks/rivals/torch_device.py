"""Where the compared programs on torch run, and in which precision."""

import contextlib

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def autocast(dtype: str) -> contextlib.AbstractContextManager:
    """Returns the context of a forward pass: bfloat16 by autocast, unless `dtype` is float32."""
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(DEVICE, torch.bfloat16)
