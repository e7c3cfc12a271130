"""Presets: all fields in which the well-known BERTs differ, set together.

A preset replaces the values of the configuration file for the fields of its row in PRESETS; fields
on the command line take precedence. docs/presets.md has the sources of the values and the remaining
differences. Presets do not set model sizes, sequence lengths, learning rates or dropout.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.config.layers import Layer
from bert_jax.config.run import RunConfig
from bert_jax.files.errors import UserError

# google-research/bert as of October 2018: `modeling.py`, `optimization.py`,
# `create_pretraining_data.py`.
_GOOGLE: dict[str, Any] = {
    "model.activation": "gelu",
    "model.layer_norm_epsilon": 1e-12,
    "model.mask_value": -10_000.0,
    "model.next_sentence": True,
    "data.segments": "pairs",
    "data.mode": "static",
    "data.mask_rounding": "half_even",
    "optimizer.name": "bert_adam",
    "optimizer.schedule": "bert_linear",
    "optimizer.beta1": 0.9,
    "optimizer.beta2": 0.999,
    "optimizer.epsilon": 1e-6,
    "optimizer.clip_norm": 1.0,
    "optimizer.no_decay": ("layer_norm", "bias"),
}
# The most negative float32: added to any score, it gives a probability of exactly 0.
_LOWEST = -3.4028234663852886e38

PRESETS: dict[str, dict[str, Any]] = {
    # Devlin et al. 2019; what the text does not specify is from the released code.
    "paper": _GOOGLE | {"data.mode": "dynamic"},
    "google_2018": _GOOGLE,
    # Since commit bee6030 of February 2019.
    "google_2019": _GOOGLE | {"model.activation": "gelu_tanh"},
    # transformers: `models/bert`, `DataCollatorForLanguageModeling`, `Trainer`, `run_mlm.py`.
    "hf": {
        "model.activation": "gelu",
        "model.layer_norm_epsilon": 1e-12,
        "model.mask_value": _LOWEST,
        "model.next_sentence": False,
        "data.segments": "full_sentences",
        "data.mode": "dynamic",
        "data.mask_rounding": "bernoulli",
        "optimizer.name": "adamw",
        "optimizer.schedule": "linear",
        "optimizer.beta1": 0.9,
        "optimizer.beta2": 0.999,
        "optimizer.epsilon": 1e-8,
        "optimizer.clip_norm": 1.0,
        "optimizer.no_decay": ("layer_norm", "bias"),
    },
    # Liu et al. 2019 and fairseq: `examples/roberta/config/pretraining/base.yaml` and its code.
    "roberta": {
        "model.activation": "gelu",
        "model.layer_norm_epsilon": 1e-5,
        "model.mask_value": _LOWEST,
        "model.next_sentence": False,
        "data.segments": "full_sentences",
        "data.mode": "dynamic",
        "data.mask_rounding": "stochastic",
        "optimizer.name": "adamw",
        "optimizer.schedule": "linear",
        "optimizer.beta1": 0.9,
        "optimizer.beta2": 0.98,
        "optimizer.epsilon": 1e-6,
        "optimizer.clip_norm": 0.0,
        "optimizer.no_decay": (),
    },
}


def layer(fields: Mapping[str, Any]) -> Layer:
    """Returns the layer of a configuration's preset, which may be empty.

    Args:
      fields: values by dotted name.

    Raises:
      UserError: for an unknown preset, or a configuration that lacks one of its fields.
    """
    preset = fields.get("preset", "")
    values = _row(preset)
    if missing := [name for name in values if name not in fields]:
        raise UserError(
            f"config.preset={preset!r} sets config.{missing[0]}, which this configuration does not"
            " have: presets are for the pre-training of BERT; leave it empty."
        )
    return Layer("preset", values)


def describe(config: RunConfig) -> list[str]:
    """Returns the line of the banner: the preset, and the fields that have another value."""
    changed = [
        f"{name}={config[name]!r}"
        for name, value in _row(config.preset).items()
        if config[name] != value
    ]
    but = f", but {', '.join(changed)}" if changed else ""
    return [f"preset     {config.preset}{but}"] if config.preset else []


def _row(name: str) -> dict[str, Any]:
    if name and name not in PRESETS:
        raise UserError(f"Unknown preset {name!r}. Available: {', '.join(PRESETS)}.")
    return PRESETS.get(name, {})
