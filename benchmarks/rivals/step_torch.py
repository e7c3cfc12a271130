"""The step of transformers' BertForPreTraining, unchanged and with one improvement."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.rivals.torch_device import DEVICE, autocast
from benchmarks.side_by_side import time_steps


def build(
    fields: dict[str, Any], dtype: str, batch: dict[str, np.ndarray], gather: bool, compiles: bool
) -> Callable[[], dict[str, Any]]:
    """Forward, backward, clipping and the fused AdamW, with dropout.

    Args:
      fields: arguments of transformers' BertConfig.
      dtype: float32 or bfloat16.
      batch: masked rows, in the form of this program.
      gather: compute logits of the masked positions only, as this program does.
      compiles: whether forward and backward pass go through torch.compile.
    """
    config = transformers.BertConfig(**fields)
    bert = transformers.BertForPreTraining(config).train()
    torch.nn.Module.to(bert, DEVICE)
    optimizer = torch.optim.AdamW(bert.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    tensors = {name: torch.tensor(array).to(DEVICE).long() for name, array in batch.items()}
    inputs = {
        "input_ids": tensors["input_ids"],
        "token_type_ids": tensors["token_type_ids"],
        "attention_mask": tensors["example_ids"],
    }
    positions, ids = tensors["masked_lm_positions"], tensors["masked_lm_ids"]
    labels = torch.full_like(inputs["input_ids"], -100).scatter(1, positions, ids)
    follows = tensors["next_sentence_labels"][:, 0]

    def loss_everywhere() -> torch.Tensor:
        return bert(**inputs, labels=labels, next_sentence_label=follows).loss

    def loss_of_masked_positions() -> torch.Tensor:
        encoded = bert.bert(**inputs)
        index = positions[:, :, None].expand(-1, -1, config.hidden_size)
        masked = encoded.last_hidden_state.gather(1, index)
        logits, pair_logits = bert.cls(masked, encoded.pooler_output)
        cross_entropy = torch.nn.functional.cross_entropy
        return cross_entropy(logits.flatten(0, 1), ids.flatten()) + cross_entropy(
            pair_logits, follows
        )

    loss_of = loss_of_masked_positions if gather else loss_everywhere
    if compiles:
        loss_of = torch.compile(loss_of)

    def step() -> None:
        optimizer.zero_grad()
        with autocast(dtype):
            loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(bert.parameters(), 1.0)
        optimizer.step()

    def wait() -> None:
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    step()
    wait()
    return lambda: {"seconds": time_steps(step, wait)}
