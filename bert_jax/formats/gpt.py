"""GPT in Hugging Face transformers: a folder with model_type "openai-gpt".

Its vocabulary is that of the released program, vocab.json and merges.txt, or a vocab.txt. The three
special tokens of fine-tuning follow the released pieces; a folder that lacks them has no embeddings
of them.
"""

import os
from collections.abc import Mapping
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.formats.bert_config import STACK, number
from bert_jax.formats.foreign import Choices, ForeignCheckpoint, check_activation, sibling
from bert_jax.formats.hf_vocabulary import is_lowercase, wordpiece_vocabulary
from bert_jax.formats.weight_table import Arrays
from bert_jax.text.gpt_tokenizer import SPECIAL_TOKENS
from bert_jax.text.gpt_vocabulary import FILES, unpack
from bert_jax.text.tokenizers import Vocabulary, read_vocabulary

CONFIG = "config.json"
# Key of the file -> field of `config.model`, in the order in which transformers writes them.
_FIELDS = {
    "vocab_size": "vocab_size",
    "n_positions": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "resid_pdrop": "dropout_rate",
    "attn_pdrop": "attention_dropout_rate",
    "layer_norm_epsilon": "layer_norm_epsilon",
    "initializer_range": "initializer_range",
}
# Fields of `config.model` that are the same for every GPT of the two programs.
ARCHITECTURE = {
    "name": "gpt",
    "norm_place": "post",
    "positions": "learned",
    "attention_pattern": "causal",
    "attention_window": 0,
    "feed_forward": "plain",
    "lm_head": "tied",
    "activation": "gelu_tanh",
    **STACK,
}
# The inner layer has this many times the features of the outer one, in both programs.
_INNER = 4
# The defaults of transformers for missing keys.
_DEFAULTS = {
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
}
# Any other value makes it another model. In transformers' GPT, "gelu" is the form with tanh.
_REQUIRED = {"model_type": "openai-gpt", "afn": "gelu"}


def model_fields(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns fields of `config.model` for a configuration.

    Args:
      values: content of the file.
      path: of the file, for messages.

    Raises:
      UserError: a size is missing or not a number, or the model is not a GPT.
    """
    for key, required in _REQUIRED.items():
        if (value := values.get(key, required)) != required:
            raise UserError(f"{path} has {key}={value!r}: only {required!r} is supported.")
    values = {**_DEFAULTS, **values}
    if missing := [key for key in _FIELDS if key not in values]:
        raise UserError(f"{path} lacks {', '.join(missing)}.")
    rates = values["resid_pdrop"], values.get("embd_pdrop", values["resid_pdrop"])
    if rates[0] != rates[1]:
        raise UserError(
            f"{path} has resid_pdrop={rates[0]!r} and embd_pdrop={rates[1]!r}: only one rate for"
            " both is supported."
        )
    fields: dict[str, Any] = {**ARCHITECTURE, "pad_vocab_to_multiple_of": 1}
    for key, field in _FIELDS.items():
        fields[field] = number(values[key], field, f"{path} has {key}")
    return fields | {"intermediate_size": _INNER * fields["hidden_size"]}


def model_keys(model: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of the file for fields of `config.model`.

    Raises:
      UserError: transformers has no such GPT.
    """
    if (inner := model["intermediate_size"]) != (expected := _INNER * model["hidden_size"]):
        raise UserError(
            f"transformers' GPT has no config.model.intermediate_size={inner}, only {_INNER} *"
            f" hidden_size = {expected}: export the run with to_stablehlo, or train with that"
            " value."
        )
    keys = {key: model[field] for key, field in _FIELDS.items()}
    return {**keys, "embd_pdrop": model["dropout_rate"], **_REQUIRED}


def released_fields(vocab_size: int, positions: int, hidden: int, layers: int) -> dict[str, Any]:
    """Returns fields of `config.model` for the weights of the released program.

    The files have the sizes; the values that are not in them are those of its `train.py`, where a
    head has 64 features.

    Args:
      vocab_size: rows of the table of words.
      positions: rows of the table of positions.
      hidden: features.
      layers: of the encoder.
    """
    sizes = {"vocab_size": vocab_size, "n_positions": positions, "n_embd": hidden}
    sizes |= {"n_layer": layers, "n_head": max(1, hidden // 64)}
    return model_fields(sizes, "the program")


def open_gpt(
    path: str, values: dict[str, Any], arrays: Arrays, choices: Choices
) -> ForeignCheckpoint:
    """Describes a folder.

    Args:
      path: the folder, or a file in it.
      values: content of its config.json.
      arrays: its tensors.
      choices: settings that take precedence over its own.

    Raises:
      UserError: it is incomplete, or not a GPT that this package has.
    """
    check_activation(choices, path, "GPT", "gelu_tanh")
    model = model_fields(values, sibling(path, CONFIG))
    vocabulary = find_vocabulary(path, choices.vocab)
    lowercase = choices.lowercase
    if lowercase is None:
        is_gpt = vocabulary.kind == ".gpt"
        lowercase = True if is_gpt else is_lowercase(path, vocabulary)
    return describe(
        path=path,
        format="huggingface",
        model=model,
        vocabulary=vocabulary,
        lowercase=lowercase,
        arrays=arrays,
        notes=(f"Text is {'' if lowercase else 'not '}lower cased.",),
    )


def describe(
    *,
    path: str,
    format: str,
    model: dict[str, Any],
    vocabulary: Vocabulary,
    lowercase: bool,
    arrays: Arrays,
    notes: tuple[str, ...],
) -> ForeignCheckpoint:
    """Returns a GPT's checkpoint, whose table of words grows by special tokens that it lacks."""
    new = missing_words(vocabulary)
    if new:
        notes += (f"Embeddings of {', '.join(new)} are new: the checkpoint has none.",)
    return ForeignCheckpoint(
        path=path,
        format=format,
        task="causal_lm",
        model=model | {"vocab_size": model["vocab_size"] + len(new), "next_sentence": False},
        vocabulary=vocabulary,
        lowercase=lowercase,
        labels=(),
        shapes={name: array.shape for name, array in arrays.items()},
        read=lambda: arrays,
        notes=notes,
        new_words=new,
    )


def find_vocabulary(path: str, chosen: str) -> Vocabulary:
    """Returns the vocabulary `chosen`, or else that in the folder of a checkpoint.

    Raises:
      UserError: there is none.
    """
    if chosen or any(os.path.isfile(sibling(path, name)) for pair in FILES for name in pair):
        return read_vocabulary(chosen or os.path.dirname(sibling(path, CONFIG)))
    return wordpiece_vocabulary(path, "")


def missing_words(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Returns the special tokens that the tokenizer appends to the pieces of a vocabulary."""
    if vocabulary.kind != ".gpt":
        return ()
    pieces, _ = unpack(vocabulary.content, vocabulary.path)
    return tuple(token for token in SPECIAL_TOKENS if token not in pieces)
