"""What a model says about a fixed batch: hidden states of all layers, pooled, logits."""

import dataclasses
import importlib.metadata
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax.formats.tables import Arrays, unflatten
from bert_jax.models.bert import Bert
from bert_jax.models.heads import MaskedLMHead, NextSentenceHead
from bert_jax.models.task_heads import LinearHead
from bert_jax.training.experiment import make_model_config

Batch = dict[str, np.ndarray]
_LENGTH = 64
# The head of each task but pre-training.
TASK_HEADS = {
    "classification": "classifier",
    "tagging": "classifier",
    "multiple_choice": "classifier",
    "span": "span",
}


@dataclasses.dataclass(frozen=True)
class Outputs:
    """What was said, and by which program.

    Attributes:
      program: name and version.
      values: float32 arrays, without what stands at padding.
    """

    program: str
    values: Arrays


def make_batch(vocab_size: int, longest: int) -> Batch:
    """Random ids in four rows of different lengths, padded, in two segments."""
    length = min(_LENGTH, longest)
    place = np.arange(length, dtype=np.int32)
    lengths = np.maximum(2, length * np.array([8, 6, 4, 1]) // 8)[:, None]
    is_token = place < lengths
    ids = np.random.default_rng(0).integers(0, vocab_size, is_token.shape, np.int32)
    return {
        "input_ids": np.where(is_token, ids, 0),
        "token_type_ids": (is_token & (place >= lengths // 2)).astype(np.int32),
        "position_ids": np.tile(place, (len(lengths), 1)),
        "example_ids": is_token.astype(np.int32),
        "cls_positions": np.zeros((len(lengths), 1), np.int32),
    }


def at_tokens(values: Arrays, batch: Batch) -> Arrays:
    """Takes out what stands at padding, which means nothing."""
    is_token = batch["example_ids"] > 0
    values["hidden states"] = values["hidden states"][:, is_token]
    for name in ("masked-LM logits", "task logits"):
        if name in values and values[name].ndim == 3:  # of each token, not of each row
            values[name] = values[name][is_token]
    return values


def run_ours(config: ConfigDict, params: Arrays, batch: Batch) -> Outputs:
    """Runs our model; heads whose parameters are missing are passed over."""
    model = make_model_config(config)
    tree: Any = unflatten(params)

    def forward(tree: Any) -> dict[str, jax.Array]:
        encoded: Any = Bert(model).apply(
            {"params": tree["bert"]}, batch, deterministic=True, keep_all=True
        )
        values: dict[str, Any] = {"hidden states": jax.numpy.stack(encoded.all_hidden)}
        if encoded.pooled is not None:
            values["pooled"] = encoded.pooled[:, 0]
        if head := tree.get("masked_lm"):
            embedding = tree["bert"]["embeddings"]["word_embeddings"]["embedding"]
            logits: Any = MaskedLMHead(model).apply({"params": head}, encoded.hidden, embedding)
            values["masked-LM logits"] = logits
        if head := tree.get("next_sentence"):
            logits = NextSentenceHead(model).apply({"params": head}, encoded.pooled)
            values["next-sentence logits"] = logits[:, 0]
        if head := _task_head(config, tree):
            of_rows = config.task in ("classification", "multiple_choice")
            features = values["pooled"] if of_rows else encoded.hidden
            linear = LinearHead(model, len(head["bias"]))
            values["task logits"] = linear.apply({"params": head}, features)
        return values

    with jax.default_matmul_precision("highest"):
        values = {name: np.asarray(value) for name, value in jax.jit(forward)(tree).items()}
    program = f"bert_jax {importlib.metadata.version('bert_jax')} on jax {jax.__version__}"
    return Outputs(program, at_tokens(values, batch))


def _task_head(config: ConfigDict, tree: Any) -> Any:
    """Parameters of the task's dense layer; None if it does not stand on the last layer alone."""
    name = TASK_HEADS.get(config.task, "")
    is_plain = config.get("head", {}).get("layers", "last") == "last"
    return tree[name] if is_plain and tree.keys() == {"bert", name} else None


def largest_differences(a: Outputs, b: Outputs) -> dict[str, float]:
    """The largest absolute difference of each output that both have.

    Raises:
      ValueError: the models are of different sizes.
    """
    differences = {}
    for name in a.values.keys() & b.values.keys():
        x, y = a.values[name], b.values[name]
        if x.shape != y.shape:
            raise ValueError(f"The models are of different sizes: {name} {x.shape} and {y.shape}.")
        differences[name] = float(np.abs(x - y).max())
    return {name: differences[name] for name in a.values if name in differences}
