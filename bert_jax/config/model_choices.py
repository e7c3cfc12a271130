"""Values of fine-tuning that follow from the encoder that is fine-tuned.

Where `config.init_from` names the encoder, they replace the defaults of fine-tuning, which are
BERT's. Fields that the command line or the configuration's file changes keep their values.
"""

from collections.abc import Collection, Mapping
from typing import Any

from bert_jax.config.finetuning import FinetuningConfig

# Of every model in which a position sees only those before it: the last token has seen all.
_CAUSAL = {"head.pool": "last"}
# Of configs/fast.py. Pre-training gave its first token no task, and a new pooler learns too slowly
# from few examples: docs/log/recipes.md, the texts after 20 minutes on novels.
_WITHOUT_PAIRS = {"head.pool": "mean", "head.pooler": False}
# By config.model.name.
_BY_NAME: dict[str, dict[str, Any]] = {
    # openai/finetune-transformer-lm `train.py`: no pooler, an auxiliary loss, its optimizer.
    "gpt": {
        "head.pool": "last",
        "head.pooler": False,
        "head.lm_weight": 0.5,
        "head.share_dropout": True,
        "optimizer.name": "gpt_adam",
        "optimizer.schedule": "gpt_linear",
        "optimizer.learning_rate": 6.25e-5,
        "optimizer.warmup": "0.2%",
        "optimizer.epsilon": 1e-8,
        "optimizer.no_decay": (),
    },
    # Peters et al. 2018, section 3.3: the states of all layers are features of a model above, with
    # dropout and a penalty of the weights; the model above is that of Devlin et al. 2019, 5.3.
    "elmo": {
        "head.pool": "max",
        "head.pooler": False,
        "head.layers": "mix_with_embeddings",
        "head.mix_l2": 1e-3,
        "head.dropout_rate": 0.5,
        "head.tagging": "bilstm",
        "head.classification": "bilstm",
        "head.span": "bilstm",
        "head.multiple_choice": "bilstm",
        "optimizer.frozen_layers": -1,
        "optimizer.name": "adamw",
        "optimizer.learning_rate": 1e-3,
    },
}


def choices(model: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that follow from a model, by the names of their fields.

    Args:
      model: the fields of `config.model`.
    """
    if found := _BY_NAME.get(model.get("name", "bert")):
        return found
    if model.get("attention_pattern") == "causal":
        return _CAUSAL
    # RoBERTa, with its norm after the sub-layers, has no pairs either, but a published recipe.
    is_fast = model.get("norm_place") == "pre" and not model.get("next_sentence")
    return _WITHOUT_PAIRS if is_fast else {}


def values_for(
    values: Mapping[str, Any], model: Mapping[str, Any], explicit: Collection[str]
) -> dict[str, Any]:
    """Returns the fields of a configuration for fine-tuning that follow from the model.

    Args:
      values: all fields by dotted name.
      model: the fields of the encoder that is fine-tuned.
      explicit: names of fields that the user or the configuration's file sets; they keep their
        values.

    Returns:
      The new values by dotted name. A field that differs from the default of fine-tuning keeps its
      value.
    """
    usual = FinetuningConfig()
    return {
        name: value
        for name, value in choices(model).items()
        if name not in explicit and values[name] == usual[name]
    }
