"""From `config.head` to what a head reads of its encoder; the checks of these fields."""

from bert_jax.models.layer_choice import LAYER_CHOICES
from bert_jax.models.model import EncoderConfig
from bert_jax.models.pooling import POOLS
from bert_jax.models.reading import HEAD_LAYERS, HEADS, HeadConfig
from bert_jax.tasks.task import TaskSettings


def make_head(settings: TaskSettings, field: str, heads: tuple[str, ...] = HEADS) -> HeadConfig:
    """Returns what the head of a task reads.

    Args:
      settings: of the task.
      field: of `config.head`, the one that chooses among `heads`.
      heads: allowed values.

    Raises:
      ValueError: for a value that does not exist, or has no effect.
    """
    head = settings.head
    for name, allowed in ((field, heads), ("layers", HEAD_LAYERS), ("pool", tuple(POOLS))):
        if head[name] not in allowed:
            raise ValueError(f"head.{name}: {head[name]!r} is none of {', '.join(allowed)}.")
    is_mix = LAYER_CHOICES[head["layers"]].num_weights(2) > 0
    for name, off in (("mix_layer_norm", False), ("mix_l2", 0.0)):
        if head[name] != off and not is_mix:
            raise ValueError(
                f"head.{name}={head[name]} has no effect with head.layers={head['layers']!r}, which"
                f" has no weights: set head.{name}={off}, or head.layers=scalar_mix, mix_last_4 or"
                " mix_with_embeddings."
            )
    return HeadConfig(
        head=head[field],
        frozen=settings.frozen_encoder,
        **{
            name: head[name]
            for name in (
                "layers",
                "pool",
                "pooler",
                "dropout_rate",
                "share_dropout",
                "lstm_size",
                "lstm_layers",
                "mix_layer_norm",
            )
        },
    )


def check_layers(head: HeadConfig, model: EncoderConfig) -> None:
    """Raises ValueError if a head reads more layers than the encoder has."""
    if (least := LAYER_CHOICES[head.layers].least_layers) > model.num_layers:
        raise ValueError(
            f"head.layers={head.layers!r} takes {least} layers, and the model has"
            f" {model.num_layers}: choose another, such as last or scalar_mix."
        )


def check_pooling(head: HeadConfig, model: EncoderConfig) -> None:
    """Raises ValueError if a vector of an example cannot be read as `head` says."""
    check_layers(head, model)
    if head.pool == "cls" and model.is_causal:
        raise ValueError(
            "head.pool='cls' reads the first token, which sees no other one in a causal model:"
            " set --config.head.pool=last, or mean or max."
        )


def describe_pooling(head: HeadConfig) -> str:
    """Returns a line for the banner: from which vector an example is predicted."""
    layers = "the last layer" if head.layers == "last" else head.layers
    parts = [
        layers,
        *(["BiLSTM"] if head.has_bilstm else []),
        {"cls": "[CLS]", "last": "last token", "mean": "mean", "max": "maximum"}[head.pool],
        "pooler" if head.has_pooler else "no pooler",
        *(["sum of both orders"] if head.both_orders else []),
    ]
    return f"head       {' -> '.join(parts)}"
