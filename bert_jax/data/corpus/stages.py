"""The stages of data preparation, in the order in which prepare.py calls them.

Each runs the jobs of its stage (jobs.py), then does what needs all of them.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert_jax.config.data import num_frequent
from bert_jax.data.corpus.documents import SPLITS, Split, join_chunks, text_counts
from bert_jax.data.corpus.jobs import Jobs
from bert_jax.data.corpus.request import TRAIN, check_max_words
from bert_jax.data.corpus.row_counts import RowCounts
from bert_jax.data.corpus.shards import rows_per_file
from bert_jax.files.atomic import read_json, whole_file, write_bytes, write_json
from bert_jax.files.beam import Beam
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.files.workers import Log, Workers
from bert_jax.text.extra_tokens import extend, frequent_words, read_words
from bert_jax.text.tokenizers import read_vocabulary
from bert_jax.text.vocabulary import WordCounts, merge_counts, train_vocabulary

# A split and a sequence length.
Key = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Work:
    """A preparation and who does its jobs.

    Attributes:
      jobs: the jobs, and what is prepared.
      workers: processes that do the jobs, here or elsewhere.
      log: called with lines about progress.
    """

    jobs: Jobs
    workers: Workers | Beam
    log: Log

    def do(
        self, stage: str, job: Callable[..., int], arguments: Mapping[str, tuple[Any, ...]]
    ) -> None:
        """Runs the jobs that are not done yet.

        Args:
          stage: the name of the stage in the log.
          job: a method of `jobs`.
          arguments: `path` of each job -> its other arguments.
        """
        todo = {
            path: functools.partial(job, path, *others)
            for path, others in arguments.items()
            if not os.path.exists(path)
        }
        if todo:
            is_tokenized = os.path.exists(self.jobs.corpus)
            num_bytes = self.corpus_counts()["bytes"] if is_tokenized else 0
            self.workers.run_stage(stage, todo, num_bytes * len(todo) / len(arguments), self.log)

    def corpus_counts(self) -> dict[str, Any]:
        return read_json(os.path.join(self.jobs.corpus, "counts.json"))


# ------------------------------------------------------------------ vocabulary


def make_vocabulary(work: Work) -> None:
    """Trains the vocabulary, or copies the given one, with the words that are added to it."""
    jobs, config, path = work.jobs, work.jobs.config, work.jobs.vocabulary
    if config.extra_tokens:
        _extend_vocabulary(work)
        return
    if not config.vocab.startswith(TRAIN):
        write_bytes(path, read_vocabulary(config.vocab).content)
        return
    kind, trained = config.vocab.removeprefix(TRAIN), jobs.unfinished(_TRAINED)
    if os.path.exists(path) and os.path.exists(trained):
        return
    with _counted_words(work, kind) as words:
        started = time.monotonic()
        counts = train_vocabulary(kind, words, config.vocab_size, path)
        write_json(trained, counts)
        numbers = (f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())
        work.log(f"vocabulary: {', '.join(numbers)} in {time.monotonic() - started:.1f} s")


def _extend_vocabulary(work: Work) -> None:
    """Writes the given vocabulary with the words of data.extra_tokens at its end."""
    config, path = work.jobs.config, work.jobs.vocabulary
    done = work.jobs.unfinished(_EXTENDED)
    if os.path.exists(path) and os.path.exists(done):
        return
    given = read_vocabulary(config.vocab)
    tokenizer = given.tokenizer(config.lowercase)
    with contextlib.ExitStack() as stack:
        if number := num_frequent(config.extra_tokens):
            words = stack.enter_context(_counted_words(work, "wordpiece"))
            extra = frequent_words(words.counts, tokenizer, number)
        else:
            extra = read_words(config.extra_tokens, tokenizer)
        write_bytes(path, extend(given.content, extra.words))
        write_json(done, extra.words)
        work.log(extra.describe())


@contextlib.contextmanager
def _counted_words(work: Work, kind: str) -> Iterator[WordCounts]:
    """Yields the words of the text; removes the counts when the block ends."""
    jobs = work.jobs
    chunks = enumerate(jobs.source.chunks())
    counting = {jobs.unfinished(f"words-{i:05d}.json"): (chunk, kind) for i, chunk in chunks}
    work.do("count words", jobs.count_words, counting)
    yield merge_counts(map(_read_word_counts, counting), kind)
    for counted in counting:
        os.remove(counted)


# Counts of a trained vocabulary, and the words that were added to a given one.
_TRAINED, _EXTENDED = "vocabulary.json", "extra_tokens.json"


def _read_word_counts(path: str) -> WordCounts:
    words, content = WordCounts(), read_json(path)
    words.counts.update(content["counts"])
    words.dropped.update(content["dropped"])
    return words


def describe_tokenizer(work: Work) -> dict[str, Any]:
    """Returns the manifest's entry of the tokenizer."""
    jobs, trained = work.jobs, work.jobs.unfinished(_TRAINED)
    return {
        "name": os.path.basename(jobs.vocabulary),
        "bytes": os.path.getsize(jobs.vocabulary),
        "sha256": file_sha256(jobs.vocabulary),
        "fingerprint": jobs.tokenizer.fingerprint,
        "lowercase": jobs.config.lowercase,
        "vocab_size": len(jobs.tokenizer.pieces),
        "training": read_json(trained) if os.path.exists(trained) else None,
    }


def copy_lexicon(work: Work) -> None:
    """Copies the lexicon, if there is one, for all processes, and checks its phrases."""
    if not work.jobs.config.lexicon:
        return
    path = work.jobs.unfinished("lexicon")
    write_bytes(path, pathlib.Path(work.jobs.config.lexicon).read_bytes())
    counts = work.jobs.matcher.counts.items()  # pyright: ignore[reportOptionalMemberAccess]
    work.log(f"lexicon: {', '.join(f'{name} {n:,}' for name, n in counts)}".replace("_", " "))


# ------------------------------------------------------------------ token store


def tokenize(work: Work) -> None:
    """Writes the token store."""
    jobs = work.jobs
    if os.path.exists(jobs.corpus):
        return
    chunks = enumerate(jobs.source.chunks())
    tokenizing = {jobs.unfinished(f"chunk-{i:05d}"): (chunk,) for i, chunk in chunks}
    work.do("tokenize", jobs.tokenize, tokenizing)
    join_chunks(list(tokenizing), jobs.corpus)
    counts = work.corpus_counts()
    if not counts["documents"]:
        raise UserError(
            f"There is no text in data.source={jobs.config.source!r} that gives any token"
            f" ({counts['empty_documents']} documents were read)."
        )


def report_held_out(work: Work, splits: Mapping[str, Split]) -> None:
    """Logs the share of the tokens that is held out, if it is far above `data.validation_share`."""
    held_out, wanted = splits.get(SPLITS[1]), work.jobs.config.validation_share
    if held_out is None:
        return
    share = held_out.num_tokens / sum(split.num_tokens for split in splits.values())
    if share > max(2 * wanted, wanted + 0.02):
        num_documents = sum(split.num_documents for split in splits.values())
        work.log(
            f"held out: {share:.0%} of the tokens, although data.validation_share={wanted:g}, since"
            f" documents are held out whole, {held_out.num_documents} of {num_documents}: mark"
            " where documents end (a blank line, or data.document_separator=line)"
        )


def count_split_words(work: Work, splits: Mapping[str, Split]) -> dict[str, int]:
    """Returns the words of each split.

    Raises:
      UserError: the corpus has more than `data.max_words`.
    """
    words = {name: text_counts(work.jobs.corpus, name)["words"] for name in splits}
    check_max_words(work.jobs.config, words)
    return words


# ------------------------------------------------------------------ examples and rows


def sample(work: Work, splits: Mapping[str, Split], keys: Sequence[Key]) -> None:
    """Writes the examples of each split and sequence length, unless they exist."""
    jobs = work.jobs
    paths = {key: jobs.examples(*key).path for key in keys}
    missing = {path: key for key, path in paths.items() if not os.path.exists(path)}
    if jobs.config.segments == "stream":
        orders = {jobs.stream_order(name): (name,) for name, _ in missing.values()}
        work.do("documents", jobs.order_documents, orders)
        work.do("rows", jobs.cut_stream, missing)
    elif jobs.config.mode == "static":
        work.do("pairs", jobs.sample_static, missing)
    else:
        parts = {
            path: {
                f"{path}.{duplicate}.{unit[0]}": (name, length, unit, duplicate)
                for duplicate in range(jobs.num_duplicates(name))
                for unit in splits[name].units
            }
            for path, (name, length) in missing.items()
        }
        sampling = {path: job for some in parts.values() for path, job in some.items()}
        work.do("pairs", jobs.sample, sampling)
        for path, some in parts.items():
            join_files(list(some), path)


def join_files(paths: Sequence[str], target: str) -> None:
    """Joins files into one, and removes them."""
    with whole_file(target) as part, open(part, "wb") as joined:
        for path in paths:
            with open(path, "rb") as file:
                shutil.copyfileobj(file, joined, 1 << 20)
    for path in paths:
        os.remove(path)


def pack_rows(work: Work, keys: Sequence[Key]) -> None:
    """Puts several examples into a row, if data.max_examples_per_row is above 1."""
    if work.jobs.config.max_examples_per_row > 1:
        packing = {work.jobs.rows(*key).sizes: key for key in keys}
        work.do("packing", work.jobs.pack_rows, packing)


# ------------------------------------------------------------------ shards


def write_shards(work: Work, keys: Sequence[Key]) -> dict[Key, list[str]]:
    """Writes the shards.

    Returns:
      The JSON files about the shards of each split and sequence length (`shards.write_shard`).
    """
    jobs, found, writing = work.jobs, {}, {}
    for split, length in keys:
        num_rows, step = jobs.rows(split, length).num_rows, rows_per_file(length)
        starts = range(0, num_rows, step)
        found[split, length] = []
        for i, start in enumerate(starts):
            name = f"{split}-{length}-{i:05d}-of-{len(starts):05d}.array_record"
            shard, path = os.path.join(jobs.data_dir, name), jobs.unfinished(f"{name}.json")
            rows = range(start, min(start + step, num_rows))
            found[split, length].append(path)
            writing[path] = shard, split, length, rows
            if not os.path.exists(shard):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)  # of a shard that somebody removed
    work.do("shards", jobs.write_shard, writing)
    return found


def describe_split(
    work: Work, name: str, documents: Split, shards: Mapping[Key, Sequence[str]]
) -> dict[str, Any]:
    """Returns the manifest's entry of a split."""
    jobs, tokenizer = work.jobs, work.jobs.tokenizer
    text = text_counts(jobs.corpus, name) if jobs.config.counts_text else {}
    lengths = {}
    for length in jobs.config.sequence_lengths:
        form, counts, files = jobs.form(length), RowCounts(len(tokenizer.pieces)), []
        for path in shards[name, length]:
            file = read_json(path)
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
