"""The stages of data preparation, in the order in which prepare.py calls them.

Each makes the jobs of its stage (jobs.py), has them done, and does what needs all of them.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus import jobs
from bert_jax.data.corpus.blocks import RowFormat
from bert_jax.data.corpus.documents import SPLITS, Split, id_dtype, join_chunks, split_documents
from bert_jax.data.corpus.jobs import Lexicon
from bert_jax.data.corpus.manifest import NAME
from bert_jax.data.corpus.pairs import PAIR, RUN
from bert_jax.data.corpus.request import (
    TRAIN,
)
from bert_jax.data.corpus.row_counts import RowCounts
from bert_jax.data.corpus.running_text import RUNNING, text_counts
from bert_jax.data.corpus.shards import Records, rows_per_file
from bert_jax.data.corpus.static_instances import instance_dtype
from bert_jax.data.corpus.streams import STREAM_ROW, StreamFormat
from bert_jax.data.corpus.work import Work
from bert_jax.files.atomic import copy_file, read_json, write_bytes, write_json
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import read_vocabulary
from bert_jax.text.vocabulary import FILE_NAMES, merge_counts, train_vocabulary

# The format of the rows of each sequence length.
Forms = dict[int, RowFormat | StreamFormat]


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
