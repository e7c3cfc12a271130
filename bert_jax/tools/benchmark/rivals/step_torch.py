"""The step of transformers' BertForPreTraining, unchanged and with one improvement."""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import transformers

from bert_jax.devices.allocator import keep_freed_memory
from bert_jax.tools.benchmark.workload import SIZES, VOCAB_SIZE, make_batch, time_steps


def build_step(
    model: str,
    dtype: str,
    batch_size: int,
    gather: bool,
    same_allocator: bool,
    compiles: bool = False,
) -> tuple[dict[str, Any], Callable[[], list[float]]]:
    """Forward, backward, clipping and the fused AdamW, with dropout.

    Args:
      model, dtype, batch_size: what to train; bfloat16 is by autocast.
      gather: compute logits of the masked positions only, as this program does.
      same_allocator: use this program's settings of the allocator.
      compiles: whether forward and backward pass go through torch.compile.
    """
    if same_allocator:
        keep_freed_memory()
    size = SIZES[model]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.BertConfig(
        vocab_size=VOCAB_SIZE,
        num_hidden_layers=size.num_layers,
        hidden_size=size.hidden_size,
        num_attention_heads=size.num_heads,
        intermediate_size=4 * size.hidden_size,
    )
    bert = transformers.BertForPreTraining(config).train()
    torch.nn.Module.to(bert, device)
    optimizer = torch.optim.AdamW(bert.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batch = {k: torch.tensor(v).to(device) for k, v in make_batch(batch_size).items()}
    inputs = {
        "input_ids": batch["input_ids"].long(),
        "token_type_ids": batch["token_type_ids"].long(),
        "attention_mask": batch["example_ids"].long(),
    }
    positions, ids = batch["masked_lm_positions"].long(), batch["masked_lm_ids"].long()
    labels = torch.full_like(inputs["input_ids"], -100).scatter(1, positions, ids)
    follows = batch["next_sentence_labels"][:, 0].long()

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
    precision = contextlib.nullcontext
    if dtype == "bfloat16":
        precision = lambda: torch.autocast(device, torch.bfloat16)  # noqa: E731

    def step() -> None:
        optimizer.zero_grad()
        with precision():
            loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(bert.parameters(), 1.0)
        optimizer.step()
        loss.item()
        if device == "cuda":
            torch.cuda.synchronize()

    step()
    return {}, lambda: time_steps(step)
