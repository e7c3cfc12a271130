"""torch in the fine-tuning benchmark: BertForTokenClassification, trained as usual.

What transformers' example `run_ner.py` does, in short: its fast tokenizer on given words, labels at
each word's first piece, a dropout and a dense layer on the encoder, AdamW, entities by seqeval.
"""

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import seqeval.metrics
import torch
import transformers

from bert_jax.examples.conll import read_tagged
from bert_jax.examples.schema import TaggedExample

# Left out of the loss and of the scores.
_IGNORED = -100
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
    """Trains once: the score, examples a second, and seconds from start to end."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    folder, data = config["init_from"], config["data"]
    train, held_out = (list(_read(data[name])) for name in ("train", "eval"))
    labels = sorted({tag for example in train for tag in example.tags or ()})
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        folder, num_labels=len(labels)
    )
    torch.nn.Module.to(model, device := "cuda" if torch.cuda.is_available() else "cpu")
    collate = transformers.DataCollatorForTokenClassification(
        tokenizer,
        padding="max_length" if pad else "longest",
        max_length=(longest := config["phases"][0][0]),
    )
    encode = functools.partial(_encode, tokenizer, labels, longest)
    rows, _ = encode(train)
    batches = torch.utils.data.DataLoader(
        rows,  # pyright: ignore[reportArgumentType]
        config["global_batch_size"],
        shuffle=True,
        collate_fn=collate,
    )
    speed = _train(model, batches, config, device)
    rows, places = encode(held_out)
    held_out_batches = torch.utils.data.DataLoader(
        rows,  # pyright: ignore[reportArgumentType]
        config["global_batch_size"],
        collate_fn=collate,
    )
    best = _predict(model, held_out_batches, device)
    found = [_tags(*row, labels) for row in zip(best, places, strict=True)]
    gold = [list(example.tags or ()) for example in held_out]
    score: Any = seqeval.metrics.f1_score(gold, found)
    return [float(score), speed, time.perf_counter() - start]


def _read(path: str) -> Iterable[TaggedExample]:
    return read_tagged(path, Counter(), True, "tokens", "tags")


def _encode(
    tokenizer: Any, labels: Sequence[str], longest: int, examples: Sequence[TaggedExample]
) -> tuple[list[dict[str, Any]], list[list[int | None]]]:
    """Rows of ids with a label at the first piece of each word; what is too long is cut.

    Returns:
      The rows, and for each of them the place of each word's first piece, None for none.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    rows, places = [], []
    for example in examples:
        row = tokenizer(
            list(example.words), is_split_into_words=True, truncation=True, max_length=longest
        )
        firsts: list[int | None] = [None] * len(example.words)
        row["labels"] = [_IGNORED] * len(row["input_ids"])
        for place, word in reversed(list(enumerate(row.word_ids()))):
            if word is not None:
                firsts[word] = place
        for place, tag in zip(firsts, example.tags or (), strict=True):
            if place is not None:
                row["labels"][place] = numbers.get(tag, _IGNORED)
        rows.append(dict(row))
        places.append(firsts)
    return rows, places


def _train(model: Any, batches: Any, config: dict[str, Any], device: str) -> float:
    """Trains, and returns examples a second."""
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
    step, examples, start = 0, 0, time.perf_counter()
    while step < steps:
        for batch in batches:
            loss = model(**batch.to(device)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_norm"])
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            loss.item()
            step, examples = step + 1, examples + len(batch["labels"])
            if step == round(_WARM_UP * steps):
                examples, start = 0, time.perf_counter()
            if step == steps:
                break
    return examples / (time.perf_counter() - start)


@torch.no_grad()
def _predict(model: Any, batches: Any, device: str) -> Iterator[np.ndarray]:
    """Yields int64[seq] of each row: the number of the best label at each place."""
    model.eval()
    for batch in batches:
        yield from model(**batch.to(device)).logits.argmax(-1).cpu().numpy()


def _tags(best: np.ndarray, firsts: Sequence[int | None], labels: list[str]) -> list[str]:
    """The tags of a sentence's words; O for words that were cut off, or have no piece."""
    return [labels[best[first]] if first is not None else "O" for first in firsts]
