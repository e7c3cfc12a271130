"""Reads and writes config.json, the resolved configuration in the folder of a run."""

import json
import os
import pathlib
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config import defaults
from bert_jax.config.fields import fields, has_corpus
from bert_jax.config.renames import check_names
from bert_jax.files.atomic import write_text
from bert_jax.files.errors import UserError

NAME = "config.json"
# Fields of config.model that configurations written by version 0.1.0 lack, all of them, with the
# values that were built in.
ADDED_FIELDS = {
    "name": "bert",
    "norm_place": "post",
    "positions": "learned",
    "attention_pattern": "bidirectional",
    "attention_window": 0,
    "feed_forward": "plain",
    "attention": "einsum",
    "initializer": "truncated_normal",
    "lm_head": "transform",
}
# The same of encoders with attention heads, which configurations of any earlier version lack.
ADDED_STACK_FIELDS = {
    "norm": "layer_norm",
    "first_layer_norm": True,
    "query_key_norm": False,
    "biases": True,
    "rotary_base": 10_000.0,
    "window_rotary_base": 0.0,
    "global_every": 0,
    "remat_policy": "nothing",
    "scan_layers": False,
}
# The same of config.head, which configurations of any earlier version lack.
ADDED_HEAD_FIELDS = {
    "classification": "linear",
    "span": "linear",
    "multiple_choice": "linear",
    "mix_layer_norm": False,
    "mix_l2": 0.0,
    "pool": "cls",
    "pooler": True,
    "dropout_rate": -1.0,
    "share_dropout": False,
    "both_orders": False,
    "lm_weight": 0.0,
}
# The same of config.data on labelled examples.
ADDED_LABELLED_FIELDS = {"max_examples_per_row": 1}
# The same of config.optimizer, which configurations of any earlier version lack.
ADDED_OPTIMIZER_FIELDS = {"initial_accumulator": 1.0, "decay_fraction": 0.5, "phase_schedules": ()}
# Fields of config.data of a corpus that earlier configurations lack, with those values.
ADDED_DATA_FIELDS = {
    "lexicon": "",
    "lexicon_weights": (),
    "mask_share": 0.8,
    "keep_share": 0.1,
    "random_share": 0.1,
    "max_examples_per_row": 1,
    "final_masked_lm_prob": 0.0,
}
_OF_ALL_MODELS = [
    f"model.{name}"
    for name in (
        *("name", "vocab_size", "hidden_size", "num_layers", "max_position_embeddings"),
        *("activation", "next_sentence"),
    )
]
# Chosen when a run begins, if it is empty, and kept in its configuration.
CHOSEN_LENGTHS = "data.bucket_lengths"
# What may differ when a run is resumed: nothing that affects the numbers it computes. (A preset is
# only a name; the fields that it sets are compared.)
_FREE_TO_CHANGE = (
    "preset",
    "seeds",
    "published_score",
    "published_in",
    "checkpoint.",
    "eval.",
    "log.",
    "mesh.",
    "data.dir",
    "data.num_processes",
    "data.eval_masked_lm_prob",
)


def save(config: ConfigDict, workdir: str) -> None:
    """Writes the resolved configuration to workdir/config.json."""
    text = json.dumps(config.to_dict(), indent=2, sort_keys=True)
    write_text(os.path.join(workdir, NAME), f"{text}\n")


def load(workdir: str) -> ConfigDict:
    """Returns the configuration in workdir/config.json.

    Raises:
      UserError: there is none, it is corrupt, or it is another program's.
    """
    path = pathlib.Path(workdir, NAME)
    if not path.is_file():
        raise UserError(f"{workdir} holds no run: there is no config.json in it.")
    check_workdir(workdir)
    try:
        config = from_json(json.loads(path.read_text()))
        check_names((name for name, _ in fields(config)), is_labelled=not has_corpus(config))
        _check_types(config)
        return config
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} is corrupt ({error}): give the configuration with --config."
        ) from None


def has_begun(config: ConfigDict, workdir: str) -> bool:
    """Returns whether `workdir` holds a run that started from the same `config.init_from`.

    Such a run does not need the source of its parameters any more.
    """
    if not (workdir and os.path.isfile(os.path.join(workdir, NAME))):
        return False
    return load(workdir).init_from == config.init_from


def check_workdir(workdir: str) -> None:
    """Refuses a folder in which another program keeps a model: a run would overwrite its files.

    Raises:
      UserError: the folder's config.json is another program's.
    """
    try:
        values = json.loads(pathlib.Path(workdir, NAME).read_text())
    except (OSError, ValueError, RecursionError):
        return  # There is none, or it is corrupt.
    if isinstance(values, dict) and "model" not in values:
        raise UserError(
            f"{workdir} is not a workdir: its config.json is another program's. Choose another"
            " folder; to import a BERT into a new workdir, run"
            f" python -m bert_jax convert from_hf {workdir} NEW."
        )


def from_json(values: dict[str, Any]) -> ConfigDict:
    """Returns the configuration that was written as JSON, possibly by an earlier version.

    Lists become tuples, which JSON does not have, and fields that were added are filled in.
    """
    values = {name: _tuples(value) for name, value in values.items()}
    if "name" not in values["model"]:
        values["model"] = ADDED_FIELDS | values["model"]
    if "num_heads" in values["model"]:
        values["model"] = ADDED_STACK_FIELDS | values["model"]
    if "head" in values and "source" not in values["data"]:  # of a task on labelled examples
        values["head"] = ADDED_HEAD_FIELDS | values["head"]
        values["data"] = ADDED_LABELLED_FIELDS | values["data"]
        values.setdefault("published_score", 0.0)
        values.setdefault("published_in", "")
    values["optimizer"] = ADDED_OPTIMIZER_FIELDS | values["optimizer"]
    if "source" in values["data"]:
        evaluated = {"eval_masked_lm_prob": values["data"]["masked_lm_prob"]}
        values["data"] = ADDED_DATA_FIELDS | evaluated | values["data"]
    return ConfigDict(values)


def _check_types(config: ConfigDict) -> None:
    """Raises UserError for a field that is missing, or has a value of another type."""
    if "head" not in config:
        reference = defaults.pretraining()
    elif "source" in config.data:
        reference = defaults.bidirectional_lm()
    else:
        reference = defaults.finetuning("")
    found = dict(fields(config))
    for name, value in fields(reference):
        # Each encoder has fields of its own, besides these.
        is_optional = name.startswith("model.") and name not in _OF_ALL_MODELS
        is_optional &= name.removeprefix("model.") not in config.model  # a group without fields
        if name not in found and not is_optional:
            raise UserError(f"{name} is missing")
        if name in found and not _has_type_of(found[name], value):
            raise UserError(f"{name}={found[name]!r} is no {type(value).__name__}")


def _has_type_of(value: Any, reference: Any) -> bool:
    if isinstance(reference, tuple):
        is_text = bool(reference) and isinstance(reference[0], str)
        allowed = str if is_text else str | int | float | tuple
        return isinstance(value, tuple) and all(isinstance(item, allowed) for item in value)
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return False
    if isinstance(reference, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(reference)


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def differences(old: ConfigDict, new: ConfigDict) -> list[str]:
    """Returns a line `name: old -> new` for each difference that a resumed run must not have.

    Lengths that are left to the run are those that it has.
    """
    before, after = dict(fields(old)), dict(fields(new))
    if after.get(CHOSEN_LENGTHS) == ():
        after[CHOSEN_LENGTHS] = before.get(CHOSEN_LENGTHS)
    return [
        f"{name}: {before.get(name, 'missing')!r} -> {after.get(name, 'missing')!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and not is_free_to_change(name)
    ]


def is_free_to_change(name: str) -> bool:
    """Returns whether a field, by its dotted name, may differ when a run is resumed."""
    return name.startswith(_FREE_TO_CHANGE)
