"""Prepares a corpus: text -> vocabulary -> token ids -> examples -> rows -> shards and a manifest.

    vocabulary    words of the text -> vocab.txt or vocab.model (or a copy of a given one)
    tokenize      chunks of the source -> token ids on disk (documents.py), split by hash
    pairs         documents -> spans of A and B, of full sentences, of running text, or of a
                  stream (static: with masks; then one process per length, as for a stream)
    packing       examples -> rows of several, if data.max_examples_per_row is above 1
    shards        rows -> ArrayRecord files (shards.py)

`prepare_stages` shows the stages in order. The jobs of a stage (jobs.py) are spread over processes,
or run by an engine on many machines (files/beam.py). Each writes a file or folder in `unfinished`,
and finished jobs are not repeated. This program does what needs all jobs of a stage, that
is, joins files; at the end it writes the manifest and removes `unfinished`.

The result depends on the text and the settings only, not on who does the work.
"""

import dataclasses
import glob
import os
import shutil
from typing import Any

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus import dump, stages
from bert_jax.data.corpus.documents import split_documents
from bert_jax.data.corpus.jobs import Jobs
from bert_jax.data.corpus.manifest import VERSION, Manifest
from bert_jax.data.corpus.request import (
    CLAIM,
    check_files,
    claim_folder,
    find_prepared,
    lock,
    make_request,
)
from bert_jax.data.corpus.stages import Work
from bert_jax.files.beam import Beam
from bert_jax.files.buckets import UNFINISHED, local, refresh, remove
from bert_jax.files.errors import UserError
from bert_jax.files.workers import Log, Workers
from bert_jax.text.sources import make_source

TRAIN, VALIDATION = "train", "validation"
# Fields with the other texts of a run; their data are in folders of these names.
_HELD_OUT, _GENERAL = "held_out", "general"
# Fields that do not apply to these texts.
_ALONE: dict[str, Any] = {"held_out": "", "general": "", "replay": 0.0, "extra_tokens": ""}
_ALONE |= {"validation_share": 0.0, "max_words": 0}


def prepare(
    config: DataConfig,
    data_dir: str,
    num_processes: int = 0,
    log: Log = print,
    beam: Beam | None = None,
) -> Manifest:
    """Prepares data in `data_dir`, or uses the data that it has.

    If several programs on one file system prepare the same data, one works and the others wait.

    Args:
      config: configuration of the data.
      data_dir: the folder for the data.
      num_processes: number of worker processes; 0: one for each core.
      log: called with lines about progress.
      beam: does the work instead of processes of this program; its workers share `data_dir`.

    Raises:
      UserError: the text, the vocabulary or a setting is invalid; the folder has data with other
        settings; the disk is full, a process died, or the engine gave up. Finished parts of the
        work are kept.
    """
    data_dir = os.path.abspath(data_dir)
    config = dataclasses.replace(config, lexicon=local(config.lexicon))
    vocabulary = check_files(config)
    unfinished = os.path.join(data_dir, UNFINISHED)
    if not os.path.isdir(unfinished) and (manifest := find_prepared(config, data_dir, log)):
        return manifest
    try:
        os.makedirs(data_dir, exist_ok=True)
        with lock(data_dir, log):
            refresh(data_dir)
            if manifest := find_prepared(config, data_dir, log):
                # of a program that was killed after it wrote the manifest
                shutil.rmtree(unfinished, ignore_errors=True)
                return manifest
            source = make_source(config)
            request = make_request(config, source)
            claim_folder(unfinished, request, log)
            try:
                with beam or Workers(num_processes or os.cpu_count() or 1) as workers:
                    jobs = Jobs(config, source, data_dir, os.path.join(data_dir, vocabulary))
                    manifest = prepare_stages(Work(jobs, workers, log), request)
            except UserError:
                shutil.rmtree(unfinished)  # it would fail again: there is nothing to resume
                raise
            log(dump.summarize(manifest))
            return manifest
    except OSError as error:
        reason = ": ".join(filter(None, [error.filename, error.strerror])) or str(error)
        raise UserError(
            f"Preparing data in {data_dir} stopped: {reason}. Run it again to continue from the"
            " finished parts."
        ) from error


def prepare_stages(work: Work, request: dict[str, Any]) -> Manifest:
    """Does all stages in order, and writes the manifest."""
    jobs, data_dir = work.jobs, work.jobs.data_dir

    # ---- vocabulary: the words of the text, or a given one

    stages.make_vocabulary(work)
    stages.copy_lexicon(work)

    # ---- tokenize: text -> token store, whose documents are divided into splits

    stages.tokenize(work)
    splits, num_duplicates = split_documents(jobs.corpus, jobs.config.validation_share)
    stages.report_held_out(work, splits)
    words = stages.count_split_words(work, splits)

    # ---- documents -> examples -> rows -> shards, for each split and sequence length

    keys = [(split, length) for split in splits for length in jobs.config.sequence_lengths]
    stages.sample(work, splits, keys)
    stages.pack_rows(work, keys)
    shards = stages.write_shards(work, keys)

    # ---- manifest: the settings, the counts, and a checksum of each file

    counts = work.corpus_counts() | {"duplicate_documents": num_duplicates}
    counts["unknown_token_share"] = counts["unknown_tokens"] / counts["tokens"]
    lengths = jobs.config.sequence_lengths
    content = {
        "version": VERSION,
        **request,
        "tokenizer": stages.describe_tokenizer(work),
        "corpus": counts,
        **({"lexicon": jobs.matcher.counts} if jobs.matcher else {}),
        "formats": {str(length): dataclasses.asdict(jobs.form(length)) for length in lengths},
        "splits": {
            name: stages.describe_split(work, name, documents, shards)
            for name, documents in splits.items()
        },
        "words": words,
    }
    for path in glob.glob(os.path.join(glob.escape(data_dir), "*.array_record*.part")):
        os.remove(path)  # of attempts that were killed; nobody writes here any more
    manifest = Manifest(data_dir, content)
    manifest.save()
    remove(os.path.join(data_dir, CLAIM))
    shutil.rmtree(os.path.join(data_dir, UNFINISHED))
    return manifest


# ------------------------------------------------------------------ the other texts of a run


def prepare_all(config: DataConfig, data_dir: str, log: Log) -> None:
    """Prepares a corpus, the text to evaluate on and general text, or verifies those that it has.

    Raises:
      UserError: as `prepare`.
    """
    manifest = prepare(config, data_dir, config.num_processes, log)
    manifest.verify()
    alone = dataclasses.replace(config, vocab=manifest.vocabulary_path, **_ALONE)
    for field, changes in (
        (_HELD_OUT, {"dupe_factor": 1}),
        (_GENERAL, {"validation_share": config.general_share}),
    ):
        if source := getattr(config, field):
            other = dataclasses.replace(alone, source=source, **changes)
            folder = os.path.join(data_dir, field)
            log_of = lambda line, of=field: log(f"{of.replace('_', ' ')}: {line}")  # noqa: E731
            prepare(other, folder, config.num_processes, log_of).verify()


def held_out_split(config: DataConfig, manifest: Manifest) -> tuple[Manifest, str] | None:
    """Returns the data with the held-out rows, and the name of their split; None: there are none.

    Args:
      config: configuration of the data.
      manifest: manifest of the corpus.
    """
    if config.held_out:
        return Manifest.load(os.path.join(manifest.folder, _HELD_OUT)), TRAIN
    return (manifest, VALIDATION) if VALIDATION in manifest.splits else None


def general_text(config: DataConfig, manifest: Manifest) -> Manifest | None:
    """Returns the data of `data.general`; None: there is none.

    Its rows in VALIDATION are evaluated, and those in TRAIN may be replayed.

    Args:
      config: configuration of the data.
      manifest: manifest of the corpus.
    """
    return Manifest.load(os.path.join(manifest.folder, _GENERAL)) if config.general else None
