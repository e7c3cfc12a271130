"""torch in the fine-tuning benchmark: transformers' models, trained as usual with AdamW."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

from bert_jax.tools.benchmark.rivals.finetune_torch_tasks import TASKS

# Fraction of the steps that the measurement of speed leaves out, as in our program.
_WARM_UP = 0.1


def build(config: dict[str, Any], pad: bool) -> tuple[dict, Callable[[], list[float]]]:
    """Each measurement is a run with the next seed.

    Args:
      config: of this program, as a dict.
      pad: pad to the maximum length instead of the longest row of the batch.
    """
    seeds = iter(range(config["seed"], 1 << 31))
    return {}, lambda: _run(config, pad, next(seeds))


def _run(config: dict[str, Any], pad: bool, seed: int) -> list[float]:
    """Trains once: the score, examples a second, seconds, and the mean loss of each epoch."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    folder, data = config["init_from"], config["data"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    task = TASKS[config["task"]](config, tokenizer)
    train, held_out = (task.read(data[name]) for name in ("train", "eval"))
    model = task.model_class.from_pretrained(folder, **task.set_labels(train))
    torch.nn.Module.to(model, device := "cuda" if torch.cuda.is_available() else "cpu")
    if config["dtype"] != "float32":
        model.forward = torch.autocast(device, torch.bfloat16)(model.forward)
    collate = task.collator_class(
        tokenizer,
        padding="max_length" if pad else "longest",
        max_length=config["max_length"],
    )
    size = config["global_batch_size"]
    rows, _ = task.encode(train)
    batches = torch.utils.data.DataLoader(rows, size, shuffle=True, collate_fn=collate)  # pyright: ignore
    speed, losses = _train(model, batches, config, device)
    rows, plan = task.encode(held_out)
    batches = torch.utils.data.DataLoader(rows, size, collate_fn=collate)  # pyright: ignore
    score = task.score(_predict(model, batches, device), held_out, plan)
    return [score, speed, time.perf_counter() - start, *losses]


def _train(
    model: Any, batches: Any, config: dict[str, Any], device: str
) -> tuple[float, list[float]]:
    """Trains, and returns rows a second and the mean loss of each epoch."""
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
    losses: list[list[float]] = [[] for _ in range(math.ceil(config["epochs"]))]
    while step < steps:
        for batch in batches:
            loss = model(**{name: tensor.to(device) for name, tensor in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_norm"])
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses[step // len(batches)].append(loss.item())
            step, rows = step + 1, rows + len(batch["input_ids"])
            if step == round(_WARM_UP * steps):
                rows, start = 0, time.perf_counter()
            if step == steps:
                break
    seconds = time.perf_counter() - start
    return rows / seconds, [sum(found) / len(found) for found in losses]


@torch.no_grad()
def _predict(model: Any, batches: Any, device: str) -> Iterator[dict[str, Any]]:
    """Yields the outputs of each row by name."""
    model.eval()
    for batch in batches:
        outputs = model(**{name: tensor.to(device) for name, tensor in batch.items()})
        arrays = {n: v.float().cpu().numpy() for n, v in outputs.items() if n.endswith("logits")}
        for row in range(len(batch["input_ids"])):
            yield {name: array[row] for name, array in arrays.items()}
