"""The jobs of data preparation: each turns files into a file or folder, in one process.

Each kind of job is a method of `Jobs`. A job writes `path` last, complete or not at all, so
`path` exists only if the job is done. It returns the bytes of text that it read, or 0.
"""

import contextlib
import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax.config.data import DataConfig, parse_weights
from bert_jax.data.corpus.documents import Documents, id_dtype, tokenize_chunk, write_in_order
from bert_jax.data.corpus.pairs import PAIR, RUN, RUNNING, full_sentences, running_text, sample_unit
from bert_jax.data.corpus.shards import Records, lengths_of, make_form, write_shard
from bert_jax.data.corpus.static_instances import StaticMasking, instance_dtype, write_instances
from bert_jax.data.corpus.streams import STREAM_ROW, write_order, write_rows
from bert_jax.data.packing import pack
from bert_jax.files.atomic import whole_file, write_json
from bert_jax.files.buckets import UNFINISHED
from bert_jax.text.lexicon import PhraseMatcher, read_lexicon
from bert_jax.text.sources import Source
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import count_words

# Keyed by data.segments: the records of examples, and the number of special tokens of an example
# ([CLS] A [SEP] B [SEP] and [CLS] A [SEP]; running text has none).
_DTYPES = {
    "pairs": PAIR,
    "full_sentences": RUN,
    "doc_sentences": RUN,
    "running_text": RUNNING,
    "stream": STREAM_ROW,
}
_NUM_SPECIAL = {"pairs": 3, "full_sentences": 2, "doc_sentences": 2, "running_text": 0}


@dataclasses.dataclass(frozen=True)
class Jobs:
    """The jobs of one preparation, and where their files are; sent to the worker processes.

    Attributes:
      config: configuration of the data.
      source: the text of the configuration.
      data_dir: the folder for the data.
      vocabulary: the path of the vocabulary in `data_dir`, which the first stage writes.
    """

    config: DataConfig
    source: Source
    data_dir: str
    vocabulary: str

    def unfinished(self, name: str) -> str:
        """Returns the path of a file or folder of unfinished work."""
        return os.path.join(self.data_dir, UNFINISHED, name)

    @property
    def corpus(self) -> str:
        """The folder of the token store."""
        return self.unfinished("corpus")

    def stream_order(self, split: str) -> str:
        """Returns the path of the documents of a split in the order of its stream."""
        return os.path.join(self.corpus, f"{split}-stream")

    def examples(self, split: str, length: int) -> Records:
        """Returns the examples of a split at a sequence length, in the order of sampling."""
        dtype = _DTYPES[self.config.segments]
        if self.config.mode == "static":
            dtype = instance_dtype(self.form(length).max_predictions)
        return Records(self.unfinished(f"pairs-{split}-{length}"), dtype)

    def rows(self, split: str, length: int) -> Records:
        """Returns the examples in the order of the rows, each of which may have several."""
        records = self.examples(split, length)
        if self.config.max_examples_per_row == 1:
            return records
        return Records(f"{records.path}-packed", records.dtype, f"{records.path}-sizes")

    def num_duplicates(self, split: str) -> int:
        """Returns how often documents are sampled: once if held out, or if nothing is random."""
        is_repeated = split == "train" and self.config.segments == "pairs"
        return self.config.dupe_factor if is_repeated else 1

    @property
    def tokenizer(self) -> Tokenizer:
        return _load_tokenizer(self.vocabulary, self.config.lowercase)

    @property
    def matcher(self) -> PhraseMatcher | None:
        """Finds the phrases that are masked as units; None: there are none.

        Raises:
          UserError: see `PhraseMatcher`.
        """
        name, copy = self.config.lexicon, self.unfinished("lexicon")
        weights = tuple(self.config.lexicon_weights)
        tokenizer = self.vocabulary, self.config.lowercase
        return _load_matcher(copy, name, weights, *tokenizer) if name else None

    def form(self, length: int) -> Any:
        """Returns the RowFormat or StreamFormat of the rows at a sequence length."""
        return make_form(self.config, self.tokenizer, length)

    def documents(self, split: str) -> contextlib.closing[Documents]:
        """Opens the documents of a split, or of its stream."""
        dtype = id_dtype(len(self.tokenizer.pieces))
        return contextlib.closing(Documents(self.corpus, split, dtype))

    # ------------------------------------------------------------------ jobs

    def count_words(self, path: str, chunk: Any, kind: str) -> int:
        """Counts the words of one chunk of the source, for a vocabulary of this kind."""
        num_bytes = 0

        def sentences() -> Iterator[str]:
            nonlocal num_bytes
            for document in self.source.read(chunk, Counter()):
                for sentence in document:
                    num_bytes += len(sentence.encode("utf-8", "surrogatepass")) + 1
                    yield sentence

        words = count_words(kind, sentences(), self.config.lowercase)
        write_json(path, {"counts": words.counts, "dropped": words.dropped})
        return num_bytes

    def tokenize(self, path: str, chunk: Any) -> int:
        """Writes the token ids of one chunk of the source to a folder."""
        key = str(self.config.seed).encode()
        return tokenize_chunk(self.source, chunk, self.tokenizer, key, path)["bytes"]

    def sample(
        self, path: str, split: str, length: int, unit: tuple[int, int], duplicate: int
    ) -> int:
        """Samples pairs, or cuts runs of text, from documents unit[0] to unit[1] - 1 of a split.

        `duplicate` is how often the unit was sampled before.
        """
        config, segments = self.config, self.config.segments
        max_tokens = length - _NUM_SPECIAL[segments]
        with self.documents(split) as documents:
            if segments == "pairs":
                stream = f"{config.seed} {split} {length} {duplicate}"
                short_seq_prob = config.short_seq_prob
                records = sample_unit(documents, unit, stream, max_tokens, short_seq_prob)
            elif segments == "running_text":
                records = running_text(documents, unit, max_tokens)
            else:
                crosses = segments == "full_sentences"
                records = full_sentences(documents, unit, max_tokens, crosses)
            with whole_file(path) as part:
                np.fromiter(records, _DTYPES[segments]).tofile(part)
        return 0

    def sample_static(self, path: str, split: str, length: int) -> int:
        """Samples the instances of a split with their masks, as the released program does.

        One random stream goes through the whole split, so it cannot be divided.
        """
        config, tokenizer = self.config, self.tokenizer
        is_continuation = tokenizer.is_continuation if config.masking == "whole_word" else None
        masking = StaticMasking(
            masked_lm_prob=config.masked_lm_prob,
            max_predictions=self.form(length).max_predictions,
            mask_id=tokenizer.mask_id,
            random_words=tokenizer.random_words.tolist(),
            is_continuation=is_continuation,
            matcher=self.matcher,
            mask_share=config.mask_share,
            keep_share=config.keep_share,
            random_share=config.random_share,
        )
        sizes = length - _NUM_SPECIAL["pairs"], config.short_seq_prob
        with self.documents(split) as documents, whole_file(path) as part:
            repeats = self.num_duplicates(split)
            write_instances(documents, part, config.seed, repeats, *sizes, masking)
        return 0

    def order_documents(self, path: str, split: str) -> int:
        """Writes the documents of a split in the order of its stream."""
        key = f"documents {self.config.seed} {split}"
        source = os.path.join(self.corpus, split)
        write_order(source, path, key)
        return 0

    def cut_stream(self, path: str, split: str, length: int) -> int:
        """Writes where the rows of the stream of a split begin."""
        write_rows(self.stream_order(split), length, path)
        return 0

    def pack_rows(self, path: str, split: str, length: int) -> int:
        """Writes the examples in the order of their rows, and then the examples of each row."""
        items = self.examples(split, length).items()
        order, counts = pack(lengths_of(items), length, self.config.max_examples_per_row)
        with whole_file(self.rows(split, length).path) as part:
            write_in_order(part, items, order)
        with whole_file(path) as part:
            counts.astype(np.uint8).tofile(part)
        return 0

    def write_shard(self, path: str, shard: str, split: str, length: int, rows: range) -> int:
        """Writes rows of a split as a shard, and then its entry in the manifest, with counts."""
        form, records = self.form(length), self.rows(split, length)
        with self.documents(f"{split}-stream" if form.is_stream else split) as documents:
            write_json(path, write_shard(documents, records, rows, form, shard, self.matcher))
        return 0


_load_tokenizer = functools.lru_cache(1)(load_tokenizer)


@functools.lru_cache(1)
def _load_matcher(copy: str, name: str, weights: tuple[str, ...], vocabulary: str, lowercase: bool):
    tokenizer = _load_tokenizer(vocabulary, lowercase)
    return PhraseMatcher(read_lexicon(copy), tokenizer, name, parse_weights(weights))
