"""The batch that encoders read: its type, and the fields that a caller may leave out."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Batch = Mapping[str, jax.Array]
# Adds fields to a batch on the host, just before it goes to the devices.
AddFields = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def complete_batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a batch with all fields that encoders and heads read; given fields stay as they are.

    `input_ids` alone is one example per row without padding:

        {"input_ids": ids, "attention_mask": mask}  # 1: token, 0: padding

    Args:
      batch: int32[..., seq] `input_ids` and any of the fields below. `attention_mask` gives
        `example_ids` if these are missing, and is otherwise ignored.

    Returns:
      int32[..., seq] unless noted:
        token_type_ids: 0.
        example_ids: the number, from 1, of the example in its row, 0 for padding; default 1.
          Positions attend to positions of their own example only.
        position_ids: the distance to the first token of the example.
        cls_positions: int32[..., examples], the first token of each example; default one example.
    """
    ids = batch["input_ids"]
    batch = dict(batch)
    if "token_type_ids" not in batch:
        batch["token_type_ids"] = jnp.zeros_like(ids)
    if "example_ids" not in batch:
        mask = batch.get("attention_mask")
        batch["example_ids"] = jnp.ones_like(ids) if mask is None else mask.astype(ids.dtype)
    if "position_ids" not in batch:
        examples = batch["example_ids"]
        is_same = examples[..., :, None] == examples[..., None, :]
        first = jnp.argmax(is_same, axis=-1)  # the first of several maxima
        places = jnp.broadcast_to(jnp.arange(ids.shape[-1]), ids.shape)
        batch["position_ids"] = (places - first).astype(ids.dtype)
    if "cls_positions" not in batch:
        batch["cls_positions"] = jnp.zeros((*ids.shape[:-1], 1), ids.dtype)
    return batch
