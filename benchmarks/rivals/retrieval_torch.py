"""Trains a dense model or a cross-encoder with the losses of sentence-transformers."""

import json
import pathlib
from typing import Any

import torch

from bert_jax.inference.model import Model, load


def train(
    kind: str, model: str, out: pathlib.Path, seed: int, epochs: int, same: tuple[Any, ...]
) -> Model:
    """Returns the trained model, as bert_jax loads the folder that sentence-transformers writes.

    Args:
      kind: dense or cross_encoder.
      model: the encoder, which is exported for transformers.
      out: folder with the training files.
      seed: seed of the order, and of a new head.
      epochs: passes over the pairs.
      same: the row of `benchmarks.retrieval.KINDS`.
    """
    import sentence_transformers
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    _, file, _, settings = same
    encoder, saved = out / f"encoder_{kind}", out / f"st_{kind}-{seed}"
    if not encoder.is_dir():
        load(model).export("huggingface", encoder)
    torch.manual_seed(seed)
    shared = {"device": "cpu", "trust_remote_code": True}
    is_dense, rows = kind == "dense", _rows(out / file)
    if is_dense:
        module = sentence_transformers.SentenceTransformer(str(encoder), **shared)
        loss = MultipleNegativesRankingLoss(module, scale=20.0)
    else:
        module = sentence_transformers.CrossEncoder(str(encoder), num_labels=1, **shared)
        loss = BinaryCrossEntropyLoss(module)
        rows = [(a, text, label) for a, b, c in rows for text, label in ((b, 1.0), (c, 0.0))]
    module.max_seq_length = settings["max_length"]
    for layer in module.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    size = settings["global_batch_size"]
    steps = len(rows) * epochs // size
    optimizer = torch.optim.AdamW(
        module.parameters(), settings["optimizer__learning_rate"], weight_decay=0.01
    )
    warmup = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))
    )
    order = torch.randperm(len(rows)).tolist()
    module.train()
    for step in range(steps):
        batch = [rows[place] for place in order[step * size : (step + 1) * size]]
        columns = [list(column) for column in zip(*batch, strict=True)]
        if is_dense:
            value = loss([module.preprocess(texts) for texts in columns], None)
        else:
            value = loss(columns[:2], torch.tensor(columns[2]))
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    module.save_pretrained(str(saved))
    return load(saved)


def _rows(path: pathlib.Path) -> list[tuple[str, ...]]:
    return [tuple(json.loads(line).values()) for line in path.read_text().splitlines()]
