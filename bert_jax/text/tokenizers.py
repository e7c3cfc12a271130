"""Loads the tokenizer of a vocabulary, of any kind, and names the copies of a vocabulary."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

from bert_jax.files.buckets import local
from bert_jax.files.errors import UserError
from bert_jax.text import gpt_vocabulary
from bert_jax.text.byte_level_tokenizer import ByteLevelTokenizer
from bert_jax.text.gpt_tokenizer import GptTokenizer
from bert_jax.text.ruled_wordpiece import RuledWordPieceTokenizer
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.word_tokenizer import WordTokenizer, is_word_vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer


def _sentencepiece(*arguments: Any) -> Tokenizer:
    # Importing the package takes as long as reading a vocabulary of lines.
    from bert_jax.text.sentencepiece_tokenizer import SentencePieceTokenizer

    return SentencePieceTokenizer(*arguments)


def _tokenizer_json(content: bytes, lowercase: bool, path: str) -> Tokenizer:
    is_wordpiece = re.search(rb'"type"\s*:\s*"WordPiece"', content)  # no piece is like that
    kind = RuledWordPieceTokenizer if is_wordpiece else ByteLevelTokenizer
    return kind(content, lowercase, path)


# Kinds by file extension; a copy of the file is called vocab with that extension, or
# tokenizer.json. Vocabularies of whole words end in .txt too.
KINDS: dict[str, Callable[[bytes, bool, str], Tokenizer]] = {
    ".txt": WordPieceTokenizer,
    ".model": _sentencepiece,
    ".gpt": GptTokenizer,
    ".json": _tokenizer_json,
}


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A vocabulary as one file.

    Attributes:
      path: path of the vocabulary, for errors.
      name: file name; the name of the copy, if it was read from GPT's two files.
      kind: a key of KINDS.
      content: the bytes of its copies.
    """

    path: str
    name: str
    kind: str
    content: bytes

    @property
    def copy_name(self) -> str:
        """The name of a copy: vocab.txt, vocab.model, vocab.gpt or tokenizer.json."""
        return _copy_name(self.kind)

    def tokenizer(self, lowercase: bool, grows: bool = False) -> Tokenizer:
        """Returns the tokenizer of the vocabulary; see `load_tokenizer`."""
        if self.kind == ".txt" and is_word_vocabulary(self.content):
            return WordTokenizer(self.content, lowercase, self.path, grows)
        return KINDS[self.kind](self.content, lowercase, self.path)


def read_vocabulary(path: str | os.PathLike, kind: str = "") -> Vocabulary:
    """Reads a vocabulary.

    Args:
      path: a vocabulary of WordPiece or of whole words (`*.txt`), a SentencePiece model
        (`*.model`), the tokenizer.json of a byte-level BPE or of WordPiece (`*.json`), a byte-pair
        vocabulary of GPT (`*.gpt`), or the folder with GPT's two released files, or one of them.
      kind: a key of KINDS, whatever the name; empty: by the name.

    Raises:
      UserError: it cannot be read, or is of none of these kinds.
    """
    path = local(os.fspath(path))
    if files := None if kind else gpt_vocabulary.find_files(path):
        pieces, merges = map(_read, files)
        return Vocabulary(path, "vocab.gpt", ".gpt", gpt_vocabulary.pack(pieces, merges, files[0]))
    kind = kind or os.path.splitext(path)[1]
    if kind not in KINDS:
        raise UserError(
            f"{path} is not a known kind of vocabulary: its name must end in .txt (WordPiece),"
            " .model (SentencePiece), .json (byte-level BPE) or .gpt (GPT), or be the folder of"
            " GPT's two files."
        )
    return Vocabulary(path, os.path.basename(path), kind, _read(path))


def load_tokenizer(path: str | os.PathLike, lowercase: bool, grows: bool = False) -> Tokenizer:
    """Loads the tokenizer of a vocabulary.

    Args:
      path: see `read_vocabulary`. A `*.txt` with the lines <S>, </S> and <UNK> has whole words.
      lowercase: whether text is lower cased.
      grows: whether a vocabulary of whole words gives new words ids of their own; see
        `WordTokenizer`. Other kinds have pieces for every word.

    Raises:
      UserError: the vocabulary cannot be read or is not of its kind, or a package that the
        tokenizer needs is not installed.
    """
    return read_vocabulary(path).tokenizer(lowercase, grows)


def find_vocabulary(folder: str | os.PathLike) -> str:
    """Returns the path of the vocabulary copy in a folder; empty if there is none."""
    paths = (pathlib.Path(folder, _copy_name(kind)) for kind in KINDS)
    return next((str(path) for path in paths if path.is_file()), "")


def _copy_name(kind: str) -> str:
    return "tokenizer.json" if kind == ".json" else f"vocab{kind}"


def _read(path: str) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"The vocabulary {path} cannot be read: {error.strerror}.") from None
