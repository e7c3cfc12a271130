"""Outputs of a model on a fixed batch: hidden states of all layers, pooled, logits."""

import dataclasses
import importlib.metadata
from typing import Any

import jax
import numpy as np

from bert_jax.config.run import RunConfig
from bert_jax.data.batch import Batch, token_fields
from bert_jax.devices.trees import unflatten
from bert_jax.exchange import LoadedModel
from bert_jax.files.errors import UserError
from bert_jax.formats.weight_table import Arrays
from bert_jax.models import make_encoder
from bert_jax.models.copy_head import CopyHead
from bert_jax.models.heads import LinearHead, LMHead, predicting_positions
from bert_jax.models.pooling import EncoderWithPooler, pool

_MAX_LENGTH = 64


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Outputs of a program.

    Attributes:
      program: name and version.
      values: float32 arrays by name, without padding positions.
    """

    program: str
    values: Arrays


def make_batch(vocab_size: int, max_length: int, pad_id: int = 0) -> Batch:
    """Returns random ids in four padded rows of different lengths, with two segments each.

    RoBERTa in transformers does not count positions with `pad_id`, so no token has that id.
    """
    length = min(_MAX_LENGTH, max_length)
    lengths = np.maximum(2, length * np.array([8, 6, 4, 1]) // 8)[:, None]
    ids = np.random.default_rng(0).integers(0, vocab_size, (len(lengths), length), np.int32)
    ids[ids == pad_id] = 0
    starts = length * np.arange(len(lengths))[:, None]
    return token_fields(ids.ravel(), starts, lengths, lengths // 2, length, pad_id=pad_id)


def without_padding(values: Arrays, batch: Batch) -> Arrays:
    """Removes the padding positions from the outputs of `batch`."""
    is_token = batch["example_ids"] > 0
    values["hidden states"] = values["hidden states"][:, is_token]
    for name in ("masked-LM logits", "next-word logits", "task logits"):
        if name in values and values[name].ndim == 3:  # per token, not per row
            values[name] = values[name][is_token]
    return values


def run_ours(loaded: LoadedModel, batch: Batch) -> Outputs:
    """Runs our model; heads whose parameters are missing are skipped."""
    model, config = loaded.model, loaded.config
    tree: Any = unflatten(loaded.params)
    task = config.task

    def forward(tree: Any) -> dict[str, jax.Array]:
        has_pooler = "pooler" in tree[model.name]
        name = config.get("task.pool", "cls")
        module = EncoderWithPooler(model, name) if has_pooler else make_encoder(model)
        outputs: Any = module.apply(
            {"params": tree[model.name]}, batch, deterministic=True, keep_all=True
        )
        encoded, pooled = outputs if has_pooler else (outputs, None)
        places = _all_positions(batch)
        places = places if task.EMBEDS else predicting_positions(model, places)
        slots = jax.numpy.take_along_axis(encoded.hidden, places[:, :, None], axis=1)
        values: dict[str, Any] = {"hidden states": jax.numpy.stack(encoded.all_hidden)}
        if pooled is not None:
            values["pooled"] = pooled[:, 0]
        tables = tree[model.name].get("embeddings", {})  # character-based ELMo has none
        embedding = tables.get("word_embeddings", {}).get("embedding")
        if head := tree.get("masked_lm"):
            scores: Any = LMHead(model).apply({"params": head}, slots, embedding)
            values["masked-LM logits"] = scores.logits()
        if model.lm_head == "tied" and not task.HEAD:
            name = "next-word logits" if task.READS_FORWARD else "masked-LM logits"
            values[name] = slots @ embedding[: model.vocab_size].T
        if head := tree.get("copy_head"):
            values["masked-LM logits"] = _with_copies(
                loaded, head, slots, encoded, batch, values["masked-LM logits"]
            )
        if head := tree.get("next_sentence"):
            logits: Any = LinearHead(model, 2).apply({"params": head}, pooled)
            values["next-sentence logits"] = logits[:, 0]
        if task.HEAD and _is_linear(config, tree, model.name):
            head = tree[task.HEAD]
            features = encoded.hidden
            if task.POOLS:
                rows: Any = batch
                pooled = pool(config["task.pool"], encoded.hidden, rows)[:, 0]
                features = values["pooled"] if config["task.pooler"] else pooled
            linear = LinearHead(model, len(head["bias"]))
            values["task logits"] = linear.apply({"params": head}, features)
        return values

    with jax.default_matmul_precision("highest"):
        values = {name: np.asarray(value) for name, value in jax.jit(forward)(tree).items()}
    program = f"bert_jax {importlib.metadata.version('bert_jax')} on jax {jax.__version__}"
    return Outputs(program, without_padding(values, batch))


def _with_copies(
    loaded: LoadedModel, head: Any, slots: Any, encoded: Any, batch: Batch, logits: jax.Array
) -> jax.Array:
    """Returns the log-probabilities of the words at all positions, copies included."""
    with_places: Any = {**batch, "masked_lm_positions": _all_positions(batch)}
    module = CopyHead(loaded.model, loaded.tokenizer.mask_id)
    copies: Any = module.apply({"params": head}, slots, encoded.attended, with_places)
    return copies.mix(jax.nn.log_softmax(logits))


def _all_positions(batch: Batch) -> jax.Array:
    """int32[batch, seq]: 0, 1, ... in each row."""
    shape = batch["input_ids"].shape[:2]
    return jax.numpy.broadcast_to(jax.numpy.arange(shape[1], dtype=np.int32), shape)


def _is_linear(config: RunConfig, tree: Any, encoder: str) -> bool:
    """Returns whether the task's head is a dense layer on the last hidden states only."""
    reads_last = config.get("task.layers", "last") == "last"
    is_single = not config.get("task.both_orders", False)
    return tree.keys() == {encoder, config.task.HEAD} and reads_last and is_single


def largest_differences(a: Outputs, b: Outputs) -> dict[str, float]:
    """Returns the largest absolute difference of each output that both have."""
    differences = {}
    for name in (name for name in a.values if name in b.values):
        x, y = a.values[name], b.values[name]
        if x.shape != y.shape:
            raise UserError(f"The models have different sizes: {name} {x.shape} and {y.shape}.")
        differences[name] = float(np.abs(x - y).max())
    return differences
