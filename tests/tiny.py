"""The small model that tests build, its configuration overrides, batches for it, and meshes."""

import math
from typing import Any

import jax
import numpy as np

from bert_jax.config.run import RunConfig
from bert_jax.devices import sharding
from bert_jax.models.bert import BertConfig
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.pretraining.masking import MaskingRule

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
# The generator of random bits that compiles fastest.
PRNG_IMPL = "threefry2x32"


def make_overrides(**changes: Any) -> dict[str, Any]:
    """Returns overrides of a configuration: the small model, and changes.

    Args:
      **changes: fields, with "__" in the place of dots: `model__num_layers=1`, `steps=20`.
    """
    values = {f"model.{name}": size for name, size in SIZES.items()} | {"prng_impl": PRNG_IMPL}
    return values | {name.replace("__", "."): value for name, value in changes.items()}


def rows_of(config: RunConfig, length: int) -> dict[str, Any]:
    """Returns the override that gives a run rows of one length, for its kind of configuration."""
    return {"phases": ((length, 1.0),)} if config.has_corpus else {"max_length": length}


def make_mesh(data: int = 1, fsdp: int = 1, tensor: int = 1) -> jax.sharding.Mesh:
    """Returns a mesh of the first devices."""
    count = math.prod((data, fsdp, tensor))
    return sharding.make_mesh(data, fsdp, tensor, devices=jax.devices()[:count])


def make_model(**changes: Any) -> BertConfig:
    """Returns the encoder's configuration; `changes` are its fields."""
    values = SIZES | {
        "pad_vocab_to_multiple_of": 1,
        "type_vocab_size": 2,
        "dropout_rate": 0.1,
        "attention_dropout_rate": 0.1,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-12,
        "activation": "gelu_tanh",
        "remat": False,
        "prng_impl": PRNG_IMPL,
    }
    return BertConfig(**values | changes)


def make_task(
    masking: str = "subword",
    sequence_length: int = 16,
    next_sentence: bool = True,
    **changes: Any,
) -> Pretraining:
    """Returns a pre-training task with masks drawn on the device, 3 in a row.

    Args:
      masking: of MaskingRule.
      sequence_length: of the rows, and positions of the model.
      next_sentence: whether the model predicts next sentences.
      **changes: fields of the encoder's configuration.
    """
    model = make_model(**{"max_position_embeddings": sequence_length} | changes)
    rule = MaskingRule(
        masked_lm_prob=0.15,
        max_predictions=3,
        masking=masking,
        vocab_size=model.vocab_size,
        mask_id=4,
        never_masked=(0, 2, 3),
        is_continuation=tuple(i % 3 == 0 and i > 4 for i in range(model.vocab_size)),
    )
    of_rows = {"sequence_length": sequence_length, "max_predictions": rule.max_predictions}
    return Pretraining(
        model=model, next_sentence=next_sentence, rule=rule, mask_id=rule.mask_id, **of_rows
    )


def make_batch(batch_size: int, sequence_length: int = 16, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns a batch of random pairs [CLS] A [SEP] B [SEP] of 8 to `sequence_length` tokens."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(8, sequence_length + 1, (batch_size, 1))
    place = np.arange(sequence_length)
    is_token = place < lengths
    first = lengths // 2
    ids = rng.integers(len(SPECIAL), SIZES["vocab_size"], (batch_size, sequence_length))
    ids = np.where(place == 0, 2, np.where((place == first) | (place == lengths - 1), 3, ids))
    return {
        "input_ids": np.where(is_token, ids, 0).astype(np.int32),
        "token_type_ids": (is_token & (place > first)).astype(np.int32),
        "position_ids": np.where(is_token, place, 0).astype(np.int32),
        "example_ids": is_token.astype(np.int32),
        "cls_positions": np.zeros((batch_size, 1), np.int32),
        "next_sentence_labels": rng.integers(0, 2, (batch_size, 1)).astype(np.int32),
        "next_sentence_weights": np.ones((batch_size, 1), np.float32),
    }
