"""Trains the kinds of `benchmarks.retrieval` with the losses of sentence-transformers."""

import json
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from bert_jax.inference.model import Model, load

# Columns of texts, the fraction of the run that is done -> the loss of a batch.
Loss = Callable[[Sequence[Any], float], torch.Tensor]


def train(
    kind: str, model: str, out: pathlib.Path, seed: int, epochs: int, same: tuple[Any, ...]
) -> Model:
    """Returns the trained model, as bert_jax loads the folder that sentence-transformers writes.

    Args:
      kind: a key of KINDS.
      model: the encoder, which is exported for transformers.
      out: folder with the training files.
      seed: seed of the order, and of a new head.
      epochs: passes over the pairs.
      same: the row of `benchmarks.retrieval.KINDS`.
    """
    _, file, _, settings = same
    encoder, saved = out / f"encoder_{kind}", out / f"st_{kind}-{seed}"
    if not encoder.is_dir():
        load(model).export("huggingface", encoder)
    torch.manual_seed(seed)
    module, loss = KINDS[kind](str(encoder))
    rows = _rows(out / file)
    if kind == "cross_encoder":
        rows = [(a, text, label) for a, b, c in rows for text, label in ((b, 1.0), (c, 0.0))]
    module.max_seq_length = settings["max_length"]
    for layer in module.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    size = settings["global_batch_size"]
    steps = math.ceil(len(rows) * epochs / size)  # the last rows are of one epoch more
    # As in bert_jax/optim: the same epsilon of Adam, and scales do not decay.
    matrices = [x for x in module.parameters() if x.ndim > 1]
    scales = [x for x in module.parameters() if x.ndim == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": 0.01},
            {"params": scales, "weight_decay": 0.0},
        ],
        settings["optimizer__learning_rate"],
        eps=1e-6,
    )
    warmup = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))
    )
    order = [place for _ in range(epochs + 1) for place in torch.randperm(len(rows)).tolist()]
    module.train()
    for step in range(steps):
        batch = [rows[place] for place in order[step * size : (step + 1) * size]]
        value = loss([list(column) for column in zip(*batch, strict=True)], step / steps)
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    module.save_pretrained(str(saved))
    return load(saved)


def _dense(encoder: str) -> tuple[Any, Loss]:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    module = SentenceTransformer(encoder, **_SHARED)
    loss = MultipleNegativesRankingLoss(module, scale=20.0)
    return module, lambda columns, _: loss([module.preprocess(texts) for texts in columns], None)


def _splade(encoder: str) -> tuple[Any, Loss]:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.losses import (
        SparseMultipleNegativesRankingLoss,
        SpladeLoss,
    )

    module = SparseEncoder(encoder, **_SHARED)
    base = SparseMultipleNegativesRankingLoss(module, scale=0.1)  # 1 / task.temperature
    loss = SpladeLoss(module, base, _FLOPS, _FLOPS)

    def of_batch(columns: Sequence[Any], progress: float) -> torch.Tensor:
        # As their SpladeRegularizerWeightSchedulerCallback with a quadratic growth.
        weight = _FLOPS * min(1.0, 3 * progress) ** 2
        loss.document_regularizer_weight = loss.query_regularizer_weight = weight
        parts = loss([module.preprocess(texts) for texts in columns], None)
        return torch.stack([*parts.values()]).sum()

    return module, of_batch


def _colbert(encoder: str) -> tuple[Any, Loss]:
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.multi_vector_encoder.losses import (
        MultiVectorMultipleNegativesRankingLoss,
    )

    module = MultiVectorEncoder(encoder, **_SHARED)
    loss = MultiVectorMultipleNegativesRankingLoss(module)

    def of_batch(columns: Sequence[Any], _: float) -> torch.Tensor:
        return loss([module.preprocess(texts, task="document") for texts in columns])

    return module, of_batch


def _cross_encoder(encoder: str) -> tuple[Any, Loss]:
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    module = CrossEncoder(encoder, num_labels=1, **_SHARED)
    loss = BinaryCrossEntropyLoss(module)
    return module, lambda columns, _: loss(columns[:2], torch.tensor(columns[2]))


_SHARED: dict[str, Any] = {"device": "cpu", "trust_remote_code": True}
_FLOPS = 0.003  # the default of task.anchor_flops and task.positive_flops
# Folder of an encoder -> a model of sentence-transformers, and its loss.
KINDS = {
    "dense": _dense,
    "splade": _splade,
    "colbert": _colbert,
    "cross_encoder": _cross_encoder,
}


def _rows(path: pathlib.Path) -> list[tuple[Any, ...]]:
    return [tuple(json.loads(line).values()) for line in path.read_text().splitlines()]
