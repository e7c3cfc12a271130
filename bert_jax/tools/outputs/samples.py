"""Samples of a run's texts: held-out sentences with a masked token, batches for head statistics."""

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from bert_jax.config.data import DataConfig
from bert_jax.config.run import RunConfig
from bert_jax.data.batch import Batch
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import held_out_split
from bert_jax.files import buckets
from bert_jax.files.errors import UserError
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.predictor import BATCH_TOKENS, Predictor
from bert_jax.text.tokenization import Tokenizer

# Number of words of four letters or more, at the beginning of a vocabulary, that are frequent.
_FREQUENT = 150


def held_out_sentences(config: RunConfig, workdir: str, count: int) -> list[tuple[str, str]]:
    """Returns sentences of the held-out text with one word replaced by [MASK], and that word.

    A sentence has 6 to 30 tokens, most of them words. The masked token is a single piece of four
    letters or more, not the first of its sentence, and frequent, so that a small model can have
    learned it: frequent words come first in a trained vocabulary. The choice depends on the data
    only.

    Raises:
      UserError: nothing is held out.
    """
    manifest, split = _held_out(config, workdir)
    tokenizer, lowercase = manifest.tokenizer(), manifest.content["tokenizer"]["lowercase"]
    rows = manifest.rows(split, manifest.sequence_lengths[0])
    is_word = np.array([piece.lstrip("▁").isalpha() for piece in tokenizer.pieces])
    is_long = np.array([len(piece.lstrip("▁")) > 3 for piece in tokenizer.pieces])
    is_whole = is_word & is_long & ~tokenizer.is_continuation
    is_frequent = np.cumsum(is_whole) <= _FREQUENT
    rng, chosen, seen = np.random.default_rng(0), [], set()
    for number in rng.permutation(len(rows)).tolist():
        ids = _first_sentence(rows.read(np.array([number])), tokenizer)
        if not len(ids) or not is_word[ids[0]] or is_word[ids].mean() < 0.8:
            continue
        goes_on = np.append(tokenizer.is_continuation[ids[1:]], False)
        spots = np.flatnonzero((is_whole & is_frequent)[ids] & ~goes_on)
        spots = spots[spots > 0]
        if not len(spots) or (whole := tokenizer.decode(ids)) in seen:
            continue
        seen.add(whole)
        spot = int(rng.choice(spots))
        word = tokenizer.pieces[ids[spot]].lstrip("▁")
        before, after = tokenizer.decode(ids[:spot]), tokenizer.decode(ids[spot + 1 :])
        text = re.sub(r" (?=[,.;:!?)])", "", f"{before} [MASK] {after}".strip())
        chosen.append((text[0].upper() + text[1:] if lowercase else text, word))
        if len(chosen) == count:
            break
    return chosen


def _first_sentence(row: dict[str, np.ndarray], tokenizer: Tokenizer) -> np.ndarray:
    """Returns int32[tokens], the first sentence of A with 6 to 30 tokens; empty if none has."""
    is_first = (row["token_type_ids"] == 0) & (row["example_ids"] > 0)
    ids = row["input_ids"][is_first][1:-1]  # without [CLS] and [SEP]
    ends = [i + 1 for i, piece in enumerate(ids) if tokenizer.pieces[piece] in (*".!?。！？",)]
    for start, stop in zip([0, *ends], ends, strict=False):
        if 6 <= stop - start <= 30:
            return ids[start:stop]
    return ids[:0]


# ------------------------------------------------------------------ batches for head statistics

_FIELDS = ("input_ids", "token_type_ids", "position_ids", "example_ids")


def sample_batches(
    model: TrainedModel, path: str, max_rows: int, counts: Counter | None = None
) -> Iterator[Batch]:
    """Yields batches of int32[batch, seq] fields with some texts of a file or held-out split.

    The texts are evenly spaced in it, since files are often sorted.

    Args:
      model: the model, on the devices.
      path: a file as `predict` reads it for the task; "" is the held-out split of a corpus, or
        config.data.eval.
      max_rows: maximum number of rows of the corpus, or examples of the file.
      counts: counts what was cut off.

    Raises:
      UserError: there is no such split or file, or nothing in it.
    """
    config, task = model.config, model.task
    if not path and config.has_corpus:
        yield from _corpus_batches(model, max_rows)
        return
    source = path or buckets.local(config["data.eval"])
    if not source:
        raise UserError(f"{model.folder} has no config.data.eval: give a file, --input=FILE.")
    count = sum(1 for _ in task.read(source, Counter(), labelled=not path))
    chosen = {*_evenly(count, max_rows).tolist()}
    read = enumerate(task.read(source, Counter(), labelled=not path))
    examples = [example for number, example in read if number in chosen]
    if not examples:
        raise UserError(f"{source} holds no text: there is nothing to do.")
    for example in examples:
        task.check_example(example, model.tokenizer, model.encoder)
    rows = task.encode(examples, model.tokenizer, Counter() if counts is None else counts)
    for local in Predictor(model).host_batches(rows):
        # Rows of a multiple choice are [batch, choices, seq].
        yield {name: local[name].reshape(-1, local[name].shape[-1]) for name in _FIELDS}


def _evenly(count: int, maximum: int) -> np.ndarray:
    """int64[...]: at most `maximum` of the numbers from 0 to count - 1, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, maximum)).round().astype(np.int64))


def _corpus_batches(model: TrainedModel, max_rows: int) -> Iterator[Batch]:
    manifest, split = _held_out(model.config, model.folder)
    length = manifest.sequence_lengths[-1]
    rows = manifest.rows(split, length)
    shards = model.batch_shards
    size = max(1, BATCH_TOKENS // length // shards) * shards
    numbers = _evenly(len(rows), max_rows)
    for start in range(0, len(numbers), size):
        part = numbers[start : start + size]
        batch = rows.read(np.pad(part, (0, size - len(part)), constant_values=-1))
        yield {name: batch[name] for name in _FIELDS}


def _held_out(config: RunConfig, workdir: str) -> tuple[Manifest, str]:
    """Returns the data with the held-out rows of a run, and the name of their split."""
    folder = config.data_dir(workdir)
    assert isinstance(config.data, DataConfig)
    if found := held_out_split(config.data, Manifest.load(folder)):
        return found
    raise UserError(f"{folder} has no held-out split: give texts, or a file with --input=FILE.")
