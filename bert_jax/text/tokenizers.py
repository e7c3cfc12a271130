"""Loads the tokenizer of a vocabulary file, of any kind."""

import os

from bert_jax.text.tokenization import Tokenizer, WordPieceTokenizer


def load_tokenizer(path: str | os.PathLike, lowercase: bool) -> Tokenizer:
    """Loads a WordPiece vocabulary (`*.txt`) or a SentencePiece model (`*.model`).

    Raises:
      ValueError: the file cannot be read, or is not a vocabulary of that kind.
    """
    path = os.fspath(path)
    suffix = os.path.splitext(path)[1]
    if suffix not in (".txt", ".model"):
        raise ValueError(
            f"{path} is not a known kind of vocabulary: its name must end in .txt (WordPiece) or"
            " .model (SentencePiece)."
        )
    try:
        with open(path, "rb") as file:
            vocabulary = file.read()
    except OSError as error:
        raise ValueError(f"The vocabulary {path} cannot be read: {error.strerror}.") from None
    if suffix == ".txt":
        return WordPieceTokenizer(vocabulary, lowercase, path)
    # Imported here, since most runs do not need the package sentencepiece.
    from bert_jax.text.sentencepiece_tokenizer import SentencePieceTokenizer

    return SentencePieceTokenizer(vocabulary, lowercase, path)
