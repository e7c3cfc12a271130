"""Checkpoints of google-research/bert: bert_config.json, a TensorFlow checkpoint, vocab.txt."""

import os

from bert_jax.formats import foreign
from bert_jax.formats.foreign import Choices, Source, beside
from bert_jax.formats.tables import FORMATS, Arrays
from bert_jax.formats.tensorflow_bundle import Bundle, find_prefixes

CONFIG = "bert_config.json"


def describe(path: str, choices: Choices) -> Source:
    """Looks at a folder, or at a checkpoint (its name without `.index`) in one.

    Raises:
      ValueError: it is not complete, or no BERT.
    """
    config_path = beside(path, CONFIG)
    bundle = open_bundle(path)
    values = foreign.read_config(config_path)
    said = values.get("hidden_act", "gelu")
    if said != "gelu":
        raise ValueError(f"{config_path} says hidden_act={said!r}: only 'gelu' is BERT's.")
    # The releases of 2018 and of 2019 have the same name for two functions.
    activation = choices.activation or "gelu_tanh"
    model = foreign.model_fields(values, activation, config_path)
    model["next_sentence"] = "bert/pooler/dense/kernel" in bundle.entries
    vocabulary_path = choices.vocab or beside(path, "vocab.txt")
    vocabulary = foreign.read_vocabulary(vocabulary_path)
    lowercase, reason = choices.lowercase, "as you say"
    if lowercase is None:
        lowercase = foreign.is_lowercase(vocabulary)
        reason = f"as the vocabulary has {'no ' if lowercase else ''}upper-case letters"
    return Source(
        path=path,
        form=FORMATS["google"],
        task=_task(bundle),
        model=model,
        vocabulary=vocabulary,
        vocabulary_path=vocabulary_path,
        lowercase=lowercase,
        labels=(),
        shapes={name: entry.shape for name, entry in bundle.entries.items()},
        read=lambda: _read(bundle),
        notes=(
            f"GELU: {activation}. {CONFIG} says 'gelu' in every release: the program of 2018"
            " computes the error function's (--activation=gelu), that since February 2019 the tanh"
            " form (--activation=gelu_tanh, the default).",
            f"Text is {'' if lowercase else 'not '}lower cased, {reason} (--lowercase,"
            " --nolowercase).",
        ),
    )


def open_bundle(path: str) -> Bundle:
    """The checkpoint of a folder, or of that name.

    Raises:
      ValueError: there is none, or several, or it cannot be read.
    """
    return Bundle(_prefix(path))


def is_one(path: str) -> bool:
    """Whether a path looks like a checkpoint of this form."""
    return os.path.isfile(f"{path}.index") or os.path.isfile(os.path.join(path, CONFIG))


def _prefix(path: str) -> str:
    if not os.path.isdir(path):
        return path.removesuffix(".index")
    found = find_prefixes(path)
    usual = os.path.join(path, "bert_model.ckpt")
    if len(found) < 2 or usual in found:
        return usual if usual in found or not found else found[0]
    raise ValueError(
        f"{path} holds several checkpoints: name one of {', '.join(found)} instead of the folder."
    )


def _task(bundle: Bundle) -> str:
    if "cls/squad/output_weights" in bundle.entries:
        return "span"
    return "classification" if "output_weights" in bundle.entries else "pretraining"


def _read(bundle: Bundle) -> Arrays:
    return {name: bundle.read(name) for name in bundle.entries}
