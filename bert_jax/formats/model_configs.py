"""Configurations of models in other programs: config.json and bert_config.json."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.files.errors import UserError


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The configuration file of one kind of model, and our fields for it.

    Attributes:
      title: name of this kind.
      fields: key of the file -> field of `config.model`, in the order in which transformers writes
        them.
      architecture: fields of `config.model` that are the same for every model of this kind.
      required: keys of the file; any other value makes it another model.
      defaults: the program's values for missing keys.
    """

    title: str
    fields: Mapping[str, str]
    architecture: Mapping[str, Any]
    required: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def read(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Returns fields of `config.model`.

        Args:
          values: content of the file.
          path: names the file in messages.

        Raises:
          UserError: a size is missing or not a number, or it is another kind of model.
        """
        for key, required in self.required.items():
            if (value := values.get(key, required)) != required:
                raise UserError(f"{path} has {key}={value!r}: only {required!r} is supported.")
        values = {**self.defaults, **values}
        if missing := [key for key in self.fields if key not in values]:
            raise UserError(f"{path} lacks {', '.join(missing)}.")
        fields: dict[str, Any] = {**self.architecture, "pad_vocab_to_multiple_of": 1}
        for key, field in self.fields.items():
            fields[field] = value = values[key]
            if field == "activation":
                continue
            is_float = field.endswith(("rate", "range", "epsilon", "base"))
            if isinstance(value, bool) or not isinstance(value, int | float if is_float else int):
                kind = "a number" if is_float else "an integer"
                raise UserError(f"{path} has {key}={value!r}, which is not {kind}.")
            fields[field] = float(value) if is_float else value
        return fields

    def check(self, model: Mapping[str, Any]) -> None:
        """Raises UserError if no model of this kind has these fields of `config.model`."""
        for field, required in self.architecture.items():
            if (value := model[field]) != required:
                raise UserError(
                    f"transformers' {self.title} has no config.model.{field}={value!r}, only"
                    f" {required!r}: export the run with to_onnx, or train with that value."
                )

    def keys(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the content of config.json; raises UserError if transformers has none."""
        return {key: model[field] for key, field in self.fields.items()}


# Fields of `config.model` that are the same for every BERT and GPT.
STACK = {
    "norm_place": "post",
    "norm": "layer_norm",
    "first_layer_norm": True,
    "query_key_norm": False,
    "biases": True,
    "positions": "learned",
    "attention_window": 0,
    "global_every": 0,
    "feed_forward": "plain",
    "convolution": 0,
    "predicts_next": False,
}
BERT_STACK = {"attention_pattern": "bidirectional", "lm_head": "transform", **STACK}

# ------------------------------------------------------------------ BERT

# `gelu_tanh` has several names; "gelu_new" is what all versions of transformers know.
_HIDDEN_ACTS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu_squared": "relu2"}


class BertFile(ModelConfig):
    """`read` returns our name for the activation, which the programs name differently."""

    def keys(self, model: Mapping[str, Any]) -> dict[str, Any]:
        act = next(key for key, field in self.fields.items() if field == "activation")
        keys = super().keys(model) | {act: _HIDDEN_ACTS[model["activation"]]}
        return {"model_type": self.required["model_type"], **keys}


BERT = BertFile(
    title="BERT",
    fields={
        **{"vocab_size": "vocab_size", "hidden_size": "hidden_size"},
        **{"num_hidden_layers": "num_layers", "num_attention_heads": "num_heads"},
        **{"intermediate_size": "intermediate_size", "hidden_act": "activation"},
        "hidden_dropout_prob": "dropout_rate",
        "attention_probs_dropout_prob": "attention_dropout_rate",
        "max_position_embeddings": "max_position_embeddings",
        **{"type_vocab_size": "type_vocab_size", "initializer_range": "initializer_range"},
        "layer_norm_eps": "layer_norm_epsilon",
    },
    architecture={"name": "bert", **BERT_STACK},
    required={
        "model_type": "bert",
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "directionality": "bidi",
    },
    # Of both programs.
    defaults={
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
    },
)

# ------------------------------------------------------------------ relatives of BERT

# Heads of these classes have GELU whatever config.json says.
_GELU = {"activation": "gelu"}
DISTILBERT = BertFile(
    title="DistilBERT",
    fields={
        **{"vocab_size": "vocab_size", "dim": "hidden_size", "n_layers": "num_layers"},
        **{"n_heads": "num_heads", "hidden_dim": "intermediate_size", "activation": "activation"},
        **{"dropout": "dropout_rate", "attention_dropout": "attention_dropout_rate"},
        "max_position_embeddings": "max_position_embeddings",
        "initializer_range": "initializer_range",
    },
    architecture={
        **{"name": "distilbert", "type_vocab_size": 0, "layer_norm_epsilon": 1e-12},
        **{"next_sentence": False, **BERT_STACK},
    },
    required={"model_type": "distilbert"},
    defaults={"dropout": 0.1, "attention_dropout": 0.1, "initializer_range": 0.02},
)

ELECTRA = BertFile(
    title="ELECTRA",
    fields={**BERT.fields, "embedding_size": "embedding_size"},
    architecture={"name": "electra", "next_sentence": False, **_GELU, **BERT_STACK},
    required={**BERT.required, "model_type": "electra", "hidden_act": "gelu"},
    defaults={**BERT.defaults, "embedding_size": 128, "hidden_act": "gelu"},
)


class _Roberta(BertFile):
    """Its table of positions has two rows more than a text may have tokens."""

    def read(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        fields = super().read(values, path)
        fields["max_position_embeddings"] -= 2
        return fields

    def keys(self, model: Mapping[str, Any]) -> dict[str, Any]:
        keys = super().keys(model)
        keys["max_position_embeddings"] += 2
        return keys


ROBERTA = _Roberta(
    title="RoBERTa",
    fields=BERT.fields,
    architecture={"name": "roberta", "next_sentence": False} | {**_GELU, **BERT_STACK},
    required={**BERT.required, "model_type": "roberta", "hidden_act": "gelu", "pad_token_id": 1},
    defaults={**BERT.defaults, "hidden_act": "gelu"},
)
XLM_ROBERTA = dataclasses.replace(
    ROBERTA,
    title="XLM-RoBERTa",
    architecture={**ROBERTA.architecture, "name": "xlm_roberta"},
    required={**ROBERTA.required, "model_type": "xlm-roberta"},
)


class _OwnBert(BertFile):
    """A BERT with any options of this package that a class in an exported folder has."""

    def read(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        fields = BERT.read({**values, "model_type": "bert"}, path)
        options = {key: values[key] for key in _OWN_OPTIONS if key in values}
        return {**fields, **options, "next_sentence": False}


_OWN_OPTIONS = (
    *("norm_place", "first_layer_norm", "norm", "query_key_norm", "biases", "positions"),
    *("rotary_base", "window_rotary_base", "attention_pattern", "attention_window"),
    *("global_every", "feed_forward", "convolution", "copy_head", "lm_head", "mask_value"),
    "predicts_next",
)
OWN_BERT = _OwnBert(
    title="BERT",
    fields={**BERT.fields, **{name: name for name in _OWN_OPTIONS}},
    architecture={"name": "bert"},
    required={"model_type": "bert_jax"},
    defaults=BERT.defaults,
)

# ------------------------------------------------------------------ GPT

# The inner layer has this many times the features of the outer one, in both programs.
_INNER = 4


class _Gpt(ModelConfig):
    """Its files have neither the size of the inner layer nor, here, two rates of dropout."""

    def read(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        fields = super().read(values, path)
        rate = values.get("resid_pdrop", self.defaults["resid_pdrop"])
        if (embedding := values.get("embd_pdrop", rate)) != rate:
            raise UserError(
                f"{path} has resid_pdrop={rate!r} and embd_pdrop={embedding!r}: only one rate for"
                " both is supported."
            )
        return fields | {"intermediate_size": _INNER * fields["hidden_size"]}

    def keys(self, model: Mapping[str, Any]) -> dict[str, Any]:
        if (inner := model["intermediate_size"]) != (expected := _INNER * model["hidden_size"]):
            raise UserError(
                f"transformers' GPT has no config.model.intermediate_size={inner}, only {_INNER} *"
                f" hidden_size = {expected}: export the run with to_onnx, or train with that"
                " value."
            )
        return {**super().keys(model), "embd_pdrop": model["dropout_rate"], **self.required}


GPT = _Gpt(
    title="GPT",
    fields={
        **{"vocab_size": "vocab_size", "n_positions": "max_position_embeddings"},
        **{"n_embd": "hidden_size", "n_layer": "num_layers", "n_head": "num_heads"},
        **{"resid_pdrop": "dropout_rate", "attn_pdrop": "attention_dropout_rate"},
        "layer_norm_epsilon": "layer_norm_epsilon",
        "initializer_range": "initializer_range",
    },
    architecture={"name": "gpt", "attention_pattern": "causal", "lm_head": "tied"}
    | {"activation": "gelu_tanh", **STACK},
    # In transformers' GPT, "gelu" is the form with tanh.
    required={"model_type": "openai-gpt", "afn": "gelu"},
    defaults={"resid_pdrop": 0.1, "attn_pdrop": 0.1}
    | {"layer_norm_epsilon": 1e-5, "initializer_range": 0.02},
)

# ------------------------------------------------------------------ ModernBERT

# As dtype=float32 has it in transformers: what is not visible has a probability of 0.
_MODERNBERT_MASK_VALUE = -1e9


class _ModernBert(ModelConfig):
    """Reads the files of transformers 4.48 and 5, and writes what both read."""

    def read(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        values = {**_rotary_bases(values, path), **values}
        if types := values.get("layer_types"):
            values["global_attn_every_n_layers"] = _global_every(types, path)
        fields = super().read(values, path)
        fields["attention_window"] //= 2
        return fields | {"activation": "gelu", "mask_value": _MODERNBERT_MASK_VALUE}

    def keys(self, model: Mapping[str, Any]) -> dict[str, Any]:
        keys = super().keys(model)
        # Their defaults are ids of the published vocabulary.
        keys |= dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
        keys["local_attention"] *= 2
        keys["local_rope_theta"] = keys["local_rope_theta"] or keys["global_rope_theta"]
        dropout = {"embedding_dropout": model["dropout_rate"], "classifier_dropout": 0.0}
        return {**self.required, **keys, **dropout}


MODERNBERT = _ModernBert(
    title="ModernBERT",
    fields={
        **{"vocab_size": "vocab_size", "hidden_size": "hidden_size"},
        **{"intermediate_size": "intermediate_size", "num_hidden_layers": "num_layers"},
        "num_attention_heads": "num_heads",
        "max_position_embeddings": "max_position_embeddings",
        **{"initializer_range": "initializer_range", "norm_eps": "layer_norm_epsilon"},
        **{"attention_dropout": "attention_dropout_rate", "mlp_dropout": "dropout_rate"},
        **{"global_attn_every_n_layers": "global_every", "global_rope_theta": "rotary_base"},
        "local_rope_theta": "window_rotary_base",
        "local_attention": "attention_window",  # both sides there, one side here
    },
    architecture={
        **{"name": "modernbert", "norm_place": "pre", "first_layer_norm": False},
        **{"norm": "layer_norm", "query_key_norm": False, "biases": False, "positions": "rotary"},
        **{"attention_pattern": "window", "feed_forward": "gated", "type_vocab_size": 0},
        **{"lm_head": "transform", "next_sentence": False, "predicts_next": False, **_GELU},
    },
    required={
        **{"model_type": "modernbert", "norm_bias": False, "attention_bias": False},
        **{"mlp_bias": False, "classifier_bias": False, "classifier_activation": "gelu"},
        **{"decoder_bias": True, "hidden_activation": "gelu"},
    },
    defaults={
        **{"initializer_range": 0.02, "norm_eps": 1e-5, "attention_dropout": 0.0},
        **{"mlp_dropout": 0.0, "local_attention": 128, "global_attn_every_n_layers": 3},
        **{"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0},
    },
)


def _rotary_bases(values: Mapping[str, Any], path: str) -> dict[str, float]:
    """Returns the bases that transformers 5 writes for each type of layer, by the older keys."""
    bases = {}
    parameters = values.get("rope_parameters") or {}
    if other := parameters.keys() - {"full_attention", "sliding_attention"}:
        raise UserError(
            f"{path} has rope_parameters for {', '.join(sorted(other))}: only full_attention and"
            " sliding_attention are supported."
        )
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
    """Returns n if every n-th layer, the first included, attends to all positions."""
    places = [i for i, kind in enumerate(types) if kind == "full_attention"]
    every = places[1] if len(places) > 1 else len(types)
    if places != list(range(0, len(types), every)):
        raise UserError(
            f"{path} has layer_types={types!r}: only full_attention in the first and then in every"
            " n-th layer is supported."
        )
    return every
