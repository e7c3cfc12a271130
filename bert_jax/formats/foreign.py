"""A checkpoint of another program, and how its configuration and vocabulary are read."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import Vocabulary

# Rows that an embedding table has only as padding, for matrix units: the number of rows is a
# multiple of the first, and fewer than the second are added.
_PADDING = ((8, 128), (64, 1024))


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

    def check_activation(self, path: str, model: str, only: str) -> None:
        """Raises UserError if an activation is chosen that is not the only one of a model."""
        if self.activation not in ("", only):
            raise UserError(
                f"{path} is a {model}, whose activation is {only}: leave out"
                f" --activation={self.activation}."
            )


@dataclasses.dataclass(frozen=True)
class ForeignCheckpoint:
    """A checkpoint of another program.

    Attributes:
      path: file or folder.
      format: a key of `bert_jax.formats.FORMATS`.
      task: value for `config.task.name`.
      model: fields of `config.model`.
      vocabulary: the vocabulary as one file; its path is empty if it comes from a tokenizer.json.
      lowercase: whether text is lowercased.
      tensors: name -> array, mapped into memory or read on access.
      notes: decisions and their reasons, one line each; stored in certificate.json.
      labels: class names; empty if there are none.
      label_kind: value for `config.task.problem_type` of a text classifier.
      new_words: the last pieces of the vocabulary, for which the checkpoint has no embeddings.
      settings: values of further fields of the configuration, by dotted names.
    """

    path: str
    format: str
    task: str
    model: dict[str, Any]
    vocabulary: Vocabulary
    lowercase: bool
    tensors: Mapping[str, np.ndarray]
    notes: tuple[str, ...]
    labels: tuple[str, ...] = ()
    label_kind: str = "single"
    new_words: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def tokenizer(self, grows: bool = False) -> Tokenizer:
        """Returns the tokenizer; `grows` as in `text.tokenizers.load_tokenizer`."""
        return self.vocabulary.tokenizer(self.lowercase, grows)


def sibling(path: str, name: str) -> str:
    """Returns the path of a file in the folder `path`, or in the folder of the file `path`."""
    return os.path.join(path if os.path.isdir(path) else os.path.dirname(path) or ".", name)


def read_json_object(path: str) -> dict[str, Any]:
    """Returns the object in a JSON file of a checkpoint; raises UserError if it has none."""
    try:
        values = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing: it has the sizes of the model.") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a JSON object.")
    return values


# ------------------------------------------------------------------ vocabularies


def text_vocabulary(content: bytes, path: str = "") -> Vocabulary:
    """Returns a vocabulary with one piece per line; an empty path means that it is not a file."""
    return Vocabulary(path, "vocab.txt", ".txt", content)


def is_lowercase(vocabulary: bytes) -> bool:
    """Returns whether no word has an upper-case letter; `<S>` and `[CLS]` are not words."""
    pieces = vocabulary.decode("utf-8", "replace").split()
    words = (piece for piece in pieces if piece.removeprefix("##").isalpha())
    return all(word == word.lower() for word in words)


def is_padded(rows: int, padded: int) -> bool:
    """Returns whether a table of `rows` may have been padded to `padded` rows."""
    return rows < padded and any(
        padded % size == 0 and padded - rows < limit for size, limit in _PADDING
    )


def check_vocabulary_size(pieces: int, rows: int, path: str) -> tuple[str, ...]:
    """Raises UserError if the sizes differ by more than the table's padding; returns notes."""
    if pieces == rows:
        return ()
    if is_padded(pieces, rows):
        return (f"The last {rows - pieces} of the {rows:,} rows of the embedding table pad it.",)
    raise UserError(
        f"{path} has {pieces:,} pieces and the model {rows:,} (vocab_size): it is not the"
        " vocabulary of this model; name that with --vocab=PATH."
    )
