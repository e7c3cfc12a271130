"""Parameters to begin with: of another program, or of another run, and new ones for the rest."""

import dataclasses
import importlib
import os
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax.config import settings as config_lib
from bert_jax.devices.trees import diff_of_trees
from bert_jax.examples.tags import is_typed_tag
from bert_jax.formats import source as sources
from bert_jax.formats.foreign import Source
from bert_jax.formats.tables import Arrays, Report, flatten, import_params, unflatten
from bert_jax.inference.model import random_params
from bert_jax.models.config import BertConfig
from bert_jax.tasks import Pretraining
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.experiment import make_model_config
from bert_jax.training.state import init_params, make_key

# The parameter of each task's head whose length is the number of classes.
_CLASSES = {
    "classification": "classifier/bias",
    "tagging": "classifier/bias",
    "multiple_choice": "classifier/bias",
    "span": "span/bias",
}

# What must fit as it is.
_PRETRAINED = {"bert", "bert/pooler", "masked_lm", "next_sentence"}
# Parameters that have a row for each word.
_BY_WORD = {"bert/embeddings/word_embeddings/embedding", "masked_lm/bias"}


@dataclasses.dataclass(frozen=True)
class Imported:
    """A checkpoint of another program as ours.

    Attributes:
      source: what it was.
      config: configs/base.py with what the source decides.
      params: all parameters by path, float32.
      report: what became of the source's tensors, and which parameters are new.
    """

    source: Source
    config: ConfigDict
    params: Arrays
    report: Report

    @property
    def own_params(self) -> Arrays:
        """Without the new ones."""
        return {n: array for n, array in self.params.items() if n not in self.report.fresh}


def import_source(source: Source, workdir: str = "") -> Imported:
    """Reads the source's parameters, and makes new ones for heads that it does not have.

    Args:
      source: what to import.
      workdir: that the configuration is for.

    Raises:
      ValueError: its tensors are not those of its configuration, or have values that are not
        finite.
    """
    config = _make_config(source, workdir)
    model = make_model_config(config)
    params, report = import_params(
        source.read(),
        source.form,
        model.num_layers,
        _expected_shapes(source, model),
        source.path,
    )
    _check_finite(source, params, report)
    if report.fresh:
        new = jax.jit(lambda key: init_params(_pretraining(model), key))(make_key(0, "init"))
        params |= {name: np.asarray(flatten(new)[name]) for name in report.fresh}
    return Imported(source, config, params, report)


def _check_finite(source: Source, params: Arrays, report: Report) -> None:
    for theirs, ours in report.used.items():
        if wrong := params[ours].size - np.count_nonzero(np.isfinite(params[ours])):
            raise ValueError(
                f"{source.path}: {theirs} has {wrong:,} NaN or infinite values (as float32) of"
                f" {params[ours].size:,}: it is damaged, or of a training that diverged; get"
                " another one."
            )


def _make_config(source: Source, workdir: str) -> ConfigDict:
    sys.path.append(str(pathlib.Path(__file__).parents[2]))
    name = "base" if source.task == "pretraining" else source.task
    make_config = importlib.import_module(f"configs.{name}").get_config
    if source.task == "tagging" and not all(map(is_typed_tag, source.labels)):
        config = make_config("words")
    else:
        config = make_config()
    if source.task == "classification":
        config.head.labels = source.label_kind
        if source.label_kind == "regression":
            config.metrics = ("spearman", "pearson")
            config.checkpoint.best_metric = "spearman"
    config.model.update(source.model)
    config.data.vocab = os.path.join(workdir, "vocab.txt")
    config.data.lowercase = source.lowercase
    if source.task == "pretraining" and not source.model["next_sentence"]:
        config.data.segments = "full_sentences"
    if (longest := source.model["max_position_embeddings"]) < max(n for n, _ in config.phases):
        config.phases = ((longest, 1.0),)
    return config


def _pretraining(model: BertConfig) -> Pretraining:
    return Pretraining(model, None, sequence_length=8, max_predictions_per_seq=1)


def _abstract_pretraining(model: BertConfig) -> dict[str, jax.ShapeDtypeStruct]:
    """All parameters of pre-training by path, without their values."""
    key = jax.random.key(0)
    return flatten(jax.eval_shape(lambda key: init_params(_pretraining(model), key), key))


def _expected_shapes(source: Source, model: BertConfig) -> dict[str, tuple[int, ...]]:
    """Of all parameters of the source's task."""
    shapes = {name: leaf.shape for name, leaf in _abstract_pretraining(model).items()}
    if source.task == "pretraining":
        return shapes
    bias = _CLASSES[source.task]
    theirs = {row.ours: row.theirs for row in source.form.rows}[bias]
    names = {source.form.todays_name(name): shape for name, shape in source.shapes.items()}
    (classes,) = names.get(theirs) or (2,)
    return {name: shape for name, shape in shapes.items() if name.startswith("bert/")} | {
        bias: (classes,),
        bias.replace("/bias", "/kernel"): (model.hidden_size, classes),
    }


def initial_params(
    init_from: str,
    like: Any,
    make_new: Callable[[], Any],
    vocab_size: int,
    anew: str = "",
) -> tuple[Any, tuple[str, ...]]:
    """Parameters for a new run from a workdir, or from the folder of another program.

    Args:
      init_from: the folder.
      like: abstract parameters of the run (shapes, dtypes, shardings).
      make_new: makes random ones of the same form, for heads that the source does not have.
      vocab_size: rows beyond it only pad a table: they are added as zeros.
      anew: regular expression of the paths of others that are made anew; empty: none.

    Returns:
      The parameters in the shardings of `like`, and lines that say where they come from.

    Raises:
      ValueError: there are none, or they do not fit.
    """
    found, what = _read(init_from)
    wanted = flatten(like)
    _pad(found, wanted, vocab_size)
    new = _names_of_new(found, wanted, init_from)
    new |= {name for name in wanted if anew and re.search(anew, name)}
    left_out = sorted({_part(name) for name in found.keys() - wanted.keys()})
    params = {name: _put(found[name], leaf) for name, leaf in wanted.items() if name not in new}
    if new:
        random = flatten(make_new())
        params |= {name: random[name] for name in new}
    lines = [f"from the parameters of {what}"]
    lines += [f"with new, random ones for {', '.join(sorted(set(map(_unit, new))))}"] if new else []
    lines += [f"without {', '.join(left_out)}"] if left_out else []
    return unflatten({name: params[name] for name in wanted}), tuple(lines)


def check_source(config: ConfigDict) -> None:
    """Reads the source of config.init_from and compares its encoder with the configuration, so that
    one that cannot be used is refused before data are prepared for it.

    Raises:
      ValueError: as `initial_params`.
    """
    found, _ = _read(config.init_from)
    wanted = _abstract_pretraining(make_model_config(config))
    found = {name: array for name, array in found.items() if _part(name) == "bert"}
    wanted = {name: leaf for name, leaf in wanted.items() if _part(name) == "bert"}
    _pad(found, wanted, config.model.vocab_size)
    _names_of_new(found, wanted, config.init_from)


def _read(init_from: str) -> tuple[Arrays, str]:
    """The parameters of a workdir or of another program's folder by path, and what they are of."""
    if sources.kind_of(init_from) != "workdir":
        imported = import_source(sources.open_source(init_from))
        return imported.own_params, f"{init_from} ({imported.source.form.name})"
    run = config_lib.load(init_from).checkpoint
    with open_chosen(init_from, run) as (checkpoints, step):
        found = flatten(checkpoints.read_params(step))
    for name in random_params(init_from):
        del found[name]
    return found, f"{init_from}, step {step}"


def _pad(found: Arrays, wanted: dict[str, Any], vocab_size: int) -> None:
    """Adds zeros to tables that have a row for each word and are to have more."""
    for name in _BY_WORD & found.keys() & wanted.keys():
        if len(found[name]) == vocab_size:
            padding = wanted[name].shape[0] - vocab_size
            found[name] = np.pad(found[name], [(0, padding)] + [(0, 0)] * (found[name].ndim - 1))


def _put(array: np.ndarray, like: Any) -> jax.Array:
    return jax.make_array_from_callback(like.shape, like.sharding, lambda index: array[index])


def _names_of_new(found: Arrays, wanted: dict[str, Any], path: str) -> frozenset[str]:
    """Parameters that are to be made anew: whole heads of which the source has nothing.

    Raises:
      ValueError: other parameters are missing, left over or of another shape.
    """
    have = {name: f"{list(array.shape)}" for name, array in found.items()}
    want = {name: f"{list(leaf.shape)}" for name, leaf in wanted.items()}
    there, asked = set(map(_part, have)), set(map(_part, want))
    # The head of another task, or of other classes, says nothing about these.
    there -= {_part(n) for n in have.keys() & want.keys() if have[n] != want[n]} - _PRETRAINED
    new = {name for name in want if _part(name) not in there and _part(name) != "bert"}
    extra = {name for name in have if _part(name) not in asked and _part(name) != "bert"}
    extra |= {name for name in have if _part(name) not in there}
    for name in new | extra:
        have.pop(name, None)
        want.pop(name, None)
    if lines := diff_of_trees(have, want):
        more = f"; and {len(lines) - 12} more" if len(lines) > 12 else ""
        raise ValueError(
            f"The parameters of config.init_from={path} do not fit the configuration (- there,"
            f" + by the configuration): {'; '.join(lines[:12])}{more}."
        )
    return frozenset(new)


def _part(name: str) -> str:
    """What stands or falls as a whole: "bert", "bert/pooler", or a head."""
    return "bert/pooler" if name.startswith("bert/pooler/") else name.split("/")[0]


def _unit(name: str) -> str:
    """What a list of new parameters names: a head, the pooler, a layer."""
    found = re.match(r"bert/encoder/layer_\d+", name)
    return found[0] if found else _part(name)
