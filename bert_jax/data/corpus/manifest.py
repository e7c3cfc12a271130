"""manifest.json: the contents of a folder of prepared data, with checksums.

It is written last: a folder with a manifest is complete. It holds the settings, the fingerprint of
the text, and the size and SHA-256 of every file; manifest.json.sha256 holds its own SHA-256, as
sha256sum writes it. Equal settings and text give the same bytes, with any number of processes.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

from bert_jax.data.corpus.blocks import RowFormat
from bert_jax.data.corpus.shards import ShardRows
from bert_jax.data.corpus.streams import StreamFormat
from bert_jax.files.atomic import read_json, whole_file, write_json, write_text
from bert_jax.files.buckets import fetch
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer

NAME = "manifest.json"
_SEAL = ".sha256"
# Incremented when the meaning of a stored byte changes.
VERSION = 1


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A folder of prepared data.

    `content` is the JSON: `version`, `settings`, `source` (its fingerprint), `tokenizer`, `corpus`
    (counts of the text), `lexicon` (counts of its phrases, if there is one), `formats` (sequence
    length -> RowFormat, or StreamFormat of streams) and `splits` (split -> documents, tokens and,
    by sequence length, files and statistics; for running text and streams also `text`, see
    documents.text_counts) and `words` (split -> runs of characters between white space; absent
    from data prepared before they were counted).
    """

    folder: str
    content: dict[str, Any]

    @classmethod
    def load(cls, folder: str) -> "Manifest":
        """Reads the manifest of a folder.

        Raises:
          UserError: it does not exist, cannot be read, or has another version.
        """
        path = os.path.join(folder, NAME)
        try:
            _check_seal(path)
            content = read_json(path)
            version = content["version"]
        except FileNotFoundError:
            raise UserError(
                f"{folder} has no prepared data (no {NAME}): run bert_jax prepare."
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is corrupt ({error}): prepare the data again.") from None
        if version != VERSION:
            raise UserError(
                f"{path} has version {version}, but this program reads version {VERSION}: prepare"
                " the data again in another folder."
            )
        return cls(folder, content)

    def save(self) -> None:
        path = os.path.join(self.folder, NAME)
        with whole_file(path) as part:
            write_json(part, self.content)
            write_text(path + _SEAL, f"{file_sha256(part)}  {NAME}\n")

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the content without `words`; equal for equal data."""
        content = {name: value for name, value in self.content.items() if name != "words"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(sorted(self.content["splits"]))

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        return tuple(sorted(map(int, self.content["formats"])))

    def num_rows(self, split: str, sequence_length: int) -> int:
        return sum(file["rows"] for file in self._part(split, sequence_length)["files"])

    def statistics(self, split: str, sequence_length: int) -> dict[str, Any]:
        """Returns `row_counts.RowCounts.describe` of the rows."""
        return self._part(split, sequence_length)["statistics"]

    @property
    def words(self) -> dict[str, int]:
        """Split -> words of its text; {} for data prepared before they were counted."""
        return self.content.get("words", {})

    def words_per_epoch(self, split: str) -> int:
        """Returns the number of words that a split's rows are made from; 0: not counted.

        Rows of pairs are made from each training document `data.dupe_factor` times.
        """
        repeats = self.content["settings"].get("dupe_factor", 1) if split == "train" else 1
        return self.words.get(split, 0) * repeats

    @property
    def weighted_classes(self) -> tuple[str, ...]:
        """The classes of phrases with a number of their own in `mask_units`, starting at 3."""
        return tuple(self.content["settings"].get("lexicon_classes", ()))

    @property
    def vocabulary_path(self) -> str:
        """The path of the vocabulary, vocab.txt or vocab.model."""
        return os.path.join(self.folder, self.content["tokenizer"]["name"])

    def tokenizer(self) -> Tokenizer:
        """Loads the tokenizer that made the data.

        Raises:
          UserError: the vocabulary in the folder has changed.
        """
        stored = self.content["tokenizer"]
        path = self.vocabulary_path
        tokenizer = load_tokenizer(path, stored["lowercase"])
        if tokenizer.fingerprint != stored["fingerprint"]:
            raise UserError(
                f"{path} is not the vocabulary of the data in its folder: restore that one, or"
                " prepare the data again in another folder."
            )
        return tokenizer

    def rows(self, split: str, sequence_length: int) -> ShardRows:
        """Opens the rows of one split at one sequence length, after checking the files' sizes.

        Raises:
          UserError: there are no such rows, or a file is missing or has the wrong size.
        """
        files = self._part(split, sequence_length)["files"]
        paths = [os.path.join(self.folder, file["name"]) for file in files]
        fetch(paths)
        for path, file in zip(paths, files, strict=True):
            _check_size(path, file["bytes"])
        is_stream = self.content["settings"].get("segments") == "stream"
        make_form = StreamFormat if is_stream else RowFormat
        form = make_form(**self.content["formats"][str(sequence_length)])
        return ShardRows(paths, [file["rows"] for file in files], form)

    def verify(self) -> int:
        """Compares every file with its checksum, in threads.

        Returns:
          The number of bytes read.

        Raises:
          UserError: naming the first file that is missing or has changed.
        """
        files = [self.content["tokenizer"]] + [
            file
            for split in self.content["splits"].values()
            for part in split["sequence_lengths"].values()
            for file in part["files"]
        ]
        with concurrent.futures.ThreadPoolExecutor() as threads:
            list(threads.map(self._verify_file, files))
        return sum(file["bytes"] for file in files)

    def _verify_file(self, file: dict[str, Any]) -> None:
        path = os.path.join(self.folder, file["name"])
        fetch([path])
        _check_size(path, file["bytes"])
        if file_sha256(path) != file["sha256"]:
            raise UserError(
                f"{path} is corrupt: its SHA-256 is not the one in {NAME}. Delete {NAME} and"
                " prepare the data again."
            )

    def _part(self, split: str, sequence_length: int) -> dict[str, Any]:
        parts = self.content["splits"].get(split, {"sequence_lengths": {}})["sequence_lengths"]
        if str(sequence_length) not in parts:
            raise UserError(
                f"{self.folder} has no rows of split {split!r} at sequence length"
                f" {sequence_length}: it has splits {', '.join(self.splits)} at sequence lengths"
                f" {', '.join(map(str, self.sequence_lengths))}."
            )
        return parts[str(sequence_length)]


def _check_seal(path: str) -> None:
    """Raises UserError if a manifest is not the one that was written."""
    seal = pathlib.Path(path + _SEAL)
    sha256 = file_sha256(path)
    if not seal.exists() or seal.read_bytes() != f"{sha256}  {NAME}\n".encode():
        raise UserError(f"its SHA-256 is not the one in {NAME}{_SEAL}")


def _check_size(path: str, size: int) -> None:
    actual = os.path.getsize(path) if os.path.exists(path) else None
    if actual != size:
        problem = "is missing" if actual is None else f"has {actual} bytes instead of {size}"
        raise UserError(
            f"{path} {problem}: delete {NAME} in its folder and prepare the data again."
        )
