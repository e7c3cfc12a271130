"""Configurations of the models that are BERT's stack, in transformers: config.json."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.formats.model_configs import BERT, STACK, BertFile

# Heads of these classes have GELU whatever config.json says.
_GELU = {"activation": "gelu"}
BERT_STACK = {"attention_pattern": "bidirectional", "lm_head": "transform", **STACK}

DISTILBERT = BertFile(
    title="DistilBERT",
    fields={
        "vocab_size": "vocab_size",
        "dim": "hidden_size",
        "n_layers": "num_layers",
        "n_heads": "num_heads",
        "hidden_dim": "intermediate_size",
        "activation": "activation",
        "dropout": "dropout_rate",
        "attention_dropout": "attention_dropout_rate",
        "max_position_embeddings": "max_position_embeddings",
        "initializer_range": "initializer_range",
    },
    architecture={
        "name": "distilbert",
        "type_vocab_size": 0,
        "layer_norm_epsilon": 1e-12,
        "next_sentence": False,
        **BERT_STACK,
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
    architecture={
        "name": "roberta",
        "type_vocab_size": 1,
        "next_sentence": False,
        **_GELU,
        **BERT_STACK,
    },
    required={
        **BERT.required,
        "model_type": "roberta",
        "hidden_act": "gelu",
        "type_vocab_size": 1,
        "pad_token_id": 1,
    },
    defaults={**BERT.defaults, "type_vocab_size": 1, "hidden_act": "gelu"},
)
XLM_ROBERTA = dataclasses.replace(
    ROBERTA,
    title="XLM-RoBERTa",
    architecture={**ROBERTA.architecture, "name": "xlm_roberta"},
    required={**ROBERTA.required, "model_type": "xlm-roberta"},
)

# ------------------------------------------------------------------ BERT with further options


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
)
OWN_BERT = _OwnBert(
    title="BERT",
    fields={**BERT.fields, **{name: name for name in _OWN_OPTIONS}},
    architecture={"name": "bert"},
    required={"model_type": "bert_jax"},
    defaults=BERT.defaults,
)
