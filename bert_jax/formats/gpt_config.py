"""The configuration of a GPT in transformers, config.json with model_type "openai-gpt"."""

from collections.abc import Mapping
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.formats.bert_config import STACK, number

# Key of the file -> field of `config.model`, in the order in which transformers writes them.
_FIELDS = {
    "vocab_size": "vocab_size",
    "n_positions": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "resid_pdrop": "dropout_rate",
    "attn_pdrop": "attention_dropout_rate",
    "layer_norm_epsilon": "layer_norm_epsilon",
    "initializer_range": "initializer_range",
}
# Fields of `config.model` that are the same for every GPT of the two programs.
ARCHITECTURE = {
    "name": "gpt",
    "norm_place": "post",
    "positions": "learned",
    "attention_pattern": "causal",
    "attention_window": 0,
    "feed_forward": "plain",
    "lm_head": "tied",
    "activation": "gelu_tanh",
    **STACK,
}
# The inner layer has this many times the features of the outer one, in both programs.
_INNER = 4
# The defaults of transformers for missing keys.
_DEFAULTS = {
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
}
# Any other value makes it another model. In transformers' GPT, "gelu" is the form with tanh.
_REQUIRED = {"model_type": "openai-gpt", "afn": "gelu"}


def model_fields(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns fields of `config.model` for a configuration.

    Args:
      values: content of the file.
      path: of the file, for messages.

    Raises:
      UserError: a size is missing or not a number, or the model is not a GPT.
    """
    for key, required in _REQUIRED.items():
        if (value := values.get(key, required)) != required:
            raise UserError(f"{path} has {key}={value!r}: only {required!r} is supported.")
    values = {**_DEFAULTS, **values}
    if missing := [key for key in _FIELDS if key not in values]:
        raise UserError(f"{path} lacks {', '.join(missing)}.")
    rates = values["resid_pdrop"], values.get("embd_pdrop", values["resid_pdrop"])
    if rates[0] != rates[1]:
        raise UserError(
            f"{path} has resid_pdrop={rates[0]!r} and embd_pdrop={rates[1]!r}: only one rate for"
            " both is supported."
        )
    fields: dict[str, Any] = {**ARCHITECTURE, "pad_vocab_to_multiple_of": 1}
    for key, field in _FIELDS.items():
        fields[field] = number(values[key], field, f"{path} has {key}")
    return fields | {"intermediate_size": _INNER * fields["hidden_size"]}


def model_keys(model: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of the file for fields of `config.model`.

    Raises:
      UserError: transformers has no such GPT.
    """
    if (inner := model["intermediate_size"]) != (expected := _INNER * model["hidden_size"]):
        raise UserError(
            f"transformers' GPT has no config.model.intermediate_size={inner}, only {_INNER} *"
            f" hidden_size = {expected}: export the run with to_stablehlo, or train with that"
            " value."
        )
    keys = {key: model[field] for key, field in _FIELDS.items()}
    return {**keys, "embd_pdrop": model["dropout_rate"], **_REQUIRED}


def released_fields(vocab_size: int, positions: int, hidden: int, layers: int) -> dict[str, Any]:
    """Returns fields of `config.model` for the weights of the released program.

    The files have the sizes; the values that are not in them are those of its `train.py`, where a
    head has 64 features.

    Args:
      vocab_size: rows of the table of words.
      positions: rows of the table of positions.
      hidden: features.
      layers: of the encoder.
    """
    sizes = {"vocab_size": vocab_size, "n_positions": positions, "n_embd": hidden}
    sizes |= {"n_layer": layers, "n_head": max(1, hidden // 64)}
    return model_fields(sizes, "the program")
