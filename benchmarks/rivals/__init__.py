"""The compared programs, on torch: each module is built in a process of its own.

`side_by_side.take_turns` calls `build(**settings)` there, and the function that it returns.
"""

import contextlib

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def autocast(dtype: str) -> contextlib.AbstractContextManager:
    """Returns the context of a forward pass: bfloat16 by autocast, unless `dtype` is float32."""
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(DEVICE, torch.bfloat16)
