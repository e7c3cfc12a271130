"""torch in the fine-tuning benchmark: transformers' models, trained as usual with AdamW."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

from benchmarks.rivals.finetune_torch_tasks import open_task
from benchmarks.rivals.torch_device import DEVICE, autocast

# Fraction of the steps that the measurement of speed leaves out, as in our program.
_WARM_UP = 0.1


def build(config: dict[str, Any]) -> Callable[[], dict[str, float]]:
    """Each measurement is a run with the next seed of `config`, a configuration of this program."""
    seeds = itertools.count(config["seed"])
    return lambda: _run(config, next(seeds))


def _run(config: dict[str, Any], seed: int) -> dict[str, float]:
    """Trains once."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    task, tokenizer, model, train, held_out = open_task(config)
    torch.nn.Module.to(model, DEVICE)
    collate, size = task.collator_class(tokenizer), config["global_batch_size"]
    rows, _ = task.encode(train)
    batches = torch.utils.data.DataLoader(rows, size, shuffle=True, collate_fn=collate)  # pyright: ignore
    speed = _train(model, batches, config)
    rows, plan = task.encode(held_out)
    batches = torch.utils.data.DataLoader(rows, size, collate_fn=collate)  # pyright: ignore
    score = task.score(_predict(model, batches, config["dtype"]), held_out, plan)
    seconds = time.perf_counter() - start
    return {"score": score, "examples_per_second": speed, "seconds": seconds}


def _train(model: Any, batches: Any, config: dict[str, Any]) -> float:
    """Trains, and returns rows a second."""
    settings = config["optimizer"]
    steps = round(config["epochs"] * len(batches))
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]  # layer norms and biases
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": settings["weight_decay"]},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings["learning_rate"],
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["epsilon"],
        fused=True,
    )
    warmup = round(float(settings["warmup"].removesuffix("%")) / 100 * steps)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)
    model.train()
    step, rows, start = 0, 0, time.perf_counter()
    while step < steps:
        for batch in batches:
            with autocast(config["dtype"]):
                loss = model(**_on_device(batch)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_norm"])
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            loss.item()
            step, rows = step + 1, rows + len(batch["input_ids"])
            if step == round(_WARM_UP * steps):
                rows, start = 0, time.perf_counter()
            if step == steps:
                break
    return rows / (time.perf_counter() - start)


@torch.no_grad()
def _predict(model: Any, batches: Any, dtype: str) -> Iterator[dict[str, Any]]:
    """Yields the outputs of each row by name."""
    model.eval()
    for batch in batches:
        with autocast(dtype):
            outputs = model(**_on_device(batch))
        arrays = {n: v.float().cpu().numpy() for n, v in outputs.items() if n.endswith("logits")}
        for row in range(len(batch["input_ids"])):
            yield {name: array[row] for name, array in arrays.items()}


def _on_device(batch: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.to(DEVICE) for name, tensor in batch.items()}
