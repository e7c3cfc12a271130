"""The units of work of data preparation, each from files to files in one process."""

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax.config.data import DataConfig, parse_weights
from bert_jax.data.corpus.blocks import RowFormat
from bert_jax.data.corpus.documents import ChunkReader, Documents, id_dtype, tokenize_chunk
from bert_jax.data.corpus.pairs import PAIR, RUN, full_sentences, sample_unit
from bert_jax.data.corpus.running_text import RUNNING, running_text
from bert_jax.data.corpus.shards import lengths_of, write_shard
from bert_jax.data.corpus.static_instances import StaticMasking, instance_dtype, write_instances
from bert_jax.data.corpus.streams import STREAM_ROW, StreamFormat, write_order, write_rows
from bert_jax.data.packing import pack
from bert_jax.data.permutation import permute
from bert_jax.files.atomic import read_json, whole_file, write_json
from bert_jax.text.lexicon import PhraseMatcher, read_lexicon
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import WordCounts, count_words

# Of [CLS] A [SEP] B [SEP] and of [CLS] A [SEP]; rows of running text are nothing but the text.
NUM_SPECIAL = {"pairs": 3, "full_sentences": 2, "running_text": 0}
# Records that are copied at once, which bounds the memory.
_ITEMS_AT_ONCE = 1 << 16

cached_tokenizer = functools.lru_cache(1)(load_tokenizer)


@dataclasses.dataclass(frozen=True)
class Phrases:
    """The phrases that are units of masking, as arguments of a process.

    Attributes:
      lexicon: the file.
      name: how errors name it.
      vocabulary: the file of the tokenizer.
      lowercase: whether it lower cases text.
      weights: of classes, (name, weight) each.
    """

    lexicon: str
    name: str
    vocabulary: str
    lowercase: bool
    weights: tuple[tuple[str, float], ...]

    def matcher(self) -> PhraseMatcher:
        """Returns the matcher, made once in each process (`PhraseMatcher` has the errors)."""
        return _make_matcher(self)


def make_phrases(config: DataConfig, vocabulary: str, folder: str) -> Phrases:
    """Names the copy of the lexicon in a folder, so that all processes read the same one."""
    path = os.path.join(folder, "lexicon")
    weights = tuple(parse_weights(config.lexicon_weights).items())
    return Phrases(path, config.lexicon, vocabulary, config.lowercase, weights)


@functools.lru_cache(1)
def _make_matcher(phrases: Phrases) -> PhraseMatcher:
    tokenizer = cached_tokenizer(phrases.vocabulary, phrases.lowercase)
    entries = read_lexicon(phrases.lexicon)
    return PhraseMatcher(entries, tokenizer, phrases.name, dict(phrases.weights))


def count(source: ChunkReader, chunk: Any, kind: str, lowercase: bool, path: str) -> dict[str, int]:
    """Counts the words of one chunk of the source. Returns the bytes of its text."""
    num_bytes = 0

    def sentences() -> Iterator[str]:
        nonlocal num_bytes
        for document in source.read(chunk, Counter()):
            for sentence in document:
                num_bytes += len(sentence.encode("utf-8", "surrogatepass")) + 1
                yield sentence

    words = count_words(kind, sentences(), lowercase)
    write_json(path, {"counts": words.counts, "dropped": words.dropped})
    return {"bytes": num_bytes}


def read_counts(path: str) -> WordCounts:
    """Returns the counts that `count` wrote."""
    words, content = WordCounts(), read_json(path)
    words.counts.update(content["counts"])
    words.dropped.update(content["dropped"])
    return words


def tokenize(
    source: ChunkReader, chunk: Any, vocabulary: str, config: DataConfig, folder: str
) -> dict[str, int]:
    """Writes the token ids of one chunk of the source. Returns the bytes of its text."""
    tokenizer = cached_tokenizer(vocabulary, config.lowercase)
    key, counts_text = str(config.seed).encode(), config.counts_text
    counts = tokenize_chunk(source, chunk, tokenizer, key, folder, counts_text)
    return {"bytes": counts["bytes"]}


def sample(
    corpus: str,
    split: str,
    unit: tuple[int, int],
    duplicate: int,
    length: int,
    dtype: np.dtype,
    config: DataConfig,
    path: str,
) -> None:
    """Samples the pairs or runs of a unit of documents, in mode `dynamic`."""
    stream = f"{config.seed} {split} {length} {duplicate}"
    documents = Documents(corpus, split, dtype)
    most = length - NUM_SPECIAL[config.segments]
    if config.segments == "pairs":
        records = sample_unit(documents, unit, stream, most, config.short_seq_prob)
    elif config.segments == "full_sentences":
        records = full_sentences(documents, unit, most)
    else:
        records = running_text(documents, unit, most)
    with whole_file(path) as part, open(part, "wb") as file:
        for record in records:
            file.write(record.to_bytes())
    documents.close()


def order_documents(corpus: str, split: str, config: DataConfig) -> None:
    """Writes the documents of a split in the order of its stream."""
    path = os.path.join(corpus, split)
    key = f"documents {config.seed} {split}"
    write_order(path, f"{path}-stream", lambda places, size: permute(places, size, key))


def sample_stream(corpus: str, split: str, length: int, path: str) -> None:
    """Writes where the rows of the stream of a split begin."""
    write_rows(os.path.join(corpus, f"{split}-stream"), length, path)


def sample_static(
    corpus: str,
    split: str,
    dupe_factor: int,
    length: int,
    max_predictions: int,
    tokenizer: Tokenizer,
    config: DataConfig,
    path: str,
    phrases: Phrases | None = None,
) -> None:
    """Samples the instances with masks of a split, in mode `static`."""
    masking = StaticMasking(
        masked_lm_prob=config.masked_lm_prob,
        max_predictions=max_predictions,
        mask_id=tokenizer.mask_id,
        random_words=tokenizer.random_words.tolist(),
        is_continuation=tokenizer.is_continuation if config.masking == "whole_word" else None,
        matcher=phrases.matcher() if phrases else None,
        mask_share=config.mask_share,
        keep_share=config.keep_share,
        random_share=config.random_share,
    )
    dtype = id_dtype(len(tokenizer.pieces))
    documents = Documents(corpus, split, dtype)
    with whole_file(path) as part:
        write_instances(
            documents,
            part,
            config.seed,
            dupe_factor,
            length - NUM_SPECIAL[config.segments],
            config.short_seq_prob,
            masking,
            dtype,
        )
    documents.close()


def pack_rows(
    records: str, dtype: np.dtype, sequence_length: int, most: int, packed: str, sizes: str
) -> None:
    """Writes the records of examples in the order of their rows, and the examples of each row.

    Args:
      records: a file of pairs, instances or runs.
      dtype: of its items.
      sequence_length: of the rows.
      most: examples of a row.
      packed: the file of the items in their new order.
      sizes: the file of uint8[rows], written last.
    """
    items = np.memmap(records, dtype, "r") if os.path.getsize(records) else np.empty(0, dtype)
    order, counts = pack(lengths_of(items), sequence_length, most)
    with whole_file(packed) as part, open(part, "wb") as file:
        for start in range(0, len(order), _ITEMS_AT_ONCE):
            file.write(items[order[start : start + _ITEMS_AT_ONCE]].tobytes())
    with whole_file(sizes) as part:
        counts.astype(np.uint8).tofile(part)


def write(
    corpus: str,
    split: str,
    pairs: str,
    bounds: tuple[int, int],
    form: RowFormat | StreamFormat,
    dtype: np.dtype,
    path: str,
    counts: str,
    phrases: Phrases | None = None,
    sizes: str = "",
) -> None:
    """Writes one shard from records of `dtype`, and the counts of its rows.

    `sizes` is the file of the number of records of each row; empty: one.
    """
    order = f"{split}-stream" if form.is_stream else split
    documents = Documents(corpus, order, form.id_dtype)
    matcher = phrases.matcher() if phrases else None
    write_json(counts, write_shard(documents, pairs, dtype, bounds, form, path, matcher, sizes))
    documents.close()


def make_forms(config: DataConfig, tokenizer: Tokenizer) -> dict[int, RowFormat | StreamFormat]:
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
            max_predictions=most if config.mode == "static" else 0,
            end_id=None if tokenizer.end_id == tokenizer.sep_id else tokenizer.end_id,
            mask_units=config.masking == "phrase" and config.mode != "static",
            **common,
        )
        for length, most in lengths
    }


def record_dtype(config: DataConfig, form: RowFormat | StreamFormat) -> np.dtype:
    """Returns the dtype of the records of the `sample` functions for rows of this form."""
    if isinstance(form, StreamFormat):
        return STREAM_ROW
    if config.segments != "pairs":
        return RUN if config.segments == "full_sentences" else RUNNING
    return instance_dtype(form.max_predictions) if config.mode == "static" else PAIR
