"""Values of fine-tuning that follow from the encoder that is fine-tuned.

Where `config.init_from` names the encoder, they replace the defaults of the task, which are BERT's.
Fields that the command line or the configuration's file sets keep their values.
"""

from collections.abc import Collection, Mapping
from typing import Any

# Of every model in which a position sees only those before it: the last token has seen all.
_CAUSAL = {"task.pool": "last"}
# Of configs/fast.py. Pre-training gave its first token no task, and a new pooler learns too slowly
# from few examples: docs/log/recipes.md, the texts after 20 minutes on novels.
_WITHOUT_PAIRS = {"task.pool": "mean", "task.pooler": False}
# By config.model.name.
_BY_NAME: dict[str, dict[str, Any]] = {
    # openai/finetune-transformer-lm `train.py`: no pooler, an auxiliary loss, its optimizer.
    "gpt": {
        "task.pool": "last",
        "task.pooler": False,
        "task.lm_weight": 0.5,
        "task.share_dropout": True,
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
        "task.pool": "max",
        "task.pooler": False,
        "task.layers": "mix_with_embeddings",
        "task.mix_l2": 1e-3,
        "task.dropout_rate": 0.5,
        "task.head": "bilstm",
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


def values_for(fields: Collection[str], model: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that follow from a model, of those fields that a configuration has.

    Args:
      fields: the dotted names of all fields. Without `task.pooler`, the task and not the encoder
        chooses what is pooled.
      model: the fields of the encoder that is fine-tuned.
    """
    without = set() if "task.pooler" in fields else {"task.pool"}
    return {
        name: value
        for name, value in choices(model).items()
        if name in fields and name not in without
    }
