"""Encodes texts and pairs of texts, a row each: classification, multi-label and regression."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bert_jax.data.batch import Batch
from bert_jax.data.labelled.examples import Labels, TextExample
from bert_jax.data.labelled.sequences import EncodedRows, SequenceWriter, flat, pick
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer

# The label of a text: one class, any number of classes, a number.
LABEL_KINDS = ("single", "multi", "regression")


@dataclass(frozen=True)
class TextRows(EncodedRows):
    """A row is a text or a pair.

    Attributes:
      labels: int32[rows] (single), float32[rows, classes] of 0 and 1 (multi) or float32[rows].
      weights: float32[rows], 0 where there is no gold label.
    """

    labels: np.ndarray
    weights: np.ndarray

    def take(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Adds `labels` and float32 `weights`, [batch, ...] or, packed, [batch, N, ...]."""
        return super().take(row_numbers, length) | self._labels(row_numbers)

    def _labels(self, row_numbers: np.ndarray) -> Batch:
        return {
            "labels": pick(self.labels, row_numbers),
            "weights": pick(self.weights, row_numbers),
        }


@dataclass(frozen=True)
class BothOrdersRows(TextRows):
    """A row is a pair in both orders: sequences 2 * row (A, B) and 2 * row + 1 (B, A)."""

    @property
    def lengths(self) -> np.ndarray:
        """int32[rows], tokens of the longer sequence of each row."""
        return self.sequences.lengths.reshape(-1, 2).max(axis=1)

    def take(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Returns arrays [batch, 2, length] and [batch, 2, 1], and labels and weights as above."""
        sequences = 2 * row_numbers[:, None] + np.arange(2)
        is_row = row_numbers[:, None] >= 0
        batch = self.sequences.take(np.where(is_row, sequences, -1)[..., None], length)
        return batch | self._labels(row_numbers)


def encode_texts(
    examples: Iterable[TextExample],
    tokenizer: Tokenizer,
    max_sequence_length: int,
    labels: Labels | None,
    kind: str,
    counts: Counter,
    both_orders: bool = False,
) -> TextRows:
    """Encodes texts; overlong ones are truncated at the end, of a pair the longer text first.

    Args:
      examples: read once; only their ids are kept.
      tokenizer: any.
      max_sequence_length: maximum number of tokens of a row, special tokens included.
      labels: the classes; None for a regression.
      kind: of LABEL_KINDS.
      counts: of `texts_truncated` and `tokens_cut_off`, of a pair in both orders once.
      both_orders: whether a row is a pair in both orders (Radford et al. 2018, section 3.3).

    Raises:
      UserError: naming the place, for an unknown label or the wrong number of labels, or for a
        single text where both orders are encoded; or there are no examples.
    """
    writer = SequenceWriter(tokenizer, max_sequence_length)
    numbers, weights = array("f" if kind != "single" else "i"), array("f")
    for example in examples:
        first = tokenizer.encode(example.text_a)
        second = None if example.text_b is None else tokenizer.encode(example.text_b)
        cut = writer.add_truncated(first, second)
        counts["texts_truncated"] += cut > 0
        counts["tokens_cut_off"] += cut
        if both_orders:
            if second is None:
                raise UserError(
                    f"{example.where}: head.both_orders=True needs a second text: set"
                    " config.data.text_b, or head.both_orders=False."
                )
            writer.add_truncated(second, first)
        weights.append(example.labels is not None)
        numbers.extend(_numbers(example, labels, kind))
    sequences = writer.finish()
    values = flat(numbers)
    if kind == "multi":
        values = values.reshape(len(weights), -1)
    make = BothOrdersRows if both_orders else TextRows
    return make(sequences, np.arange(len(weights), dtype=np.int32), values, flat(weights))


def _numbers(example: TextExample, labels: Labels | None, kind: str) -> list[float]:
    """Returns the labels of an example as numbers; zeros if it is not labelled."""
    given, where = example.labels, example.where
    if kind == "multi":
        assert labels is not None
        row = [0.0] * len(labels)
        for label in given or ():
            row[labels.number(label, where)] = 1.0
        return row
    if given is None:
        return [0]
    if len(given) != 1:
        raise UserError(
            f"{where}: {len(given)} labels, but a text of this task has one; texts with several"
            " need a multi-label task."
        )
    if labels is not None:
        return [labels.number(given[0], where)]
    try:
        number = float(given[0])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(
            f"{where}: the label {given[0]!r} is not a finite number, which a regression needs."
        )
    return [number]
