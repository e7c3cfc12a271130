"""Our models in transformers: the same parameters under other names.

The tables of names are on purpose independent of bert_jax.formats.
"""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

from bert_jax.devices.trees import flatten

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@dataclasses.dataclass(frozen=True)
class Names:
    """Modules by ours; those of one name are side by side in one tensor.

    Attributes:
      modules: modules outside the layers.
      layer: prefix of the names in a layer.
      layer_modules: modules of a layer.
      transposes: whether the kernels of a layer are [out, in], as all others are.
    """

    modules: dict[str, str]
    layer: str
    layer_modules: dict[str, str]
    transposes: bool


# By the name of the encoder.
NAMES = {
    "bert": Names(
        {
            **{
                f"bert/embeddings/{name}": f"bert.embeddings.{name}"
                for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
            },
            "bert/embeddings/layer_norm": "bert.embeddings.LayerNorm",
            "bert/pooler": "bert.pooler.dense",
            "masked_lm": "cls.predictions",
            "masked_lm/transform": "cls.predictions.transform.dense",
            "masked_lm/layer_norm": "cls.predictions.transform.LayerNorm",
            "next_sentence": "cls.seq_relationship",
            "classifier": "classifier",
            "span": "qa_outputs",
        },
        "bert.encoder.layer.{}.",
        {
            "attention/query": "attention.self.query",
            "attention/key": "attention.self.key",
            "attention/value": "attention.self.value",
            "attention/output": "attention.output.dense",
            "attention/layer_norm": "attention.output.LayerNorm",
            "intermediate": "intermediate.dense",
            "output": "output.dense",
            "layer_norm": "output.LayerNorm",
        },
        transposes=True,
    ),
    "gpt": Names(
        {
            "gpt/embeddings/word_embeddings": "transformer.tokens_embed",
            "gpt/embeddings/position_embeddings": "transformer.positions_embed",
            "classifier": "multiple_choice_head.summary",
        },
        "transformer.h.{}.",
        {
            **dict.fromkeys(("attention/query", "attention/key", "attention/value"), "attn.c_attn"),
            "attention/output": "attn.c_proj",
            "attention/layer_norm": "ln_1",
            "intermediate": "mlp.c_fc",
            "output": "mlp.c_proj",
            "layer_norm": "ln_2",
        },
        transposes=False,
    ),
    "modernbert": Names(
        {
            "modernbert/embeddings/word_embeddings": "model.embeddings.tok_embeddings",
            "modernbert/embeddings/layer_norm": "model.embeddings.norm",
            "modernbert/encoder/layer_norm": "model.final_norm",
            "masked_lm/transform": "head.dense",
            "masked_lm/layer_norm": "head.norm",
            "masked_lm": "decoder",
        },
        "model.layers.{}.",
        {
            **dict.fromkeys(("attention/query", "attention/key", "attention/value"), "attn.Wqkv"),
            **dict.fromkeys(("gate", "intermediate"), "mlp.Wi"),
            "attention/layer_norm": "attn_norm",
            "attention/output": "attn.Wo",
            "layer_norm": "mlp_norm",
            "output": "mlp.Wo",
        },
        transposes=True,
    ),
}
_OURS = ("attention/query", "attention/key", "attention/value", "attention/output")
NAMES["distilbert"] = Names(
    {
        "distilbert/embeddings/word_embeddings": "distilbert.embeddings.word_embeddings",
        "distilbert/embeddings/position_embeddings": "distilbert.embeddings.position_embeddings",
        "distilbert/embeddings/layer_norm": "distilbert.embeddings.LayerNorm",
        "distilbert/pooler": "pre_classifier",
        "masked_lm": "vocab_projector",
        "masked_lm/transform": "vocab_transform",
        "masked_lm/layer_norm": "vocab_layer_norm",
        "classifier": "classifier",
        "span": "qa_outputs",
    },
    "distilbert.transformer.layer.{}.",
    {
        **{name: f"attention.{x}_lin" for name, x in zip(_OURS, "q k v out".split(), strict=True)},
        "attention/layer_norm": "sa_layer_norm",
        "intermediate": "ffn.lin1",
        "output": "ffn.lin2",
        "layer_norm": "output_layer_norm",
    },
    transposes=True,
)


def _as_bert(encoder: str, prefix: str, heads: dict[str, str]) -> Names:
    bert = NAMES["bert"]
    embeddings = {
        name.replace("bert/", f"{encoder}/"): module.replace("bert.", f"{prefix}.")
        for name, module in bert.modules.items()
        if "embeddings" in name
    }
    layer = bert.layer.replace("bert.", f"{prefix}.")
    span = {"span": "qa_outputs"}
    return Names(embeddings | heads | span, layer, bert.layer_modules, transposes=True)


NAMES["electra"] = _as_bert(
    "electra",
    "electra",
    {
        "electra/embeddings/projection": "electra.embeddings_project",
        "electra/pooler": "classifier.dense",
        "masked_lm": "generator_lm_head",
        "masked_lm/transform": "generator_predictions.dense",
        "masked_lm/layer_norm": "generator_predictions.LayerNorm",
        "classifier": "classifier",
    },
)
for _name in ("roberta", "xlm_roberta"):
    NAMES[_name] = _as_bert(
        _name,
        "roberta",
        {
            f"{_name}/pooler": "classifier.dense",
            "masked_lm": "lm_head",
            "masked_lm/transform": "lm_head.dense",
            "masked_lm/layer_norm": "lm_head.layer_norm",
            "classifier": "classifier",
        },
    )
LEAVES = {"embedding": "weight", "kernel": "weight", "scale": "weight", "bias": "bias"}
HIDDEN_ACTS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu_squared": "relu2"}
SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "max_position_embeddings": "max_position_embeddings",
}


def to_theirs(tree: Any) -> dict[str, np.ndarray]:
    """Returns a tree of parameters or gradients, or its leaves by path, as {their name: array}."""
    ours = {path: np.array(leaf) for path, leaf in flatten(tree).items()}
    encoder = next(name for name in NAMES if f"{name}/" in {p[: len(name) + 1] for p in ours})
    names, parts = NAMES[encoder], {}
    order = list(names.layer_modules)
    for path, array in ours.items():
        module, _, leaf = path.rpartition("/")
        place, transposes = 0, True
        if layer := re.fullmatch(rf"{encoder}/encoder/layer_(\d+)/(.*)", module):
            place, transposes = order.index(layer[2]), names.transposes
            name = names.layer.format(layer[1]) + names.layer_modules[layer[2]]
        else:
            name = names.modules[module]
        array = array.T if leaf == "kernel" and transposes else array
        parts.setdefault(f"{name}.{LEAVES[leaf]}", {})[place] = array
    if encoder in ("electra", "roberta", "xlm_roberta") and f"{encoder}/pooler/kernel" in ours:
        for leaf in ("weight", "bias"):  # the last layer of a classifier
            parts[f"classifier.out_proj.{leaf}"] = parts.pop(f"classifier.{leaf}")
    axis = 0 if names.transposes else -1
    return {
        name: np.concatenate([arrays[i] for i in sorted(arrays)], axis)
        for name, arrays in parts.items()
    }


def make_twin(name: str, config: Any, params: Any, **more: Any) -> Any:
    """Returns a model of transformers with our parameters, which are all of its own.

    Args:
      name: its class.
      config: our encoder.
      params: our parameters.
      more: further values of its configuration.
    """
    make = getattr(transformers, name)
    values = {theirs: getattr(config, ours) for theirs, ours in SIZES.items()}
    if config.name == "modernbert":
        values |= {f"{token}_token_id": None for token in ("pad", "bos", "eos", "cls", "sep")}
        values |= {"intermediate_size": config.intermediate_size}
        values |= {"local_attention": 2 * config.attention_window}
    elif config.name == "distilbert":
        values |= {"hidden_dim": config.intermediate_size}
        for theirs, ours in (("dim", "hidden_size"), ("n_layers", "num_layers")):
            values[theirs] = getattr(config, ours)
        values["n_heads"] = config.num_heads
        for theirs in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
            del values[theirs]
    elif config.name != "gpt":
        values |= {
            "intermediate_size": config.intermediate_size,
            "type_vocab_size": config.type_vocab_size,
            "layer_norm_eps": config.layer_norm_epsilon,
            "hidden_act": HIDDEN_ACTS[config.activation],
        }
        if config.name == "electra":
            values["embedding_size"] = config.embedding_size
        if config.name.endswith("roberta"):
            values["max_position_embeddings"] += 2
    model = make(make.config_class(**values | more, attn_implementation="eager"))
    state = {name: torch.tensor(array) for name, array in to_theirs(params).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert {name for name, _ in model.named_parameters()}.isdisjoint(missing)
    model.tie_weights()
    return model.eval()
