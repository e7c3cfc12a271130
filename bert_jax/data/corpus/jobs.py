"""The jobs of data preparation: each turns files into a file or folder, in one process.

A job is there complete or not at all: `path`, which it writes last, says whether it is done. `run`
returns the bytes of text that the job has read, or 0.
"""

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from bert_jax.config.data import DataConfig, parse_weights
from bert_jax.data.corpus.blocks import RowFormat
from bert_jax.data.corpus.documents import ChunkReader, Documents, id_dtype, tokenize_chunk
from bert_jax.data.corpus.pairs import full_sentences, sample_unit
from bert_jax.data.corpus.running_text import running_text
from bert_jax.data.corpus.shards import Records, lengths_of, write_shard
from bert_jax.data.corpus.static_instances import StaticMasking, write_instances
from bert_jax.data.corpus.streams import StreamFormat, write_order, write_rows
from bert_jax.data.packing import pack
from bert_jax.data.permutation import permute
from bert_jax.files.atomic import read_json, whole_file, write_json
from bert_jax.text.lexicon import PhraseMatcher, read_lexicon
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import WordCounts, count_words

# Special tokens of [CLS] A [SEP] B [SEP] and of [CLS] A [SEP]; running text has none.
NUM_SPECIAL = {"pairs": 3, "full_sentences": 2, "running_text": 0}
# Records that are copied at once, which bounds the memory.
_ITEMS_AT_ONCE = 1 << 16

cached_tokenizer = functools.lru_cache(1)(load_tokenizer)


class Job(Protocol):
    """One unit of work."""

    @property
    def path(self) -> str: ...

    def run(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class CountWords:
    """Counts the words of one chunk of the source; `kind` is that of the vocabulary."""

    source: ChunkReader
    chunk: Any
    kind: str
    lowercase: bool
    path: str

    def run(self) -> int:
        num_bytes = 0

        def sentences() -> Iterator[str]:
            nonlocal num_bytes
            for document in self.source.read(self.chunk, Counter()):
                for sentence in document:
                    num_bytes += len(sentence.encode("utf-8", "surrogatepass")) + 1
                    yield sentence

        words = count_words(self.kind, sentences(), self.lowercase)
        write_json(self.path, {"counts": words.counts, "dropped": words.dropped})
        return num_bytes

    def result(self) -> WordCounts:
        """Reads the counts that `run` wrote."""
        words, content = WordCounts(), read_json(self.path)
        words.counts.update(content["counts"])
        words.dropped.update(content["dropped"])
        return words


@dataclasses.dataclass(frozen=True)
class TokenizeChunk:
    """Writes the token ids of one chunk of the source to the folder `path`."""

    source: ChunkReader
    chunk: Any
    vocabulary: str
    config: DataConfig
    path: str

    def run(self) -> int:
        config = self.config
        tokenizer = cached_tokenizer(self.vocabulary, config.lowercase)
        key = str(config.seed).encode()
        counts = tokenize_chunk(
            self.source, self.chunk, tokenizer, key, self.path, config.counts_text
        )
        return counts["bytes"]


@dataclasses.dataclass(frozen=True)
class SampleUnit:
    """Samples pairs, or cuts runs of text, from documents unit[0] to unit[1] - 1 of a split.

    `duplicate` counts how often the unit was sampled before; `id_dtype` is that of the token store.
    """

    corpus: str
    split: str
    unit: tuple[int, int]
    duplicate: int
    length: int
    id_dtype: np.dtype
    config: DataConfig
    path: str

    def run(self) -> int:
        config = self.config
        documents = Documents(self.corpus, self.split, self.id_dtype)
        max_tokens = self.length - NUM_SPECIAL[config.segments]
        if config.segments == "pairs":
            stream = f"{config.seed} {self.split} {self.length} {self.duplicate}"
            records = sample_unit(documents, self.unit, stream, max_tokens, config.short_seq_prob)
        elif config.segments == "full_sentences":
            records = full_sentences(documents, self.unit, max_tokens)
        else:
            records = running_text(documents, self.unit, max_tokens)
        with whole_file(self.path) as part, open(part, "wb") as file:
            for record in records:
                file.write(record.to_bytes())
        documents.close()
        return 0


@dataclasses.dataclass(frozen=True)
class SampleStatic:
    """Samples the instances of a split with their masks, as the released program does.

    One random stream goes through the whole split, so that it cannot be divided.
    """

    corpus: str
    split: str
    dupe_factor: int
    length: int
    max_predictions: int
    vocabulary: str
    lexicon: "Lexicon | None"
    config: DataConfig
    path: str

    def run(self) -> int:
        config = self.config
        tokenizer = cached_tokenizer(self.vocabulary, config.lowercase)
        is_continuation = tokenizer.is_continuation if config.masking == "whole_word" else None
        masking = StaticMasking(
            masked_lm_prob=config.masked_lm_prob,
            max_predictions=self.max_predictions,
            mask_id=tokenizer.mask_id,
            random_words=tokenizer.random_words.tolist(),
            is_continuation=is_continuation,
            matcher=self.lexicon.matcher() if self.lexicon else None,
            mask_share=config.mask_share,
            keep_share=config.keep_share,
            random_share=config.random_share,
        )
        dtype = id_dtype(len(tokenizer.pieces))
        documents = Documents(self.corpus, self.split, dtype)
        max_tokens = self.length - NUM_SPECIAL[config.segments]
        with whole_file(self.path) as part:
            write_instances(
                documents,
                part,
                config.seed,
                self.dupe_factor,
                max_tokens,
                config.short_seq_prob,
                masking,
                dtype,
            )
        documents.close()
        return 0


@dataclasses.dataclass(frozen=True)
class OrderDocuments:
    """Writes the documents of a split in the order of its stream."""

    corpus: str
    split: str
    seed: int

    @property
    def path(self) -> str:
        return os.path.join(self.corpus, f"{self.split}-stream")

    def run(self) -> int:
        key = f"documents {self.seed} {self.split}"
        source = os.path.join(self.corpus, self.split)
        write_order(source, self.path, lambda places, size: permute(places, size, key))
        return 0


@dataclasses.dataclass(frozen=True)
class CutStream:
    """Writes where the rows of the stream of a split begin."""

    documents: str
    length: int
    path: str

    def run(self) -> int:
        write_rows(self.documents, self.length, self.path)
        return 0


@dataclasses.dataclass(frozen=True)
class PackRows:
    """Writes records of examples in the order of their rows, then the examples of each row."""

    unpacked: Records
    length: int
    max_examples: int
    packed: Records

    @property
    def path(self) -> str:
        return self.packed.sizes

    def run(self) -> int:
        items = self.unpacked.items()
        order, counts = pack(lengths_of(items), self.length, self.max_examples)
        with whole_file(self.packed.path) as part, open(part, "wb") as file:
            for start in range(0, len(order), _ITEMS_AT_ONCE):
                file.write(items[order[start : start + _ITEMS_AT_ONCE]].tobytes())
        with whole_file(self.packed.sizes) as part:
            counts.astype(np.uint8).tofile(part)
        return 0


@dataclasses.dataclass(frozen=True)
class WriteShard:
    """Writes rows [bounds[0], bounds[1]) of a split as the shard `shard`.

    Then it writes the shard's entry in the manifest, with the counts of its rows, to `path`.
    """

    corpus: str
    split: str
    records: Records
    bounds: tuple[int, int]
    form: RowFormat | StreamFormat
    lexicon: "Lexicon | None"
    shard: str
    path: str

    def run(self) -> int:
        order = f"{self.split}-stream" if self.form.is_stream else self.split
        documents = Documents(self.corpus, order, self.form.id_dtype)
        matcher = self.lexicon.matcher() if self.lexicon else None
        counts = write_shard(documents, self.records, self.bounds, self.form, self.shard, matcher)
        write_json(self.path, counts)
        documents.close()
        return 0


@dataclasses.dataclass(frozen=True)
class Lexicon:
    """The phrases that are masked as units, as processes pass them on.

    Attributes:
      path: the copy of the lexicon that all processes read.
      name: how errors name the lexicon.
      vocabulary: the file of the tokenizer.
      lowercase: whether the tokenizer lower cases text.
      weights: (class, weight) of each class with a weight.
    """

    path: str
    name: str
    vocabulary: str
    lowercase: bool
    weights: tuple[tuple[str, float], ...]

    @classmethod
    def make(cls, config: DataConfig, vocabulary: str, path: str) -> "Lexicon":
        weights = tuple(parse_weights(config.lexicon_weights).items())
        return cls(path, config.lexicon, vocabulary, config.lowercase, weights)

    def matcher(self) -> PhraseMatcher:
        """Returns the matcher, made once in each process (`PhraseMatcher` has the errors)."""
        return _make_matcher(self)


@functools.lru_cache(1)
def _make_matcher(lexicon: Lexicon) -> PhraseMatcher:
    tokenizer = cached_tokenizer(lexicon.vocabulary, lexicon.lowercase)
    entries = read_lexicon(lexicon.path)
    return PhraseMatcher(entries, tokenizer, lexicon.name, dict(lexicon.weights))


def join_files(paths: Sequence[str], target: str) -> None:
    """Joins files into one, and removes them."""
    with whole_file(target) as temporary, open(temporary, "wb") as joined:
        for path in paths:
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    joined.write(block)
    for path in paths:
        os.remove(path)
