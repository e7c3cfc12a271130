"""The stages of data preparation, in order, each spread over all processes.

    vocabulary    words of the text -> vocab.txt or vocab.model (or a copy of a given one)
    tokenize      chunks of the source -> token ids on disk
    pairs         documents -> spans of A and B, of full sentences, or of a stream
                  (static: with masks; one process a length then, as for a stream)
    packing       examples -> rows of several, if data.max_examples_per_row is above 1
    shards        pairs -> ArrayRecord files

Each unit of work writes a file or folder in `unfinished`, complete or not at all; finished units
are not repeated. At the end, the manifest is written and `unfinished` is removed. Several programs
can divide the units between them (`files/shares.py`), or an engine runs them (`files/beam.py`); one
program, the first, does what needs all units of a stage, which is joining files.
"""

import contextlib
import dataclasses
import glob
import os
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus import stages
from bert_jax.data.corpus.documents import SPLITS, Split, id_dtype, join_chunks, split_documents
from bert_jax.data.corpus.manifest import NAME, VERSION, Manifest
from bert_jax.data.corpus.row_counts import RowCounts
from bert_jax.data.corpus.running_text import text_counts
from bert_jax.data.corpus.shards import rows_per_file
from bert_jax.data.corpus.stages import Phrases
from bert_jax.files.atomic import copy_file, read_json, whole_file, write_bytes, write_json
from bert_jax.files.beam import Beam
from bert_jax.files.buckets import UNFINISHED, remove
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.files.shares import Share
from bert_jax.files.workers import Log, Workers
from bert_jax.text.sources import Source
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer, read_vocabulary
from bert_jax.text.vocabulary import FILE_NAMES, merge_counts, train_vocabulary

# In a bucket, the request of whoever prepares data there, until they are finished.
CLAIM = "preparing.json"

# Prefix of data.vocab for a vocabulary that is to be trained.
TRAIN = "train:"


class Preparation:
    """All stages of the preparation of one corpus.

    Args:
      config: what to prepare.
      source: the text of the configuration.
      request: JSON that identifies the data: settings and the fingerprint of the source.
      data_dir: the folder for the data.
      workers: processes that do the work, here or elsewhere.
      log: takes lines of progress.
      share: of the work that this program does.
    """

    def __init__(
        self,
        config: DataConfig,
        source: Source,
        request: dict[str, Any],
        data_dir: str,
        workers: Workers | Beam,
        log: Log,
        share: Share,
    ):
        self.config = config
        self.request = request
        self.data_dir = data_dir
        self.workers = workers
        self.log = log
        self.share = share
        self.source = source
        self.unfinished = os.path.join(data_dir, UNFINISHED)
        self.corpus = os.path.join(self.unfinished, "corpus")

    def run(self) -> Manifest:
        """Does the work of the share that is not finished; the first share writes the manifest."""
        name = self._make_vocabulary()
        tokenizer = load_tokenizer(os.path.join(self.data_dir, name), self.config.lowercase)
        phrases = self._read_phrases(name)
        self._tokenize(name)
        splits, num_duplicates = self._split()
        forms = stages.make_forms(self.config, tokenizer)
        self._sample(splits, forms, tokenizer, phrases)
        self._pack(splits, forms)
        self._write(splits, forms, phrases)
        if not self.share.is_first:  # the first one has written the manifest
            return Manifest.load(self.data_dir)
        corpus = self._describe_corpus(num_duplicates)
        content = {
            "version": VERSION,
            **self.request,
            "tokenizer": self._describe_tokenizer(name, tokenizer),
            "corpus": corpus,
            **({"lexicon": phrases.matcher().counts} if phrases else {}),
            "formats": {str(length): form.to_json() for length, form in forms.items()},
            "splits": {
                split: self._describe_split(split, documents, forms, tokenizer)
                for split, documents in splits.items()
            },
        }
        for path in glob.glob(os.path.join(glob.escape(self.data_dir), "*.array_record*.part")):
            os.remove(path)  # of attempts that were killed; nobody writes here any more
        manifest = Manifest(self.data_dir, content)
        manifest.save()
        remove(os.path.join(self.data_dir, CLAIM))
        shutil.rmtree(self.unfinished)
        self.share.end()
        return manifest

    # ---- vocabulary

    def _make_vocabulary(self) -> str:
        """Trains the vocabulary or copies the given one; returns the name of its file."""
        if not self.config.vocab.startswith(TRAIN):
            given = read_vocabulary(self.config.vocab)
            copy = os.path.join(self.data_dir, given.copy_name)
            if self.share.is_first:
                write_bytes(copy, given.content)
            self.share.wait([copy], "vocabulary", self.log)
            return given.copy_name
        kind = self.config.vocab.removeprefix(TRAIN)
        name = FILE_NAMES[kind]
        path, counts_path = os.path.join(self.data_dir, name), self._counts_path("vocabulary")
        if os.path.exists(path) and os.path.exists(counts_path):
            return name
        chunks = self.source.chunks()
        counts = [self._counts_path(f"words-{i:05d}") for i in range(len(chunks))]
        tasks = {
            count: (self.source, chunk, kind, self.config.lowercase, count)
            for chunk, count in zip(chunks, counts, strict=True)
        }
        if not self._work("count words", stages.count, tasks, [counts_path]):
            return name
        started = time.monotonic()
        words = merge_counts((stages.read_counts(count) for count in counts), kind)
        trained = train_vocabulary(kind, words, self.config.vocab_size, path)
        write_json(counts_path, trained)
        numbers = (f"{name.replace('_', ' ')} {count:,}" for name, count in trained.items())
        self.log(f"vocabulary: {', '.join(numbers)} in {time.monotonic() - started:.1f} s")
        for count in counts:
            os.remove(count)
        return name

    def _describe_tokenizer(self, name: str, tokenizer: Tokenizer) -> dict[str, Any]:
        path, trained = os.path.join(self.data_dir, name), self._counts_path("vocabulary")
        return {
            "name": name,
            "bytes": os.path.getsize(path),
            "sha256": file_sha256(path),
            "fingerprint": tokenizer.fingerprint,
            "lowercase": self.config.lowercase,
            "vocab_size": len(tokenizer.pieces),
            "training": read_json(trained) if os.path.exists(trained) else None,
        }

    def _read_phrases(self, vocabulary: str) -> Phrases | None:
        """Copies the lexicon, so that all processes read the same one, and checks its phrases."""
        if not self.config.lexicon:
            return None
        vocabulary = os.path.join(self.data_dir, vocabulary)
        phrases = stages.make_phrases(self.config, vocabulary, self.unfinished)
        if self.share.is_first:
            copy_file(self.config.lexicon, phrases.lexicon)
        self.share.wait([phrases.lexicon], "lexicon", self.log)
        counts = phrases.matcher().counts.items()
        self.log(f"lexicon: {', '.join(f'{name} {n:,}' for name, n in counts)}".replace("_", " "))
        return phrases

    # ---- tokenize

    def _tokenize(self, vocabulary: str) -> None:
        if os.path.exists(self.corpus):
            return
        chunks = self.source.chunks()
        folders = [os.path.join(self.unfinished, f"chunk-{i:05d}") for i in range(len(chunks))]
        tasks = {
            folder: (self.source, chunk, os.path.join(self.data_dir, vocabulary), self.config)
            + (folder,)
            for chunk, folder in zip(chunks, folders, strict=True)
        }
        if not self._work("tokenize", stages.tokenize, tasks, [self.corpus]):
            return
        join_chunks(folders, self.corpus)
        counts = self._corpus_counts()
        if not counts["documents"]:
            raise UserError(
                f"There is no text in data.source={self.config.source!r} that gives any token"
                f" ({counts['empty_documents']} documents were read)."
            )

    def _split(self) -> tuple[dict[str, Split], int]:
        """Returns the splits that have documents, and how many documents repeat another."""
        path = self._counts_path("splits")
        if self.share.is_first:
            splits, duplicates = split_documents(self.corpus, self.config.validation_share)
            found = {name: dataclasses.asdict(split) for name, split in splits.items()}
            write_json(path, {"splits": found, "duplicates": duplicates})
        self.share.wait([path], "splits", self.log)
        content = read_json(path)
        names = [name for name in SPLITS if name in content["splits"]]
        splits = {name: Split(**content["splits"][name]) for name in names}
        return splits, content["duplicates"]

    def _describe_corpus(self, duplicate_documents: int) -> dict[str, Any]:
        counts = self._corpus_counts()
        counts["duplicate_documents"] = duplicate_documents
        counts["unknown_token_share"] = counts["unknown_tokens"] / counts["tokens"]
        return counts

    def _corpus_counts(self) -> dict[str, Any]:
        return read_json(os.path.join(self.corpus, "counts.json"))

    def _text_bytes(self) -> int:
        return self._corpus_counts()["bytes"]

    # ---- pairs

    def _pairs(self, split: str, length: int) -> str:
        return os.path.join(self.unfinished, f"pairs-{split}-{length}")

    def _dupe_factor(self, split: str) -> int:
        """Returns how often a split is sampled: once if held out, or if sampling is not random."""
        is_once = split != "train" or self.config.segments != "pairs"
        return 1 if is_once else self.config.dupe_factor

    def _sample(
        self,
        splits: dict[str, Split],
        forms: dict[int, Any],
        tokenizer: Tokenizer,
        phrases: Phrases | None,
    ) -> None:
        """Samples a file of pairs or instances for each split and sequence length."""
        to_do = [
            (split, length)
            for split in splits
            for length in forms
            if not os.path.exists(self._pairs(split, length))
        ]
        if self.config.segments == "stream":
            orders = {
                os.path.join(self.corpus, f"{split}-stream"): (self.corpus, split, self.config)
                for split in dict(to_do)
            }
            self._work("documents", stages.order_documents, orders)
            rows = {self._pairs(*item): (self.corpus, *item, self._pairs(*item)) for item in to_do}
            self._work("rows", stages.sample_stream, rows)
            return
        if self.config.mode == "static":
            tasks = {
                self._pairs(split, length): (self.corpus, split, self._dupe_factor(split), length)
                + (forms[length].max_predictions, tokenizer, self.config)
                + (self._pairs(split, length), phrases)
                for split, length in to_do
            }
            self._work("pairs", stages.sample_static, tasks)
            return
        dtype = id_dtype(len(tokenizer.pieces))
        parts: dict[str, tuple] = {}
        for split, length in to_do:
            target = self._pairs(split, length)
            for duplicate in range(self._dupe_factor(split)):
                for unit in splits[split].units:
                    part = f"{target}.{duplicate}.{unit[0]}"
                    task = (self.corpus, split, unit, duplicate, length, dtype, self.config, part)
                    parts[part] = task
        targets = [self._pairs(split, length) for split, length in to_do]
        if not self._work("pairs", stages.sample, parts, targets):
            return
        for split, length in to_do:
            target = self._pairs(split, length)
            _join([part for part in parts if part.startswith(f"{target}.")], target)

    # ---- rows

    def _row_files(self, split: str, length: int) -> tuple[str, str]:
        """Returns the files of the records in the order of their rows, and of the rows' sizes.

        The second is empty if each record is a row.
        """
        pairs = self._pairs(split, length)
        return (
            (f"{pairs}-packed", f"{pairs}-sizes")
            if self.config.max_examples_per_row > 1
            else (pairs, "")
        )

    def _pack(self, splits: dict[str, Split], forms: dict[int, Any]) -> None:
        """Puts several examples into a row, if data.max_examples_per_row says so."""
        tasks = {}
        for split in splits:
            for length, form in forms.items():
                packed, sizes = self._row_files(split, length)
                if sizes:
                    dtype = stages.record_dtype(self.config, form)
                    pairs = self._pairs(split, length)
                    tasks[sizes] = (
                        pairs,
                        dtype,
                        length,
                        self.config.max_examples_per_row,
                        packed,
                        sizes,
                    )
        self._work("packing", stages.pack_rows, tasks)

    # ---- shards

    def _shards(self, split: str, form: Any) -> list[tuple[str, tuple[int, int]]]:
        """Returns the names of the shards, and the bounds [first, last) of their rows."""
        length = form.sequence_length
        records, sizes = self._row_files(split, length)
        itemsize = 1 if sizes else stages.record_dtype(self.config, form).itemsize
        num_rows = os.path.getsize(sizes or records) // itemsize
        starts = range(0, num_rows, rows_per_file(length))
        return [
            (
                f"{split}-{length}-{i:05d}-of-{len(starts):05d}.array_record",
                (start, min(start + starts.step, num_rows)),
            )
            for i, start in enumerate(starts)
        ]

    def _write(
        self, splits: dict[str, Split], forms: dict[int, Any], phrases: Phrases | None
    ) -> None:
        """Writes the shards; returns when all are there, other shares when the manifest is."""
        tasks = {}
        for split in splits:
            for length, form in forms.items():
                for name, bounds in self._shards(split, form):
                    path, counts = os.path.join(self.data_dir, name), self._counts_path(name)
                    if not os.path.exists(path) and self.share.takes(counts):
                        with contextlib.suppress(FileNotFoundError):
                            os.remove(counts)  # of a shard that somebody removed
                    records, sizes = self._row_files(split, length)
                    dtype = stages.record_dtype(self.config, form)
                    task = (self.corpus, split, records, bounds, form, dtype, path, counts)
                    tasks[counts] = (*task, phrases, sizes)
        self._work("shards", stages.write, tasks, [os.path.join(self.data_dir, NAME)])

    def _describe_split(
        self, split: str, documents: Split, forms: dict[int, Any], tokenizer: Tokenizer
    ) -> dict[str, Any]:
        text = text_counts(self.corpus, split) if self.config.counts_text else {}
        lengths = {}
        for length, form in forms.items():
            counts, files = RowCounts(len(tokenizer.pieces)), []
            for name, _ in self._shards(split, form):
                file = read_json(self._counts_path(name))
                counts.add_json(file.pop("counts"))
                files.append(file)
            lengths[str(length)] = {
                "files": files,
                "statistics": counts.describe(length, tokenizer, form.unpredicted)
                | form.more_statistics(counts.token_counts),
            }
            if form.is_stream:
                text["predicted_tokens"] = counts.sums["tokens"]
        return {
            "documents": documents.num_documents,
            "tokens": documents.num_tokens,
            **({"text": text} if text else {}),
            "sequence_lengths": lengths,
        }

    # ---- all stages

    def _counts_path(self, name: str) -> str:
        """Returns the file with the counts of a finished unit of work."""
        return os.path.join(self.unfinished, f"{name}.json")

    def _work(
        self,
        stage: str,
        function: Callable,
        tasks: dict[str, tuple],
        results: Sequence[str] = (),
    ) -> bool:
        """Does the tasks of this program's share that are not done.

        Args:
          stage: name of the stage in the log.
          function: called with the arguments of each task.
          tasks: the file or folder that a task writes last -> its arguments.
          results: what the first program makes of all files, which it may remove then; (): they
            are needed as they are.

        Returns:
          Whether this program has to make the results; all files are there.
        """
        mine = {
            path: arguments
            for path, arguments in tasks.items()
            if self.share.takes(path) and not os.path.exists(path)
        }
        if mine:
            known = os.path.join(self.corpus, "counts.json")
            num_bytes = self._text_bytes() if os.path.exists(known) else 0
            num_bytes *= len(mine) / len(tasks)
            self.workers.run_stage(stage, function, mine, num_bytes, self.log)
        if self.share.is_first or not results:
            self.share.wait(tasks, stage, self.log)
            return self.share.is_first
        self.share.wait(results, stage, self.log)
        return False


def _join(parts: list[str], target: str) -> None:
    """Joins files into one, and removes them."""
    with whole_file(target) as temporary, open(temporary, "wb") as joined:
        for part in parts:
            with open(part, "rb") as file:
                shutil.copyfileobj(file, joined, 1 << 20)
    for part in parts:
        os.remove(part)
