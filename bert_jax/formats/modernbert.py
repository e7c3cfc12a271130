"""ModernBERT in transformers: a folder with model_type "modernbert" (Warner et al. 2024)."""

from collections.abc import Mapping
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.formats.bert_config import number
from bert_jax.formats.foreign import Choices, ForeignCheckpoint, check_activation, sibling
from bert_jax.formats.hf_vocabulary import is_lowercase, wordpiece_vocabulary
from bert_jax.formats.weight_table import Arrays

CONFIG = "config.json"
# Key of the file -> field of `config.model`.
_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "max_position_embeddings": "max_position_embeddings",
    "initializer_range": "initializer_range",
    "norm_eps": "layer_norm_epsilon",
    "attention_dropout": "attention_dropout_rate",
    "mlp_dropout": "dropout_rate",
    "global_attn_every_n_layers": "global_every",
    "global_rope_theta": "rotary_base",
    "local_rope_theta": "window_rotary_base",
}
# The same for every ModernBERT; the other fields of the encoder.
ARCHITECTURE = {
    "name": "modernbert",
    "norm_place": "pre",
    "first_layer_norm": False,
    "norm": "layer_norm",
    "query_key_norm": False,
    "biases": False,
    "positions": "rotary",
    "attention_pattern": "window",
    "feed_forward": "gated",
    "type_vocab_size": 0,
    "lm_head": "transform",
    "next_sentence": False,
}
# The defaults of transformers for missing keys.
_DEFAULTS = {
    "initializer_range": 0.02,
    "norm_eps": 1e-5,
    "attention_dropout": 0.0,
    "mlp_dropout": 0.0,
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160_000.0,
    "local_rope_theta": 10_000.0,
}
# Any other value makes it another model.
_REQUIRED = {
    "model_type": "modernbert",
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "classifier_bias": False,
    "classifier_activation": "gelu",
    "decoder_bias": True,
    "hidden_activation": "gelu",
}
# As dtype=float32 has it in transformers: what is not visible has a probability of 0.
_MASK_VALUE = -1e9
_CLASSES = ("ModernBertModel", "ModernBertForMaskedLM")


def open_modernbert(
    path: str, values: dict[str, Any], arrays: Arrays, choices: Choices
) -> ForeignCheckpoint:
    """Describes a folder of ModernBertModel or ModernBertForMaskedLM.

    Args:
      path: the folder, or a file in it.
      values: content of its config.json.
      arrays: its tensors.
      choices: settings that take precedence over its own.

    Raises:
      UserError: it is incomplete, or not a ModernBERT that this package has.
    """
    check_activation(choices, path, "ModernBERT", "gelu")
    config_path = sibling(path, CONFIG)
    for name in values.get("architectures") or ():
        if name not in _CLASSES:
            raise UserError(
                f"{config_path} has architectures={name!r}: only {' and '.join(_CLASSES)} are"
                " supported."
            )
    vocabulary = wordpiece_vocabulary(path, choices.vocab)
    lowercase = choices.lowercase
    if lowercase is None:
        lowercase = is_lowercase(path, vocabulary)
    return ForeignCheckpoint(
        path=path,
        format="huggingface",
        task="pretraining",
        model=model_fields(values, config_path),
        vocabulary=vocabulary,
        lowercase=lowercase,
        labels=(),
        shapes={name: array.shape for name, array in arrays.items()},
        read=lambda: arrays,
        notes=(f"Text is {'' if lowercase else 'not '}lower cased.",),
    )


def model_fields(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns fields of `config.model` for a configuration.

    Args:
      values: content of the file, with the keys of transformers 4.48 or 5.
      path: of the file, for messages.

    Raises:
      UserError: a size is missing or not a number, or the model is not a ModernBERT that this
        package has.
    """
    for key, required in _REQUIRED.items():
        if (value := values.get(key, required)) != required:
            raise UserError(f"{path} has {key}={value!r}: only {required!r} is supported.")
    values = {**_DEFAULTS, **_rotary_bases(values, path), **values}
    if missing := [key for key in _FIELDS if key not in values]:
        raise UserError(f"{path} lacks {', '.join(missing)}.")
    if types := values.get("layer_types"):
        values["global_attn_every_n_layers"] = _global_every(types, path)
    fields: dict[str, Any] = {
        **ARCHITECTURE,
        "activation": "gelu",
        "mask_value": _MASK_VALUE,
        "pad_vocab_to_multiple_of": 1,
        "attention_window": int(
            number(values["local_attention"], "window", f"{path} has local_attention")
        )
        // 2,
    }
    for key, field in _FIELDS.items():
        fields[field] = number(values[key], field, f"{path} has {key}")
    for field in ("rotary_base", "window_rotary_base"):
        fields[field] = float(fields[field])
    return fields


def model_keys(model: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of config.json for `config.model`, in keys that 4.48 and 5 read."""
    keys = {key: model[field] for key, field in _FIELDS.items()}
    dropout = {"embedding_dropout": model["dropout_rate"], "classifier_dropout": 0.0}
    return {**_REQUIRED, **keys, **dropout, "local_attention": 2 * model["attention_window"]}


def _rotary_bases(values: Mapping[str, Any], path: str) -> dict[str, float]:
    """Returns the bases that transformers 5 writes for each type of layer, by the older keys."""
    bases = {}
    parameters = values.get("rope_parameters") or {}
    for kind, key in (
        ("full_attention", "global_rope_theta"),
        ("sliding_attention", "local_rope_theta"),
    ):
        of_kind = parameters.get(kind) or {}
        if (name := of_kind.get("rope_type", "default")) != "default":
            raise UserError(f"{path} has rope_type={name!r}: only 'default' is supported.")
        if "rope_theta" in of_kind:
            bases[key] = of_kind["rope_theta"]
    return bases


def _global_every(types: list[str], path: str) -> int:
    """Returns n if every n-th layer, the first included, attends to all positions.

    Raises:
      UserError: the layers have another pattern.
    """
    places = [i for i, kind in enumerate(types) if kind == "full_attention"]
    every = places[1] if len(places) > 1 else len(types)
    if places != list(range(0, len(types), every)):
        raise UserError(
            f"{path} has layer_types={types!r}: only full_attention in the first and then in every"
            " n-th layer is supported."
        )
    return every
