"""Checkpoints of google-research/bert: bert_config.json, a TensorFlow checkpoint, vocab.txt."""

import os
from collections.abc import Mapping

from bert_jax.files.errors import UserError
from bert_jax.formats import foreign
from bert_jax.formats.foreign import Choices, ForeignCheckpoint, sibling
from bert_jax.formats.hf_labels import read_labels, read_problem_type
from bert_jax.formats.model_configs import BERT
from bert_jax.formats.tensorflow_bundle import Bundle, Entry, find_prefixes
from bert_jax.text.tokenizers import read_vocabulary

TITLE = "google-research/bert"
CONFIG = "bert_config.json"


def open_checkpoint(path: str, choices: Choices) -> ForeignCheckpoint:
    """Opens a folder, or a checkpoint (path without `.index`)."""
    config_path = sibling(path, CONFIG)
    bundle = Bundle(_prefix(path))
    values = foreign.read_json_object(config_path)
    hidden_act = values.get("hidden_act", "gelu")
    if hidden_act != "gelu":
        raise UserError(f"{config_path} has hidden_act={hidden_act!r}: only 'gelu' is supported.")
    # The releases of 2018 and 2019 use the same name for two different functions.
    activation = choices.activation or "gelu_tanh"
    model = BERT.read({**values, "hidden_act": activation}, config_path)
    model["next_sentence"] = "bert/pooler/dense/kernel" in bundle
    if not (name := choices.vocab) and not os.path.isfile(name := sibling(path, "vocab.txt")):
        raise UserError(f"{name} is missing: name a vocabulary with --vocab=PATH.")
    vocabulary = read_vocabulary(name, ".txt")
    lowercase, reason = choices.lowercase, "as you say"
    if lowercase is None:
        lowercase = foreign.is_lowercase(vocabulary.content)
        reason = f"as the vocabulary has {'no ' if lowercase else ''}upper-case letters"
    task = "pretraining"
    if "cls/squad/output_weights" in bundle:
        task = "span"
    elif "output_weights" in bundle:
        task = "classification"
    labels, kind = (), "single"
    if task == "classification":
        (rows, _) = bundle.entries["output_weights"].shape
        kind, _ = read_problem_type({}, config_path, rows)
        labels = () if kind == "regression" else read_labels({}, config_path, rows)
    return ForeignCheckpoint(
        path=path,
        format="google",
        task=task,
        model=model,
        vocabulary=vocabulary,
        lowercase=lowercase,
        tensors=bundle,
        labels=labels,
        label_kind=kind,
        notes=(
            f"GELU: {activation}. {CONFIG} says 'gelu' in every release: the program of 2018"
            " computes the error function's (--activation=gelu), that since February 2019 the tanh"
            " form (--activation=gelu_tanh, the default).",
            f"Text is {'' if lowercase else 'not '}lower cased, {reason} (--lowercase,"
            " --nolowercase).",
        ),
    )


def tensors(path: str) -> Mapping[str, Entry]:
    """Returns the dtype and shape of each tensor of a folder, or of a checkpoint."""
    return Bundle(_prefix(path)).entries


def matches(path: str) -> bool:
    return os.path.isfile(f"{path}.index") or os.path.isfile(os.path.join(path, CONFIG))


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
