"""Prepares a corpus: text -> vocabulary -> token ids -> examples -> rows -> shards and a manifest.

    vocabulary    words of the text -> vocab.txt or vocab.model (or a copy of a given one)
    tokenize      chunks of the source -> token ids on disk (documents.py), split by hash
    pairs         documents -> spans of A and B, of full sentences, of running text, or of a
                  stream (static: with masks; one process a length then, as for a stream)
    packing       examples -> rows of several, if data.max_examples_per_row is above 1
    shards        rows -> ArrayRecord files (shards.py)

The jobs of a stage (jobs.py) are spread over processes, over several programs that divide them
(files/shares.py), or run by an engine (files/beam.py). Each writes a file or folder in
`unfinished`, and finished jobs are not repeated. One program, the first, does what needs all jobs
of a stage, which is joining files; at the end it writes the manifest and removes `unfinished`.

The result depends on the text and the settings only, not on who does the work.
"""

import contextlib
import dataclasses
import glob
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus import dump, jobs
from bert_jax.data.corpus.blocks import RowFormat
from bert_jax.data.corpus.documents import SPLITS, Split, id_dtype, join_chunks, split_documents
from bert_jax.data.corpus.jobs import Lexicon
from bert_jax.data.corpus.manifest import NAME, VERSION, Manifest
from bert_jax.data.corpus.pairs import PAIR, RUN
from bert_jax.data.corpus.request import (
    CLAIM,
    TRAIN,
    check_files,
    check_no_tasks,
    claim_folder,
    find_prepared,
    lock,
    make_request,
)
from bert_jax.data.corpus.row_counts import RowCounts
from bert_jax.data.corpus.running_text import RUNNING, text_counts
from bert_jax.data.corpus.shards import Records, rows_per_file
from bert_jax.data.corpus.static_instances import instance_dtype
from bert_jax.data.corpus.streams import STREAM_ROW, StreamFormat
from bert_jax.files.atomic import copy_file, read_json, write_bytes, write_json
from bert_jax.files.beam import Beam
from bert_jax.files.buckets import UNFINISHED, address_of, refresh, remove
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.files.shares import OtherTaskError, Share
from bert_jax.files.workers import Log, Workers
from bert_jax.text.sources import Source, make_source
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer, read_vocabulary
from bert_jax.text.vocabulary import FILE_NAMES, merge_counts, train_vocabulary

# The format of the rows of each sequence length.
Forms = dict[int, RowFormat | StreamFormat]


def prepare(
    config: DataConfig,
    data_dir: str,
    num_processes: int = 0,
    log: Log = print,
    task: tuple[int, int] = (0, 1),
    beam: Beam | None = None,
) -> Manifest:
    """Prepares data in `data_dir`, or uses the data that it has.

    Of several processes on one file system, one does the work and the others wait, unless each has
    a task of its own.

    Args:
      config: what to prepare.
      data_dir: the folder for the data.
      num_processes: number of worker processes; 0: one for each core.
      log: takes lines of progress.
      task: number of this program, from 0, and of all programs that divide the work.
      beam: does the work instead of processes of this program; its workers share `data_dir`.

    Raises:
      UserError: the text, the vocabulary or a setting is invalid; the folder has data of other
        settings, or tasks of another number; the disk is full, a process died, the engine gave up,
        or another task stopped. Finished parts of the work are kept.
    """
    data_dir = os.path.abspath(data_dir)
    if task[1] > 1 and address_of(data_dir):
        raise UserError(
            f"{data_dir}: tasks pass their work on through files that all of them see, which a"
            " bucket is not: use a shared file system, or one program (without --task)."
        )
    check_files(config)
    if manifest := find_prepared(config, data_dir, log):
        return manifest
    try:
        os.makedirs(data_dir, exist_ok=True)
        with lock(data_dir, log, task[0]) as started:
            share = Share(*task, os.path.join(data_dir, UNFINISHED), started)
            refresh(data_dir)
            if manifest := find_prepared(config, data_dir, log):
                return manifest
            if share.count == 1:
                check_no_tasks(data_dir)
            source = make_source(config)
            request = make_request(config, source)
            claim_folder(share, request, log)
            try:
                with beam or Workers(num_processes or os.cpu_count() or 1) as workers:
                    work = Work(config, source, request, data_dir, workers, log, share)
                    manifest = prepare_stages(work)
            except UserError as error:
                if not isinstance(error, OtherTaskError):
                    share.fail(error)
                    if share.is_first:  # it would fail again: there is nothing to resume
                        shutil.rmtree(share.folder)
                raise
            log(dump.summarize(manifest) if share.is_first else f"Task {share.index} is done.")
            return manifest
    except OSError as error:
        reason = ": ".join(filter(None, [error.filename, error.strerror])) or str(error)
        raise UserError(
            f"Preparing data in {data_dir} stopped: {reason}. Run it again to continue from the"
            " finished parts."
        ) from error


@dataclasses.dataclass(frozen=True)
class Work:
    """A preparation and who does its jobs.

    Attributes:
      config: what to prepare.
      source: the text of the configuration.
      request: JSON that identifies the data (`request.make_request`).
      data_dir: the folder for the data.
      workers: processes that do the jobs, here or elsewhere.
      log: takes lines of progress.
      share: the share of the jobs that this program does.
    """

    config: DataConfig
    source: Source
    request: dict[str, Any]
    data_dir: str
    workers: Workers | Beam
    log: Log
    share: Share

    def unfinished(self, name: str) -> str:
        """Returns the path of a file or folder of unfinished work."""
        return os.path.join(self.data_dir, UNFINISHED, name)

    @property
    def corpus(self) -> str:
        """The folder of the token store."""
        return self.unfinished("corpus")

    def corpus_counts(self) -> dict[str, Any]:
        return read_json(os.path.join(self.corpus, "counts.json"))

    def do(self, stage: str, all_jobs: Iterable[jobs.Job], results: Sequence[str] = ()) -> bool:
        """Does the jobs of this program's share that are not done.

        Args:
          stage: name of the stage in the log.
          all_jobs: the jobs of all programs.
          results: what the first program makes of all files, which it may remove then; (): they
            are needed as they are.

        Returns:
          Whether this program has to make the results; all files are there.
        """
        by_path = {job.path: job for job in all_jobs}
        mine = {
            path: job.run
            for path, job in by_path.items()
            if self.share.takes(path) and not os.path.exists(path)
        }
        if mine:
            is_tokenized = os.path.exists(self.corpus)
            num_bytes = self.corpus_counts()["bytes"] if is_tokenized else 0
            num_bytes *= len(mine) / len(by_path)
            self.workers.run_stage(stage, mine, num_bytes, self.log)
        if self.share.is_first or not results:
            self.share.wait(by_path, stage, self.log)
            return self.share.is_first
        self.share.wait(results, stage, self.log)
        return False


def prepare_stages(work: Work) -> Manifest:
    """Does all stages in order; the first program then writes the manifest."""
    config = work.config

    # ---- vocabulary: the words of the text, or a given one

    vocabulary = make_vocabulary(work)
    tokenizer = load_tokenizer(vocabulary, config.lowercase)
    lexicon = copy_lexicon(work, vocabulary) if config.lexicon else None

    # ---- tokenize: text -> token store, of which each split has some documents

    tokenize(work, vocabulary)
    splits, num_duplicates = split(work)

    # ---- pairs and packing: documents -> records of examples -> records of rows

    forms = make_forms(config, tokenizer)
    keys = [(name, length) for name in splits for length in forms]
    records = {
        (name, length): Records(
            work.unfinished(f"pairs-{name}-{length}"), record_dtype(config, forms[length])
        )
        for name, length in keys
    }
    sample(work, splits, forms, records, vocabulary, lexicon)
    if config.max_examples_per_row > 1:
        packed = {
            key: dataclasses.replace(one, path=f"{one.path}-packed", sizes=f"{one.path}-sizes")
            for key, one in records.items()
        }
        most = config.max_examples_per_row
        work.do(
            "packing",
            [jobs.PackRows(records[key], key[1], most, packed[key]) for key in keys],
        )
        records = packed

    # ---- shards: records of rows -> token ids of rows

    shards = {
        key: make_shard_jobs(work, *key, forms[key[1]], records[key], lexicon) for key in keys
    }
    write_shards(work, [job for some in shards.values() for job in some])
    if not work.share.is_first:  # the first one has written the manifest
        return Manifest.load(work.data_dir)

    # ---- manifest: the settings, the counts, and a checksum of each file

    counts = work.corpus_counts() | {"duplicate_documents": num_duplicates}
    counts["unknown_token_share"] = counts["unknown_tokens"] / counts["tokens"]
    content = {
        "version": VERSION,
        **work.request,
        "tokenizer": describe_tokenizer(work, vocabulary, tokenizer),
        "corpus": counts,
        **({"lexicon": lexicon.matcher().counts} if lexicon else {}),
        "formats": {str(length): form.to_json() for length, form in forms.items()},
        "splits": {
            name: describe_split(
                work, name, documents, {n: shards[name, n] for n in forms}, tokenizer
            )
            for name, documents in splits.items()
        },
    }
    for path in glob.glob(os.path.join(glob.escape(work.data_dir), "*.array_record*.part")):
        os.remove(path)  # of attempts that were killed; nobody writes here any more
    manifest = Manifest(work.data_dir, content)
    manifest.save()
    remove(os.path.join(work.data_dir, CLAIM))
    shutil.rmtree(work.share.folder)
    work.share.end()
    return manifest


# ------------------------------------------------------------------ vocabulary


def make_vocabulary(work: Work) -> str:
    """Trains the vocabulary or copies the given one; returns the path of its file."""
    config = work.config
    if not config.vocab.startswith(TRAIN):
        given = read_vocabulary(config.vocab)
        path = os.path.join(work.data_dir, given.copy_name)
        if work.share.is_first:
            write_bytes(path, given.content)
        work.share.wait([path], "vocabulary", work.log)
        return path
    kind = config.vocab.removeprefix(TRAIN)
    path, trained = os.path.join(work.data_dir, FILE_NAMES[kind]), work.unfinished(_TRAINED)
    if os.path.exists(path) and os.path.exists(trained):
        return path
    counting = [
        jobs.CountWords(
            work.source, chunk, kind, config.lowercase, work.unfinished(f"words-{i:05d}.json")
        )
        for i, chunk in enumerate(work.source.chunks())
    ]
    if not work.do("count words", counting, [trained]):
        return path
    started = time.monotonic()
    words = merge_counts((job.result() for job in counting), kind)
    counts = train_vocabulary(kind, words, config.vocab_size, path)
    write_json(trained, counts)
    numbers = (f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())
    work.log(f"vocabulary: {', '.join(numbers)} in {time.monotonic() - started:.1f} s")
    for job in counting:
        os.remove(job.path)
    return path


# Counts of a vocabulary that was trained.
_TRAINED = "vocabulary.json"


def describe_tokenizer(work: Work, vocabulary: str, tokenizer: Tokenizer) -> dict[str, Any]:
    trained = work.unfinished(_TRAINED)
    return {
        "name": os.path.basename(vocabulary),
        "bytes": os.path.getsize(vocabulary),
        "sha256": file_sha256(vocabulary),
        "fingerprint": tokenizer.fingerprint,
        "lowercase": work.config.lowercase,
        "vocab_size": len(tokenizer.pieces),
        "training": read_json(trained) if os.path.exists(trained) else None,
    }


def copy_lexicon(work: Work, vocabulary: str) -> Lexicon:
    """Copies the lexicon, so that all processes read the same one, and checks its phrases."""
    lexicon = Lexicon.make(work.config, vocabulary, work.unfinished("lexicon"))
    if work.share.is_first:
        copy_file(work.config.lexicon, lexicon.path)
    work.share.wait([lexicon.path], "lexicon", work.log)
    counts = lexicon.matcher().counts.items()
    work.log(f"lexicon: {', '.join(f'{name} {n:,}' for name, n in counts)}".replace("_", " "))
    return lexicon


# ------------------------------------------------------------------ tokenize


def tokenize(work: Work, vocabulary: str) -> None:
    """Writes the token store."""
    if os.path.exists(work.corpus):
        return
    tokenizing = [
        jobs.TokenizeChunk(
            work.source, chunk, vocabulary, work.config, work.unfinished(f"chunk-{i:05d}")
        )
        for i, chunk in enumerate(work.source.chunks())
    ]
    if not work.do("tokenize", tokenizing, [work.corpus]):
        return
    join_chunks([job.path for job in tokenizing], work.corpus)
    counts = work.corpus_counts()
    if not counts["documents"]:
        raise UserError(
            f"There is no text in data.source={work.config.source!r} that gives any token"
            f" ({counts['empty_documents']} documents were read)."
        )


def split(work: Work) -> tuple[dict[str, Split], int]:
    """Returns the splits that have documents, and how many documents repeat another."""
    path = work.unfinished("splits.json")
    if work.share.is_first:
        splits, duplicates = split_documents(work.corpus, work.config.validation_share)
        found = {name: dataclasses.asdict(documents) for name, documents in splits.items()}
        write_json(path, {"splits": found, "duplicates": duplicates})
    work.share.wait([path], "splits", work.log)
    content = read_json(path)
    names = [name for name in SPLITS if name in content["splits"]]
    return {name: Split(**content["splits"][name]) for name in names}, content["duplicates"]


# ------------------------------------------------------------------ pairs


def make_forms(config: DataConfig, tokenizer: Tokenizer) -> Forms:
    """Returns the format of the rows of each sequence length."""
    ids = {name: getattr(tokenizer, name) for name in ("pad_id", "cls_id", "sep_id")}
    common = {"vocab_size": len(tokenizer.pieces), **ids}
    if config.segments == "stream":
        common["unk_id"] = tokenizer.unk_id
        common["num_words"] = min(config.vocab_size, common["vocab_size"])
        return {length: StreamFormat(length, **common) for length in config.sequence_lengths}
    lengths = zip(config.sequence_lengths, config.max_predictions_per_seq, strict=True)
    return {
        length: RowFormat(
            sequence_length=length,
            examples_per_row=config.max_examples_per_row,
            max_predictions=max_predictions if config.mode == "static" else 0,
            end_id=tokenizer.end_id,
            mask_units=config.masking == "phrase" and config.mode != "static",
            **common,
        )
        for length, max_predictions in lengths
    }


def record_dtype(config: DataConfig, form: RowFormat | StreamFormat) -> np.dtype:
    """Returns the dtype of the records that rows of this form are made of."""
    if isinstance(form, StreamFormat):
        return STREAM_ROW
    if config.segments != "pairs":
        return RUN if config.segments == "full_sentences" else RUNNING
    return instance_dtype(form.max_predictions) if config.mode == "static" else PAIR


def sample(
    work: Work,
    splits: dict[str, Split],
    forms: Forms,
    records: dict[tuple[str, int], Records],
    vocabulary: str,
    lexicon: Lexicon | None,
) -> None:
    """Writes the records of each split and sequence length, if they are not there."""
    config, corpus = work.config, work.corpus
    missing = {key: one.path for key, one in records.items() if not os.path.exists(one.path)}
    if config.segments == "stream":
        orders = {name: jobs.OrderDocuments(corpus, name, config.seed) for name, _ in missing}
        work.do("documents", orders.values())
        work.do("rows", [jobs.CutStream(orders[k[0]].path, k[1], p) for k, p in missing.items()])
        return

    def dupe_factor(name: str) -> int:
        # Held-out documents are sampled once, and so is what is not random.
        return config.dupe_factor if name == "train" and config.segments == "pairs" else 1

    if config.mode == "static":
        static = [
            jobs.SampleStatic(
                corpus,
                name,
                dupe_factor(name),
                length,
                forms[length].max_predictions,  # pyright: ignore[reportAttributeAccessIssue]
                vocabulary,
                lexicon,
                config,
                path,
            )
            for (name, length), path in missing.items()
        ]
        work.do("pairs", static)
        return
    parts = {
        path: [
            jobs.SampleUnit(
                corpus,
                name,
                unit,
                duplicate,
                length,
                id_dtype(forms[length].vocab_size),
                config,
                f"{path}.{duplicate}.{unit[0]}",
            )
            for duplicate in range(dupe_factor(name))
            for unit in splits[name].units
        ]
        for (name, length), path in missing.items()
    }
    if work.do("pairs", [job for some in parts.values() for job in some], list(parts)):
        for path, some in parts.items():
            jobs.join_files([job.path for job in some], path)


# ------------------------------------------------------------------ shards


def make_shard_jobs(
    work: Work,
    name: str,
    length: int,
    form: RowFormat | StreamFormat,
    records: Records,
    lexicon: Lexicon | None,
) -> list[jobs.WriteShard]:
    """Returns the jobs that write the shards of a split at a sequence length."""
    num_rows = records.num_rows
    starts = range(0, num_rows, rows_per_file(length))
    names = [
        f"{name}-{length}-{i:05d}-of-{len(starts):05d}.array_record" for i in range(len(starts))
    ]
    return [
        jobs.WriteShard(
            work.corpus,
            name,
            records,
            (start, min(start + starts.step, num_rows)),
            form,
            lexicon,
            os.path.join(work.data_dir, shard),
            work.unfinished(f"{shard}.json"),
        )
        for shard, start in zip(names, starts, strict=True)
    ]


def write_shards(work: Work, writing: Sequence[jobs.WriteShard]) -> None:
    """Writes the shards; returns when all are there, in other programs when the manifest is."""
    for job in writing:
        if not os.path.exists(job.shard) and work.share.takes(job.path):
            with contextlib.suppress(FileNotFoundError):
                os.remove(job.path)  # of a shard that somebody removed
    work.do("shards", writing, [os.path.join(work.data_dir, NAME)])


def describe_split(
    work: Work,
    name: str,
    documents: Split,
    shards: dict[int, list[jobs.WriteShard]],
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    """Returns the manifest's entry of a split; `shards` are by sequence length."""
    text = text_counts(work.corpus, name) if work.config.counts_text else {}
    lengths = {}
    for length, writing in shards.items():
        form = writing[0].form
        counts, files = RowCounts(len(tokenizer.pieces)), []
        for job in writing:
            file = read_json(job.path)
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
