"""The configuration of a BERT in other programs, config.json or bert_config.json."""

from collections.abc import Mapping
from typing import Any

from bert_jax.files.errors import UserError

# Key of the file -> field of `config.model`, in the order in which transformers writes them.
_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_size",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_epsilon",
}
# Fields of `config.model` that are the same for every BERT and GPT.
STACK = {
    "norm": "layer_norm",
    "first_layer_norm": True,
    "query_key_norm": False,
    "biases": True,
    "global_every": 0,
}
# Fields of `config.model` that are the same for every BERT of the two programs.
ARCHITECTURE = {
    "name": "bert",
    "norm_place": "post",
    "positions": "learned",
    "attention_pattern": "bidirectional",
    "attention_window": 0,
    "feed_forward": "plain",
    "lm_head": "transform",
    **STACK,
}
# The defaults of both programs for missing keys.
_DEFAULTS = {
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# Any other value makes it another model than BERT.
_REQUIRED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "directionality": "bidi",
}


def model_fields(values: Mapping[str, Any], activation: str, path: str) -> dict[str, Any]:
    """Returns fields of `config.model` for a configuration.

    Args:
      values: content of the file.
      activation: the field's value; the formats differ in what `hidden_act` means.
      path: of the file, for messages.

    Raises:
      UserError: a size is missing or not a number, or the model is not a BERT.
    """
    for key, required in _REQUIRED.items():
        if (value := values.get(key, required)) != required:
            raise UserError(f"{path} has {key}={value!r}: only {required!r} is supported.")
    values = {**_DEFAULTS, **values, "hidden_act": activation}
    if missing := [key for key in _FIELDS if key not in values]:
        raise UserError(f"{path} lacks {', '.join(missing)}.")
    fields: dict[str, Any] = {**ARCHITECTURE, "pad_vocab_to_multiple_of": 1}
    for key, field in _FIELDS.items():
        fields[field] = values[key]
        if field != "activation":
            fields[field] = number(values[key], field, f"{path} has {key}")
    return fields


def number(value: Any, field: str, where: str) -> int | float:
    """Returns the value of a field, a float for a rate, a range, an epsilon or a base.

    Args:
      value: of the file.
      field: of `config.model`.
      where: it was found, for messages.

    Raises:
      UserError: it is not a number of that kind.
    """
    is_float = field.endswith(("rate", "range", "epsilon", "base"))
    if isinstance(value, bool) or not isinstance(value, int | float if is_float else int):
        kind = "a number" if is_float else "an integer"
        raise UserError(f"{where}={value!r}, which is not {kind}.")
    return float(value) if is_float else value


def model_keys(model: Mapping[str, Any], hidden_act: str) -> dict[str, Any]:
    """Returns the keys of the file for fields of `config.model`."""
    return {key: model[field] for key, field in _FIELDS.items()} | {"hidden_act": hidden_act}
