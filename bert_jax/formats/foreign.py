"""A checkpoint of another program, before its tensors are read; and what its formats share."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.formats.tables import Arrays, Format, Shapes
from bert_jax.text.tokenization import WordPieceTokenizer

# The names that both formats have for what we call otherwise.
_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_epsilon",
}
# What both programs take when the configuration does not say it.
_DEFAULTS = {
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# Values under which the model is another one than BERT.
_ONLY = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "directionality": "bidi",
}
# Embedding tables are rounded up to a multiple of 8 for matrix units, at most to one of 128.
_PADDING = 128


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the user decides where a source does not say it, or says it wrongly.

    Attributes:
      activation: `gelu` or `gelu_tanh`; empty: by the source.
      vocab: path of a vocab.txt; empty: by the source.
      lowercase: None: by the source.
    """

    activation: str = ""
    vocab: str = ""
    lowercase: bool | None = None


@dataclasses.dataclass(frozen=True)
class Source:
    """A BERT of another program.

    Attributes:
      path: file or folder.
      form: its tables.
      task: of `config.task`.
      model: fields of `config.model`.
      vocabulary: the bytes of a vocab.txt.
      vocabulary_path: the file that they are in; empty if they were taken out of another one.
      lowercase: whether text is lower cased.
      labels: names of the classes, where it has any.
      shapes: of its tensors.
      read: reads the tensors.
      notes: what was decided and why, a line each.
    """

    path: str
    form: Format
    task: str
    model: dict[str, Any]
    vocabulary: bytes
    vocabulary_path: str
    lowercase: bool
    labels: tuple[str, ...]
    shapes: Shapes
    read: Callable[[], Arrays]
    notes: tuple[str, ...]
    # Of config.head.labels, where it classifies texts.
    label_kind: str = "single"

    def tokenizer(self) -> WordPieceTokenizer:
        return WordPieceTokenizer(self.vocabulary, self.lowercase, self.vocabulary_path)


def read_config(path: str) -> dict[str, Any]:
    """The JSON of a configuration.

    Raises:
      ValueError: the file is missing, or no JSON object.
    """
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: it says how large the model is.") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is no JSON object.")
    return values


def model_fields(values: Mapping[str, Any], activation: str, path: str) -> dict[str, Any]:
    """Fields of `config.model` from the JSON of either format.

    Raises:
      ValueError: a size is missing, or the model is no BERT.
    """
    for name, only in _ONLY.items():
        if (got := values.get(name, only)) != only:
            raise ValueError(f"{path} says {name}={got!r}: only {only!r} is BERT as it is here.")
    values = {**_DEFAULTS, **values}
    if missing := [name for name in _FIELDS if name not in values]:
        raise ValueError(f"{path} lacks {', '.join(missing)}.")
    fields = {ours: values[theirs] for theirs, ours in _FIELDS.items()}
    for (theirs, ours), value in zip(_FIELDS.items(), fields.values(), strict=True):
        is_share = ours.endswith(("rate", "range", "epsilon"))
        if isinstance(value, bool) or not isinstance(value, int | float if is_share else int):
            raise ValueError(f"{path} says {theirs}={value!r}, which is no number of that kind.")
        fields[ours] = float(value) if is_share else value
    return fields | {"activation": activation, "pad_vocab_to_multiple_of": 1}


def read_vocabulary(path: str) -> bytes:
    """The bytes of a vocab.txt.

    Raises:
      ValueError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ValueError(
            f"The vocabulary {path} cannot be read: {error.strerror}; name one with --vocab=PATH."
        ) from None


def is_lowercase(vocabulary: bytes) -> bool:
    """Whether no word of a vocabulary has an upper-case letter; `<S>` and `[CLS]` are no words."""
    pieces = vocabulary.decode("utf-8", "replace").split()
    words = (piece for piece in pieces if piece.removeprefix("##").isalpha())
    return all(word == word.lower() for word in words)


def check_vocabulary(pieces: int, rows: int, path: str) -> tuple[str, ...]:
    """Compares a vocabulary with the rows of the embedding table; returns notes.

    Raises:
      ValueError: it is not the vocabulary of this model.
    """
    if pieces == rows:
        return ()
    if pieces < rows < pieces + _PADDING and rows % 8 == 0:
        return (f"The last {rows - pieces} of the {rows:,} rows of the embedding table pad it.",)
    raise ValueError(
        f"{path} has {pieces:,} pieces and the model {rows:,} (vocab_size): it is not this model's"
        " vocabulary; give the right one with --vocab=PATH."
    )


def beside(path: str, name: str) -> str:
    """The path of a file in a folder, or in the folder of a file."""
    return os.path.join(path if os.path.isdir(path) else os.path.dirname(path) or ".", name)
