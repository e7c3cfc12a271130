"""The statistics of attention heads over texts (scores/attention.py), summed on the devices.

The texts of a sample are at even distances in their file or split, since files are often sorted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.encoders import TransformerConfig
from bert_jax.config.fields import data_dir, has_corpus
from bert_jax.data.batch import Batch
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.files import buckets
from bert_jax.files.errors import UserError
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.predictor import BATCH_TOKENS, Predictor
from bert_jax.models.layers.masks import can_attend
from bert_jax.scores.attention import STATISTICS
from bert_jax.text.tokenization import Tokenizer
from bert_jax.training.open import VALIDATION

_FIELDS = ("input_ids", "token_type_ids", "position_ids", "example_ids")


def special_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns the ids that rows have in addition to text: they do not attend in a statistic."""
    return tuple(sorted({tokenizer.cls_id, tokenizer.sep_id, tokenizer.end_id}))


def sum_heads(
    config: TransformerConfig,
    tokenizer: Tokenizer,
    attention: tuple[jax.Array, ...],
    batch: Mapping[str, jax.Array],
) -> dict[str, jax.Array]:
    """Returns the sums of the statistics over the tokens that attend, and the number of these.

    Args:
      config: of the encoder.
      tokenizer: has the ids of special tokens.
      attention: of each layer, float32[batch, heads, seq, seq] probabilities.
      batch: what the encoder takes.

    Returns:
      float32[batch, statistics, layers, heads] `sums` in the order of STATISTICS, and
      float32[batch] `attending`.
    """
    ids, places, examples = (batch[n] for n in ("input_ids", "position_ids", "example_ids"))
    is_special = jnp.isin(ids, jnp.array(special_ids(tokenizer)))
    attends = ((examples > 0) & ~is_special).astype(jnp.float32)
    offsets = (
        places[:, None, :] - places[:, :, None]
    )  # of the key from the query, [batch, seq, seq]
    is_separator = jnp.isin(ids, jnp.array([tokenizer.sep_id, tokenizer.end_id]))
    # What each probability counts with.
    factors = {
        "distance": jnp.abs(offsets),
        "separator": jnp.broadcast_to(is_separator[:, None], offsets.shape),
        "first": jnp.broadcast_to(places[:, None] == 0, offsets.shape),
        "previous": offsets == -1,
        "self": offsets == 0,
        "next": offsets == 1,
    }
    layers = []
    for number, probs in enumerate(attention):
        mask = "bidirectional" if config.is_global(number) else config.attention_pattern
        visible = can_attend(examples, places, mask, config.attention_window)[:, 0].sum(-1)
        entropy = jax.scipy.special.entr(probs).sum(-1)  # [batch, heads, seq]
        evenness = entropy / jnp.log(jnp.maximum(visible, 2))[:, None]
        values = {
            "entropy": jnp.einsum("bhs,bs->bh", entropy, attends),
            "evenness": jnp.einsum("bhs,bs->bh", evenness, attends),
        }
        for name, factor in factors.items():
            weights = factor.astype(jnp.float32) * attends[:, :, None]
            values[name] = jnp.einsum("bhst,bst->bh", probs, weights)
        layers.append(jnp.stack([values[name] for name in STATISTICS], axis=1))
    return {"sums": jnp.stack(layers, axis=2), "attending": attends.sum(1)}


def mean_statistics(sums: np.ndarray, attending: float, where: str) -> np.ndarray:
    """float64[statistics, layers, heads] -> float32, means over the tokens that attend.

    Raises:
      UserError: there are none.
    """
    if not attending:
        raise UserError(f"{where} has no token but special ones: give a text with words.")
    return (sums / attending).astype(np.float32)


def sample_batches(model: TrainedModel, path: str, max_rows: int) -> Iterator[Batch]:
    """Yields batches of int32[batch, seq] fields with some texts of a file or held-out split.

    Args:
      model: on the devices.
      path: a file as `predict` reads it for the task; "" is the held-out split of a corpus, or
        config.data.eval.
      max_rows: maximum number of rows of the corpus, or examples of the file.

    Raises:
      UserError: there is no such split or file, or nothing in it.
    """
    config, data = model.config, model.data
    if not path and has_corpus(config):
        yield from _corpus_batches(model, max_rows)
        return
    source = path or buckets.local(config.data.eval)
    if not source:
        raise UserError(f"{model.folder} has no config.data.eval: give a file, --input=FILE.")
    count = sum(1 for _ in data.read(source, Counter(), labelled=not path))
    chosen = {*_evenly(count, max_rows).tolist()}
    read = enumerate(data.read(source, Counter(), labelled=not path))
    examples = [example for number, example in read if number in chosen]
    if not examples:
        raise UserError(f"{source} holds no text: there is nothing to do.")
    for example in examples:
        data.check_example(example, model.tokenizer, model.encoder)
    rows = data.encode(examples, model.tokenizer, Counter())
    for local in Predictor(model).host_batches(rows, packs=False):
        # Rows of a multiple choice are [batch, choices, seq].
        yield {name: local[name].reshape(-1, local[name].shape[-1]) for name in _FIELDS}


def sample_statistics(
    model: TrainedModel, forward: Any, batches: Iterator[Batch]
) -> tuple[np.ndarray, int, int]:
    """Returns the statistics over batches, and the numbers of their rows and attending tokens.

    Args:
      model: with its parameters.
      forward: compiled, (params, batch) -> what `sum_heads` returns.
      batches: of `sample_batches`.

    Returns:
      float32[statistics, layers, heads] and two counts; rows of padding do not count.

    Raises:
      UserError: no token attends.
    """
    total, attending, rows = np.zeros(()), 0.0, 0
    for batch in batches:
        found = model.call(forward, batch)
        total = total + found["sums"].sum(axis=0, dtype=np.float64)
        attending += float(found["attending"].sum(dtype=np.float64))
        rows += int((batch["example_ids"] > 0).any(axis=1).sum())
    return mean_statistics(total, attending, "The sample"), rows, round(attending)


def _evenly(count: int, maximum: int) -> np.ndarray:
    """int64[...]: at most `maximum` of the numbers from 0 to count - 1, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, maximum)).round().astype(np.int64))


def _corpus_batches(model: TrainedModel, max_rows: int) -> Iterator[Batch]:
    manifest = Manifest.load(data_dir(model.config, model.folder))
    if VALIDATION not in manifest.splits:
        raise UserError(f"{manifest.folder} has no held-out split: give a file, --input=FILE.")
    length = manifest.sequence_lengths[-1]
    rows = manifest.rows(VALIDATION, length)
    shards = model.batch_shards
    size = max(1, BATCH_TOKENS // length // shards) * shards
    numbers = _evenly(len(rows), max_rows)
    for start in range(0, len(numbers), size):
        part = numbers[start : start + size]
        batch = rows.read(np.pad(part, (0, size - len(part)), constant_values=-1))
        yield {name: batch[name] for name in _FIELDS}
