"""The one merge of a configuration: layers of values in their order, of which the last wins.

    default    defaults of the package and of the task
    encoder    fine-tuning values that follow from the encoder
    file       what the configuration's file sets
    preset     the values of `config.preset`
    init_from  the model and the vocabulary of `config.init_from`
    recipe     what a plan chooses, with reasons
    given      what the user sets, on the command line or in Python

No layer compares a value with a default to find out whether somebody meant it. A frozen
`RunConfig` that is given to the Python API has no record of what was set: its values that differ
from the task's defaults count as those of a file.

A preset sets all fields in which the well-known BERTs differ, but no sizes of models, lengths of
sequences, learning rates or dropout; docs/presets.md has the sources of its values.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Self

from bert_jax.config.phases import LENGTHS
from bert_jax.config.run import RunConfig
from bert_jax.files.errors import UserError

DEFAULT, GIVEN = "default", "given"


class Layer(NamedTuple):
    """Values from one place.

    Attributes:
      name: the place, one word for readers.
      values: by dotted name.
    """

    name: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, fields: Mapping[str, Any], names: Collection[str]) -> Self:
        """Returns the layer of some fields, as far as there are any."""
        return cls(name, {field: fields[field] for field in names if field in fields})


def merge(layers: Iterable[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the values of all fields, and the name of the layer that each is from.

    The length of training is one value with several units: a layer that gives it replaces it in
    all of them. Of two in a file, `steps` is the one without effect.

    Args:
      layers: in order; the first has all fields.

    Raises:
      UserError: the user gives two lengths.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        lengths = [name for name in LENGTHS if layer.values.get(name)]
        if layer.name == GIVEN and len(lengths) > 1:
            one, two, *_ = (f"config.{name}={layer.values[name]}" for name in lengths)
            raise UserError(f"{one} and {two} both give the length of training: set one of them.")
        found = dict(layer.values)
        if len(lengths) == 1:
            found = {n: type(values[n])(0) for n in LENGTHS[1:] if values.get(n)} | found
        values |= found
        origins |= dict.fromkeys(found, layer.name)
    return values, origins


# ------------------------------------------------------------------ presets

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


def preset_layer(fields: Mapping[str, Any]) -> Layer:
    """Returns the layer of a configuration's preset, which may be empty.

    Args:
      fields: values by dotted name.

    Raises:
      UserError: for an unknown preset, or a configuration that lacks one of its fields.
    """
    preset = fields.get("preset", "")
    values = _preset(preset)
    if missing := [name for name in values if name not in fields]:
        raise UserError(
            f"config.preset={preset!r} sets config.{missing[0]}, which this configuration does not"
            " have: presets are for the pre-training of BERT; leave it empty."
        )
    return Layer("preset", values)


def describe_preset(config: RunConfig) -> list[str]:
    """Returns the line of the banner: the preset, and the fields that have another value."""
    changed = [
        f"{name}={config[name]!r}"
        for name, value in _preset(config.preset).items()
        if config[name] != value
    ]
    but = f", but {', '.join(changed)}" if changed else ""
    return [f"preset     {config.preset}{but}"] if config.preset else []


def _preset(name: str) -> dict[str, Any]:
    if name and name not in PRESETS:
        raise UserError(f"Unknown preset {name!r}. Available: {', '.join(PRESETS)}.")
    return PRESETS.get(name, {})
