"""Checkpoints of google-research/bert: bert_config.json, a TensorFlow checkpoint, vocab.txt."""

import os

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.formats import foreign
from bert_jax.formats.bert_config import model_fields
from bert_jax.formats.foreign import Choices, ForeignCheckpoint, sibling
from bert_jax.formats.tensorflow_bundle import Bundle, find_prefixes
from bert_jax.formats.weight_table import Arrays

CONFIG = "bert_config.json"


def open_checkpoint(path: str, choices: Choices) -> ForeignCheckpoint:
    """Reads everything but the tensors of a folder, or of a checkpoint (path without `.index`).

    Raises:
      UserError: it is incomplete or not a BERT.
    """
    config_path = sibling(path, CONFIG)
    bundle = _open_bundle(path)
    values = foreign.read_json_object(config_path)
    hidden_act = values.get("hidden_act", "gelu")
    if hidden_act != "gelu":
        raise UserError(f"{config_path} has hidden_act={hidden_act!r}: only 'gelu' is supported.")
    # The releases of 2018 and of 2019 have the same name for two functions.
    activation = choices.activation or "gelu_tanh"
    model = model_fields(values, activation, config_path)
    model["next_sentence"] = "bert/pooler/dense/kernel" in bundle.entries
    vocabulary = foreign.read_vocabulary(choices.vocab or sibling(path, "vocab.txt"))
    lowercase, reason = choices.lowercase, "as you say"
    if lowercase is None:
        lowercase = foreign.is_lowercase(vocabulary.content)
        reason = f"as the vocabulary has {'no ' if lowercase else ''}upper-case letters"
    return ForeignCheckpoint(
        path=path,
        format="google",
        task=_task(bundle),
        model=model,
        vocabulary=vocabulary,
        lowercase=lowercase,
        labels=(),
        shapes={name: entry.shape for name, entry in bundle.entries.items()},
        read=lambda: _read(bundle),
        # Stored in certificate.json.
        notes=(
            f"GELU: {activation}. {CONFIG} says 'gelu' in every release: the program of 2018"
            " computes the error function's (--activation=gelu), that since February 2019 the tanh"
            " form (--activation=gelu_tanh, the default).",
            f"Text is {'' if lowercase else 'not '}lower cased, {reason} (--lowercase,"
            " --nolowercase).",
        ),
    )


def list_tensors(path: str) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Returns the dtype and shape of each tensor of a folder, or of a checkpoint.

    Raises:
      UserError: there is no checkpoint, there are several, or it cannot be read.
    """
    entries = _open_bundle(path).entries
    return {name: (entry.dtype, entry.shape) for name, entry in entries.items()}


def matches(path: str) -> bool:
    """Returns whether a path looks like a checkpoint of this format."""
    return os.path.isfile(f"{path}.index") or os.path.isfile(os.path.join(path, CONFIG))


def _open_bundle(path: str) -> Bundle:
    return Bundle(_prefix(path))


def _prefix(path: str) -> str:
    """Returns the path of the checkpoint without `.index`."""
    if not os.path.isdir(path):
        return path.removesuffix(".index")
    prefixes = find_prefixes(path)
    usual = os.path.join(path, "bert_model.ckpt")
    if len(prefixes) < 2 or usual in prefixes:
        return usual if usual in prefixes or not prefixes else prefixes[0]
    raise UserError(
        f"{path} has several checkpoints: name one of {', '.join(prefixes)} instead of the folder."
    )


def _task(bundle: Bundle) -> str:
    """Returns the task of the checkpoint's head."""
    if "cls/squad/output_weights" in bundle.entries:
        return "span"
    return "classification" if "output_weights" in bundle.entries else "pretraining"


def _read(bundle: Bundle) -> Arrays:
    return {name: bundle.read(name) for name in bundle.entries}
