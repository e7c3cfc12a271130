"""A checkpoint of another program before its tensors are read, and its vocabulary."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.formats.weight_table import Arrays, Shapes
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import Vocabulary, make_tokenizer

# The largest number of rows of an embedding table that only pad it, for matrix units.
_MAX_PADDING = 128


@dataclasses.dataclass(frozen=True)
class Choices:
    """Settings that take precedence over a checkpoint's own.

    Attributes:
      activation: `gelu` or `gelu_tanh`; empty: the checkpoint's.
      vocab: path of a vocab.txt; empty: the checkpoint's.
      lowercase: None: the checkpoint's.
    """

    activation: str = ""
    vocab: str = ""
    lowercase: bool | None = None


@dataclasses.dataclass(frozen=True)
class ForeignCheckpoint:
    """A checkpoint of another program.

    Attributes:
      path: file or folder.
      format: name of its format, a key of `bert_jax.formats.FORMATS`.
      task: value for `config.task`.
      model: fields of `config.model`.
      vocabulary: the vocabulary as one file; its path is empty if it comes from a tokenizer.json.
      lowercase: whether text is lowercased.
      labels: names of the classes; empty if it has none.
      shapes: of its tensors, by name.
      read: reads the tensors.
      notes: decisions and their reasons, one line each.
      label_kind: value for `config.head.labels` of a text classifier.
      new_words: the last pieces of the vocabulary for which the checkpoint has no embeddings.
      settings: values of further fields of the configuration, by dotted names.
    """

    path: str
    format: str
    task: str
    model: dict[str, Any]
    vocabulary: Vocabulary
    lowercase: bool
    labels: tuple[str, ...]
    shapes: Shapes
    read: Callable[[], Arrays]
    notes: tuple[str, ...]
    label_kind: str = "single"
    new_words: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def tokenizer(self, grows: bool = False) -> Tokenizer:
        """Returns the tokenizer; `grows` as in `text.tokenizers.load_tokenizer`."""
        kind, content, path = self.vocabulary.kind, self.vocabulary.content, self.vocabulary.path
        return make_tokenizer(kind, content, self.lowercase, path, grows)


def check_activation(choices: Choices, path: str, model: str, activation: str) -> None:
    """Refuses another activation than the only one of a model.

    Raises:
      UserError: for another one.
    """
    if choices.activation not in ("", activation):
        raise UserError(
            f"{path} is a {model}, whose activation is {activation}: leave out"
            f" --activation={choices.activation}."
        )


def read_json_object(path: str) -> dict[str, Any]:
    """Returns the content of a JSON file of a checkpoint.

    Raises:
      UserError: the file is missing or not a JSON object.
    """
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except FileNotFoundError:
        raise UserError(f"{path} is missing: it has the sizes of the model.") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a JSON object.")
    return values


def read_vocabulary(path: str) -> Vocabulary:
    """Returns the vocabulary in a vocab.txt, whatever its name.

    Raises:
      UserError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return text_vocabulary(file.read(), path)
    except OSError as error:
        raise UserError(
            f"The vocabulary {path} cannot be read: {error.strerror}; name one with --vocab=PATH."
        ) from None


def text_vocabulary(content: bytes, path: str = "") -> Vocabulary:
    """Returns a vocabulary of one piece a line; `path` is empty if it is no file."""
    return Vocabulary(path, "vocab.txt", ".txt", content)


def is_lowercase(vocabulary: bytes) -> bool:
    """Returns whether no word has an upper-case letter; `<S>` and `[CLS]` are not words."""
    pieces = vocabulary.decode("utf-8", "replace").split()
    words = (piece for piece in pieces if piece.removeprefix("##").isalpha())
    return all(word == word.lower() for word in words)


def check_vocabulary_size(pieces: int, rows: int, path: str) -> tuple[str, ...]:
    """Compares the size of a vocabulary with the rows of the embedding table; returns notes.

    Raises:
      UserError: the sizes differ by more than padding.
    """
    if pieces == rows:
        return ()
    if pieces < rows < pieces + _MAX_PADDING and rows % 8 == 0:
        return (f"The last {rows - pieces} of the {rows:,} rows of the embedding table pad it.",)
    raise UserError(
        f"{path} has {pieces:,} pieces and the model {rows:,} (vocab_size): it is not the"
        " vocabulary of this model; name that with --vocab=PATH."
    )


def sibling(path: str, name: str) -> str:
    """Returns the path of a file in the folder `path`, or in the folder of the file `path`."""
    return os.path.join(path if os.path.isdir(path) else os.path.dirname(path) or ".", name)
