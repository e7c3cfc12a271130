"""Encodes texts and pairs, one row each or one per window, and examples of several sequences.

The latter are contexts with endings, and texts to embed: one sequence per ending or text.

Texts are for classification, multi-label classification and regression. The sequences of an example
with endings, [CLS] context [SEP] start ending [SEP], are scored together (paper, section 4.4).
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np

from bert_jax.data.labelled.cells import number_of
from bert_jax.data.labelled.examples import ChoiceExample, Labels, TextExample
from bert_jax.data.labelled.sequences import (
    EncodedRows,
    GroupedRows,
    SequenceWriter,
    flat,
)
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer


def encode_texts(
    examples: Iterable[TextExample],
    tokenizer: Tokenizer,
    max_sequence_length: int,
    labels: Labels | None,
    kind: str,
    counts: Counter,
    both_orders: bool = False,
    long_texts: str = "truncate",
    stride: int = 0,
) -> EncodedRows:
    """Encodes texts; overlong ones are cut off at the end, or have a row for each window.

    Args:
      examples: read once; only their ids are kept.
      tokenizer: any.
      max_sequence_length: maximum number of tokens of a row, special tokens included.
      labels: the classes; None for a regression.
      kind: single, multi or regression.
      counts: updated with `texts_truncated`, `tokens_cut_off` and `texts_of_several_rows`; a pair
        in both orders counts once.
      both_orders: whether a row is a pair in both orders, two sequences (Radford et al. 2018,
        section 3.3).
      long_texts: "truncate" (`SequenceWriter.add_truncated`) or "windows"
        (`SequenceWriter.add_windows`), whose rows all have the label of the text.
      stride: tokens from the start of a window to that of the next one; 0: half of a window.

    Returns:
      Rows with the fields `labels`, int32[rows] (single), float32[rows, classes] of 0 and 1 (multi)
      or float32[rows], and `weights`, float32[rows], 0 where there is no gold label.

    Raises:
      UserError: naming the place, for an unknown label or the wrong number of labels, or for a
        single text where both orders are encoded; or there are no examples.
    """
    writer = SequenceWriter(tokenizer, max_sequence_length, stride)
    add = writer.add_windows if long_texts == "windows" else writer.add_truncated
    numbers, weights = array("f" if kind != "single" else "i"), array("f")
    of_rows = array("i")
    for number, example in enumerate(examples):
        first = tokenizer.encode(example.text_a)
        second = None if example.text_b is None else tokenizer.encode(example.text_b)
        before = len(writer)
        cut = add(first, second)
        num_rows = len(writer) - before
        counts["texts_truncated"] += cut > 0
        counts["tokens_cut_off"] += cut
        counts["texts_of_several_rows"] += num_rows > 1
        if both_orders:
            if second is None:
                raise UserError(
                    f"{example.where}: task.both_orders=True needs a second text: set"
                    " config.task.text_b, or task.both_orders=False."
                )
            writer.add_truncated(second, first)
        of_rows.extend([number] * num_rows)
        weights.extend([example.labels is not None] * num_rows)
        numbers.extend(_numbers(example, labels, kind) * num_rows)
    sequences, example, values = writer.finish(), flat(of_rows), flat(numbers)
    if kind == "multi":
        values = values.reshape(len(weights), -1)
    fields = {"labels": values, "weights": flat(weights)}
    if not both_orders:
        return EncodedRows(sequences=sequences, example=example, fields=fields)
    starts = 2 * np.arange(len(weights) + 1)
    return GroupedRows(sequences=sequences, example=example, fields=fields, starts=starts)


def _numbers(example: TextExample, labels: Labels | None, kind: str) -> list[float]:
    """Returns the labels of an example as numbers; zeros if it is not labelled."""
    given, where = example.labels, example.where
    if kind == "multi":
        assert labels is not None
        there = {labels.number(label, where) for label in given or ()}
        return [float(number in there) for number in range(len(labels))]
    if given is None:
        return [0]
    if len(given) != 1:
        raise UserError(
            f"{where}: {len(given)} labels, but a text of this task has one; texts with several"
            " need a multi-label task."
        )
    if labels is not None:
        return [labels.number(given[0], where)]
    if not math.isfinite(number := number_of(given[0])):
        raise UserError(
            f"{where}: the label {given[0]!r} is not a finite number, which a regression needs."
        )
    return [number]


def encode_separately(
    examples: Iterable[TextExample], tokenizer: Tokenizer, max_sequence_length: int, counts: Counter
) -> GroupedRows:
    """Encodes the texts of each example as sequences of their own, truncated at the end.

    Args:
      examples: read once; all have two texts, or all have a third one, `negative`.
      tokenizer: any.
      max_sequence_length: maximum number of tokens of a text, special tokens included.
      counts: receives `texts_truncated` and `tokens_cut_off`.

    Returns:
      Rows with the fields `text_ids`, int32[rows, texts], equal for equal texts; `scores`,
      float32[rows], 0 where there is none; and `weights`, float32[rows] of 1.

    Raises:
      UserError: naming the place, if a score is not a finite number; or there are no examples.
    """
    writer = SequenceWriter(tokenizer, max_sequence_length)
    numbers: dict[str, int] = {}
    text_ids, scores = array("i"), array("f")
    for example in examples:
        for text in (example.text_a, example.text_b, example.negative):
            if text is None:
                continue
            cut = writer.add_truncated(tokenizer.encode(text))
            counts["texts_truncated"] += cut > 0
            counts["tokens_cut_off"] += cut
            text_ids.append(numbers.setdefault(text, len(numbers)))
        scores.extend(_numbers(example, None, "regression"))
    rows = len(scores)
    sequences = writer.finish()
    return GroupedRows(
        sequences=sequences,
        example=np.arange(rows, dtype=np.int32),
        fields={
            "text_ids": flat(text_ids).reshape(rows, -1),
            "scores": flat(scores),
            "weights": np.ones(rows, np.float32),
        },
        starts=len(text_ids) // rows * np.arange(rows + 1),
    )


def encode_choices(
    examples: Iterable[ChoiceExample],
    tokenizer: Tokenizer,
    max_sequence_length: int,
    counts: Counter,
) -> GroupedRows:
    """Encodes contexts with their endings, truncated as texts are.

    Args:
      examples: read once.
      tokenizer: any.
      max_sequence_length: maximum number of tokens of a sequence, special tokens included.
      counts: receives `choices_truncated` and `tokens_cut_off`.

    Returns:
      Rows with the fields `labels`, int32[rows], and `weights`, float32[rows], 0 where there is no
      gold label.

    Raises:
      UserError: naming the place, for fewer than two endings; or there are no examples.
    """
    writer = SequenceWriter(tokenizer, max_sequence_length)
    starts, labels, weights = array("q", [0]), array("i"), array("f")
    for example in examples:
        num_endings, label = len(example.endings), example.label
        if num_endings < 2:
            raise UserError(f"{example.where}: {num_endings} endings, but two or more are needed.")
        context, start = tokenizer.encode(example.context), tokenizer.encode(example.start)
        for ending in example.endings:
            cut = writer.add_truncated(context, start + tokenizer.encode(ending))
            counts["choices_truncated"] += cut > 0
            counts["tokens_cut_off"] += cut
        starts.append(len(writer))
        labels.append(label or 0)
        weights.append(label is not None)
    return GroupedRows(
        sequences=writer.finish(),
        example=np.arange(len(labels), dtype=np.int32),
        fields={"labels": flat(labels), "weights": flat(weights)},
        starts=flat(starts),
    )
