"""From `config.head` to what a head reads of its encoder; the checks of these fields."""

import dataclasses
from typing import Any

from bert_jax.config.run import FinetuningConfig
from bert_jax.files.errors import UserError
from bert_jax.models.layer_choice import LAYER_CHOICES
from bert_jax.models.model import EncoderConfig
from bert_jax.models.pooling import POOLS
from bert_jax.models.reading import HEAD_LAYERS, HEADS, HeadConfig

# Fields of HeadConfig that `config.head` has under the same name.
_DERIVED = ("head", "frozen", "has_lm_head")
_FIELDS = tuple(f.name for f in dataclasses.fields(HeadConfig) if f.name not in _DERIVED)


def make_head(config: FinetuningConfig, field: str, heads: tuple[str, ...] = HEADS) -> HeadConfig:
    """Returns what the head of a task reads; of which `config.head` has the choices.

    Args:
      config: of the run.
      field: of `config.head`, the one that chooses among `heads`.
      heads: allowed values.

    Raises:
      UserError: for a value that does not exist, or has no effect.
    """
    given = {name: getattr(config.head, name) for name in _FIELDS}
    head = HeadConfig(head=getattr(config.head, field) if field else "linear", **given)
    for name, value, allowed in (
        (field, head.head, heads),
        ("layers", head.layers, HEAD_LAYERS),
        ("pool", head.pool, tuple(POOLS)),
    ):
        if value not in allowed:
            raise UserError(f"head.{name}: {value!r} is none of {', '.join(allowed)}.")
    _check_mix(head, "mix_layer_norm", head.mix_layer_norm)
    _check_mix(head, "mix_l2", config.head.mix_l2)
    # A frozen encoder below a pooler or linear spans keeps its dropout.
    reads_features = heads != HEADS or not head.has_pooler
    return dataclasses.replace(
        head,
        frozen=config.optimizer.frozen_layers == -1 and reads_features,
        has_lm_head=config.head.lm_weight > 0,
    )


def _check_mix(head: HeadConfig, name: str, value: Any) -> None:
    if value and not head.num_weights(2):
        raise UserError(
            f"head.{name}={value} has no effect with head.layers={head.layers!r}, which has no"
            f" weights: set head.{name}={type(value)()}, or head.layers to scalar_mix, mix_last_4"
            " or mix_with_embeddings."
        )


def check_head(head: HeadConfig, model: EncoderConfig, *, pools: bool = False) -> None:
    """Refuses a head that cannot read an encoder.

    Args:
      head: of `make_head`.
      model: configuration of the encoder.
      pools: whether the head reads one vector of each example.

    Raises:
      UserError: the encoder has too few layers, or is causal and the head reads the first token.
    """
    if (needed := LAYER_CHOICES[head.layers].min_layers) > model.num_layers:
        raise UserError(
            f"head.layers={head.layers!r} takes {needed} layers, and the model has"
            f" {model.num_layers}: choose another, such as last or scalar_mix."
        )
    if pools and head.pool == "cls" and model.is_causal:
        raise UserError(
            "head.pool='cls' reads the first token, which sees no other one in a causal model:"
            " set --config.head.pool=last, or mean or max."
        )
