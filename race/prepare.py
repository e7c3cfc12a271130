"""Writes race/data/: the text of the race as token ids, and what is evaluated. Nobody edits this.

    python -m race.prepare

The text is `installed_docs`, the documentation of Python and of the packages in constraints.txt;
about 5 % of the documents are held out. It takes a minute, and gives the same bytes every time.

    vocab.txt       8,192 WordPiece tokens; the id of a token is its line, from 0
    train.npz       uint16[tokens] `tokens`, all sentences one after the other; int32[sentences + 1]
                    `sentences`, where each begins in `tokens`, and where the last one ends;
                    int32[documents] `documents`, which sentence each begins with
    held_out.npz    for each part and length of `evaluate`, such as tune_128_inputs: uint16[rows,
                    length] inputs, with masks; int16[rows, length] answers, the true ids of masked
                    tokens, -1 elsewhere; and uint8[8192] `characters` of each token
"""

import argparse
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus import stages
from bert_jax.data.corpus.documents import Documents, split_documents
from bert_jax.data.corpus.jobs import Jobs
from bert_jax.files.workers import Workers
from bert_jax.text.sources import make_source
from bert_jax.text.tokenization import Tokenizer
from bert_jax.tools.cli import command_line
from race.evaluate import DATA, LENGTHS, PARTS

CONFIG = DataConfig(segments="full_sentences", vocab_size=8192, validation_share=0.05)
# Masks are drawn so many times, which halves the part of the score's error that is due to them.
MASKINGS = 4
# Masked tokens are chosen from rows of this length, and are the same ones in rows of the others.
MASKED_LENGTH = 128
MASKED, TRUE, RANDOM = 0.8, 0.1, 0.1  # what becomes of masked tokens
FILES = ("vocab.txt", "train.npz", "held_out.npz")

# Ids of sentences -> documents.
Text = list[list[np.ndarray]]


def parse(words: Sequence[str]) -> argparse.Namespace:
    return command_line.parse("race.prepare", __doc__, (), words)


def main(words: Sequence[str]) -> None:
    parse(words)
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Workers(os.cpu_count() or 1) as workers:
        source = make_source(CONFIG)
        jobs = Jobs(CONFIG, source, folder, os.path.join(folder, "vocab.txt"))
        os.makedirs(os.path.dirname(jobs.corpus), exist_ok=True)
        work = stages.Work(jobs, workers, print)
        stages.make_vocabulary(work)
        stages.tokenize(work)
        split_documents(jobs.corpus, CONFIG.validation_share)
        training, held_out = (
            read_documents(Documents(jobs.corpus, split, jobs.form(MASKED_LENGTH).id_dtype))
            for split in ("train", "validation")
        )
        with open(jobs.vocabulary, "rb") as file:
            vocabulary = file.read()
    (DATA / "vocab.txt").write_bytes(vocabulary)
    np.savez(DATA / "train.npz", **training_arrays(training))
    np.savez(DATA / "held_out.npz", **held_out_arrays(held_out, jobs.tokenizer))
    print(f"{len(training):,} training and {len(held_out):,} held-out documents")
    print(f"data: {fingerprint()}")


def fingerprint() -> str:
    """Returns the SHA-256 of race/data/.

    Raises:
      FileNotFoundError: there are no data yet.
    """
    digest = hashlib.sha256()
    for name in FILES:
        if name.endswith(".npz"):  # whose bytes contain the time
            with np.load(DATA / name) as arrays:
                for key in sorted(arrays):
                    digest.update(f"{key} {arrays[key].dtype} {arrays[key].shape}".encode())
                    digest.update(arrays[key].tobytes())
        else:
            digest.update((DATA / name).read_bytes())
    return digest.hexdigest()


def read_documents(documents: Documents) -> Text:
    """Returns all sentences of the documents of a split."""
    text = []
    for number in range(len(documents)):
        starts = np.array(documents.starts(number), np.int64)
        ids = documents.tokens(int(starts[0]), int(starts[-1] - starts[0]))
        ids = np.frombuffer(ids, documents.dtype)
        text.append(np.split(ids, starts[1:-1] - starts[0]))
    documents.close()
    return text


def training_arrays(text: Text) -> dict[str, Any]:
    """Returns the arrays of train.npz."""
    sentences = [sentence for document in text for sentence in document]
    starts = np.cumsum([0, *map(len, sentences)])
    documents = np.cumsum([0, *map(len, text)])[:-1]
    return {
        "tokens": np.concatenate(sentences).astype(np.uint16),
        "sentences": starts.astype(np.int32),
        "documents": documents.astype(np.int32),
    }


# ---------------------------------------------------------------------------------- held-out text

# Where a sentence or a row begins and ends.
Span = tuple[int, int]


def held_out_arrays(text: Text, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the arrays of held_out.npz."""
    stream, sentences = make_stream(text, tokenizer.sep_id)
    arrays = {"characters": np.array(tokenizer.piece_lengths(), np.uint8)}
    # The second part begins in the middle of the rows, with a row that begins with a sentence.
    rows, begins = list(cut(sentences, MASKED_LENGTH - 2)), {begin for begin, _ in sentences}
    middle = next(start for start, _ in rows[len(rows) // 2 :] if start in begins)
    for part, is_first in zip(PARTS, (True, False), strict=True):
        own = [sentence for sentence in sentences if (sentence[0] < middle) == is_first]
        maskings = [draw_masks(stream, own, tokenizer, seed) for seed in range(MASKINGS)]
        for length in LENGTHS:
            rows = list(cut(own, length - 2))
            pairs = [lay_out(*masking, rows, length, tokenizer) for masking in maskings]
            for name, tables in zip(("inputs", "answers"), zip(*pairs, strict=True), strict=True):
                arrays[f"{part}_{length}_{name}"] = np.concatenate(tables)
    return arrays


def make_stream(text: Text, separator: int) -> tuple[np.ndarray, list[Span]]:
    """Returns all tokens, with a separator between documents, and the sentences in them."""
    parts, sentences, size = [], [], 0
    for document in text:
        if parts:
            parts.append(np.array([separator]))
            size += 1
        for sentence in document:
            sentences.append((size, size + len(sentence)))
            parts.append(sentence)
            size += len(sentence)
    return np.concatenate(parts), sentences


def cut(sentences: list[Span], room: int) -> Iterator[Span]:
    """Yields rows of a stream: as many whole sentences as fit; a longer sentence is cut.

    A separator is in a row only if the sentences before and after it are.
    """
    start = stop = sentences[0][0]
    for begin, end in sentences:
        if start < stop and end - start > room:
            yield start, stop
            start = begin
        stop = end
        while stop - start > room:
            yield start, start + room
            start += room
    yield start, stop


def draw_masks(
    stream: np.ndarray, sentences: list[Span], tokenizer: Tokenizer, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the stream with masks, and the true ids of masked tokens, -1 elsewhere.

    Of n tokens of a row, [CLS] and [SEP] counted, round(0.15 * n) are masked, as in BERT.
    """
    rng = np.random.default_rng(seed)
    inputs, answers = stream.copy(), np.full(len(stream), -1)
    for start, stop in cut(sentences, MASKED_LENGTH - 2):
        candidates = start + np.flatnonzero(stream[start:stop] != tokenizer.sep_id)
        count = min(len(candidates), max(1, round(0.15 * (stop - start + 2))))
        chosen = rng.choice(candidates, count, replace=False)
        fate = rng.random(count)
        # Special tokens have the first ids, [MASK] the last of them.
        words = rng.integers(tokenizer.mask_id + 1, len(tokenizer.pieces), count)
        answers[chosen] = stream[chosen]
        inputs[chosen] = np.where(fate < MASKED + TRUE, stream[chosen], words)
        inputs[chosen[fate < MASKED]] = tokenizer.mask_id
    return inputs, answers


def lay_out(
    inputs: np.ndarray, answers: np.ndarray, rows: list[Span], length: int, tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray]:
    """Returns uint16[rows, length] and int16[rows, length]: [CLS], the row, [SEP], padding."""
    row_inputs = np.full((len(rows), length), tokenizer.pad_id, np.uint16)
    row_answers = np.full((len(rows), length), -1, np.int16)
    row_inputs[:, 0] = tokenizer.cls_id
    for number, (start, stop) in enumerate(rows):
        end = 1 + stop - start
        row_inputs[number, 1:end], row_inputs[number, end] = inputs[start:stop], tokenizer.sep_id
        row_answers[number, 1:end] = answers[start:stop]
    return row_inputs, row_answers


if __name__ == "__main__":
    command_line.run(main)
