"""The corpus as token ids on disk, with access to any sentence in little memory.

Each chunk of the source is tokenized separately, in any process, into a folder of flat files
(`tokenize_chunk`); `join_chunks` joins these in the order of the corpus:

    tokens       uint16 or uint32[tokens]: all sentences of all documents, one after the other
    sentences    uint64[sentences + 1]: the position in `tokens` where each sentence starts
    documents    DOCUMENT[documents]

`split_documents` then assigns the documents to the splits. Files are read by `os.pread` and not
mapped, so a process holds only the sentences that it works on.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import os
import shutil
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.files.atomic import read_json, whole_file, whole_folder, write_json
from bert_jax.files.errors import UserError
from bert_jax.text.sources import Source
from bert_jax.text.tokenization import Tokenizer

# `words` are runs of characters between white space; `hash` is the hash of the text.
DOCUMENT = np.dtype(
    [("first_sentence", "<u8"), ("num_sentences", "<u8"), ("num_tokens", "<u8")]
    + [("words", "<u8"), ("characters", "<u8"), ("hash", "<u8")]
)
SPLITS = ("train", "validation")

COUNTS = (
    *("bytes", "documents", "sentences", "tokens", "unknown_tokens"),
    *("empty_documents", "empty_sentences"),
)

# Documents of about 20 MB of text are one unit of parallel work.
UNIT_TOKENS = 1 << 22


def id_dtype(vocab_size: int) -> np.dtype:
    """Returns the smallest type that holds every id of the vocabulary."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def tokenize_chunk(
    source: Source, chunk: Any, tokenizer: Tokenizer, key: bytes, folder: str
) -> dict[str, Any]:
    """Writes the token ids of one chunk of the corpus to `folder`.

    Args:
      source: reads `chunk`, as documents of sentences.
      tokenizer: encodes sentences.
      key: key for the hash of a document's text, by which documents are held out.
      folder: the folder to write, complete or not at all.

    Returns:
      Counts: `bytes` (of UTF-8), `documents`, `sentences`, `tokens`, `unknown_tokens`; as in the
      released program, sentences and documents without a token are left out (`empty_sentences`,
      `empty_documents`); `text` has the counts of the reader.
    """
    counts, text_counts = Counter(), Counter()
    typecode = id_dtype(len(tokenizer.pieces)).char
    with whole_folder(folder) as part, contextlib.ExitStack() as stack:

        def create(name: str):
            return stack.enter_context(open(os.path.join(part, name), "wb"))

        tokens, lengths, hashes = create("tokens"), create("lengths"), create("hashes")
        documents = create("documents")
        for document in source.read(chunk, text_counts):
            first_sentence, first_token = counts["sentences"], counts["tokens"]
            text_hash = hashlib.blake2b(digest_size=8, key=key)
            num_words = num_characters = 0
            for sentence in document:
                text = sentence.encode("utf-8", "surrogatepass") + b"\n"
                text_hash.update(text)
                counts["bytes"] += len(text)
                ids = tokenizer.encode(sentence)
                if not ids:
                    counts["empty_sentences"] += 1
                    continue
                tokens.write(array(typecode, ids))
                lengths.write(array("I", [len(ids)]))
                hashes.write(hashlib.blake2b(text, digest_size=8).digest())
                counts["sentences"] += 1
                num_words += len(sentence.split())
                num_characters += len(sentence)
                counts["tokens"] += len(ids)
                counts["unknown_tokens"] += ids.count(tokenizer.unk_id)
            if counts["sentences"] == first_sentence:
                counts["empty_documents"] += 1
                continue
            num_sentences = counts["sentences"] - first_sentence
            num_tokens = counts["tokens"] - first_token
            sizes = first_sentence, num_sentences, num_tokens, num_words, num_characters
            documents.write(array("Q", sizes))
            documents.write(text_hash.digest())
            counts["documents"] += 1
        stack.close()
        result = {name: counts[name] for name in COUNTS} | {"text": dict(text_counts)}
        write_json(os.path.join(part, "counts.json"), result)
    return result


def join_chunks(chunks: Sequence[str], folder: str) -> None:
    """Joins the folders that `tokenize_chunk` wrote into one, and removes them."""

    def files(name: str) -> list[str]:
        return [os.path.join(chunk, name) for chunk in chunks]

    counts, text_counts = Counter(dict.fromkeys(COUNTS, 0)), Counter()
    for chunk_counts in map(read_json, files("counts.json")):
        text_counts.update(chunk_counts.pop("text"))
        counts.update(chunk_counts)
    with whole_folder(folder) as part:
        with open(os.path.join(part, "tokens"), "wb") as tokens:
            for path in files("tokens"):
                with open(path, "rb") as file:
                    shutil.copyfileobj(file, tokens, 1 << 20)
        with open(os.path.join(part, "sentences"), "wb") as sentences:
            start = 0
            for lengths in read_pieces(files("lengths"), "<u4"):
                ends = start + np.cumsum(lengths, dtype=np.uint64)
                sentences.write(np.append(np.uint64(start), ends[:-1]).astype("<u8").tobytes())
                start = int(ends[-1])
            sentences.write(np.array([start], "<u8").tobytes())
        with open(os.path.join(part, "documents"), "wb") as documents:
            first_sentence = 0
            for records in read_pieces(files("documents"), DOCUMENT):
                ends = first_sentence + np.cumsum(records["num_sentences"])
                records["first_sentence"] = ends - records["num_sentences"]
                documents.write(records.tobytes())
                first_sentence = int(ends[-1])
        counts["duplicate_sentences"] = counts["sentences"] - count_distinct(files("hashes"))
        text_counts = {name: count for name, count in text_counts.items() if count}
        write_json(os.path.join(part, "counts.json"), {**counts, "text": text_counts})
    for chunk in chunks:
        shutil.rmtree(chunk)


def count_distinct(paths: Sequence[str], in_memory: int = 1 << 21) -> int:
    """Returns the number of distinct values in files of uint64[...], in bounded memory."""
    num_parts = 1 + sum(os.path.getsize(path) for path in paths) // (8 * in_memory)
    distinct = 0
    for part in range(num_parts):
        pieces = (piece[piece % num_parts == part] for piece in read_pieces(paths, "<u8"))
        distinct += np.unique(np.concatenate([np.empty(0, "<u8"), *pieces])).size
    return distinct


def read_pieces(paths: Iterable[str], dtype: Any, count: int = 1 << 18) -> Iterator[np.ndarray]:
    """Yields the contents of flat files in pieces of at most `count` items."""
    for path in paths:
        with open(path, "rb") as file:
            while (piece := np.fromfile(file, dtype, count)).size:
                yield piece


def write_in_order(path: str, items: np.ndarray, order: Sequence[int] | np.ndarray) -> None:
    """Writes the items with these numbers to a flat file, in pieces to bound memory."""
    step = 1 << 16
    with open(path, "wb") as file:
        for start in range(0, len(order), step):
            file.write(items[order[start : start + step]].tobytes())


@dataclasses.dataclass(frozen=True)
class Split:
    """The documents of one split, and the units of work on them."""

    num_documents: int
    num_tokens: int
    units: list[tuple[int, int]]  # the first document of each, and the one after its last


def split_documents(folder: str, share: float) -> tuple[dict[str, Split], int]:
    """Assigns the documents to the splits: files `train` and `validation` in `folder`.

    The max(2, round(share * documents)) documents with the smallest hashes are held out, and with
    them any document with the same text, so that no document is in both splits. The order of the
    corpus is kept. Memory: about 16 bytes a document.

    Returns:
      The splits that have documents, and how many documents repeat the text of another.

    Raises:
      UserError: a split would have fewer than two distinct documents.
    """
    corpus = os.path.join(folder, "documents")
    pieces = [piece["hash"].copy() for piece in read_pieces([corpus], DOCUMENT)]
    hashes = np.concatenate([np.empty(0, "<u8"), *pieces])
    num_held_out = max(2, round(share * hashes.size)) if share else 0
    # Without a validation split no hash is below the limit.
    limit = np.uint64(0)
    if 0 < num_held_out < hashes.size:
        limit = np.partition(hashes, num_held_out - 1)[num_held_out - 1] + np.uint64(1)
    distinct = np.unique(hashes)
    num_distinct = {
        "train": int(np.sum(distinct >= limit)),
        "validation": int(np.sum(distinct < limit)),
    }
    if num_distinct["train"] < 2 or (share and num_distinct["validation"] < 2):
        needs = "four documents (two to train on, two held out)" if share else "two documents"
        raise UserError(
            f"The corpus needs at least {needs} of different text and has {distinct.size}:"
            " documents are held out whole, and the random next sentence of a pair comes from"
            " another one. Give more text, or mark where"
            " documents end (a blank line, or data.document_separator=line or file)"
            + (", or set data.validation_share=0." if share and distinct.size > 1 else ".")
        )
    splits = {}
    for name in SPLITS if share else SPLITS[:1]:
        with whole_file(os.path.join(folder, name)) as part, open(part, "wb") as file:
            splits[name] = _write_split(corpus, name == "validation", limit, file)
    return splits, hashes.size - distinct.size


def _write_split(corpus: str, below: bool, limit: np.uint64, file: Any) -> Split:
    """Writes the documents whose hash is below `limit` (or not), and cuts them into units."""
    num_documents, num_tokens, last_unit, cuts = 0, 0, 0, [0]
    for records in read_pieces([corpus], DOCUMENT):
        records = records[(records["hash"] < limit) == below]
        file.write(records.tobytes())
        ends = num_tokens + np.cumsum(records["num_tokens"].astype(np.int64))
        units = (ends - records["num_tokens"].astype(np.int64)) // UNIT_TOKENS
        cuts += (num_documents + np.flatnonzero(np.diff(units, prepend=last_unit))).tolist()
        if records.size:
            num_tokens, last_unit = int(ends[-1]), int(units[-1])
        num_documents += records.size
    return Split(num_documents, num_tokens, list(itertools.pairwise((*cuts, num_documents))))


def text_counts(folder: str, split: str) -> dict[str, int]:
    """Returns how many tokens a split's rows of running text predict, and how much text that is.

    Args:
      folder: written by `join_chunks` and `split_documents`.
      split: a name in SPLITS.

    Returns:
      `words`; `characters`, white space within sentences included; `predicted_tokens`, the tokens
      of all documents and a separator after each of them.
    """
    counts = {"words": 0, "characters": 0, "predicted_tokens": 0}
    for documents in read_pieces([os.path.join(folder, split)], DOCUMENT):
        for name, values in zip(counts, ("words", "characters", "num_tokens"), strict=True):
            counts[name] += int(documents[values].sum())
        counts["predicted_tokens"] += documents.size
    return counts


class Documents:
    """The documents of one split, by number.

    Args:
      folder: written by `join_chunks` and `split_documents`.
      split: a name in SPLITS.
      dtype: dtype of the token ids.

    Attributes:
      order: number -> document of the split; None: the order of the corpus.
    """

    def __init__(self, folder: str, split: str, dtype: np.dtype):
        self.dtype = dtype
        self.order: Sequence[int] | None = None
        self._tokens = os.open(os.path.join(folder, "tokens"), os.O_RDONLY)
        self._sentences = os.open(os.path.join(folder, "sentences"), os.O_RDONLY)
        self._documents = os.open(os.path.join(folder, split), os.O_RDONLY)
        self._length = os.fstat(self._documents).st_size // DOCUMENT.itemsize

    def close(self) -> None:
        for descriptor in (self._tokens, self._sentences, self._documents):
            os.close(descriptor)

    def __len__(self) -> int:
        return self._length

    def num_sentences(self, document: int) -> int:
        return self._find(document)[1]

    def starts(self, document: int, first: int = 0, count: int | None = None) -> Sequence[int]:
        """Returns where sentences `first`, `first + 1`, ... of a document start in the token file.

        Returns:
          `count + 1` positions for `count` sentences (None or too many: all to the end of the
          document); the last position is the end of the last sentence.
        """
        first_sentence, num_sentences = self._find(document)
        count = min(num_sentences - first, num_sentences if count is None else count)
        starts = array("Q")
        starts.frombytes(os.pread(self._sentences, 8 * (count + 1), 8 * (first_sentence + first)))
        return starts

    def tokens(self, start: int, length: int) -> bytes:
        """Returns the bytes of `length` ids from a position of the token file."""
        return os.pread(self._tokens, length * self.dtype.itemsize, start * self.dtype.itemsize)

    def run(self, document: int, start: int, length: int, separator: bytes) -> bytes:
        """Returns the bytes of `length` ids from a position in a document.

        Where a document ends, `separator` (one token) and the next document follow.
        """
        parts = []
        while True:
            stop = self.starts(document, self.num_sentences(document), 0)[0]
            parts.append(self.tokens(start, min(length, stop - start)))
            length -= stop - start + 1
            if length < 0:
                return b"".join(parts)
            parts.append(separator)
            if not length:
                return b"".join(parts)
            document += 1
            start = self.starts(document, 0, 0)[0]

    def _find(self, document: int) -> tuple[int, int]:
        if self.order is not None:
            document = self.order[document]
        record = array("Q", os.pread(self._documents, 16, document * DOCUMENT.itemsize))
        return record[0], record[1]
