"""Encodes contexts with several endings: [CLS] context [SEP] start ending [SEP] for each ending.

As in section 4.4 of the paper, all sequences of an example are scored together.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bert_jax.data.batch import Batch
from bert_jax.data.labelled.examples import ChoiceExample
from bert_jax.data.labelled.sequences import EncodedRows, SequenceWriter, flat, pick
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer


@dataclass(frozen=True)
class ChoiceRows(EncodedRows):
    """A row has a sequence for each choice of an example.

    Attributes:
      starts: int64[rows + 1], the first sequence of each row.
      labels: int32[rows].
      weights: float32[rows], 0 where there is no gold label.
      num_choices: choices in a batch, the most that an example has.
    """

    starts: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    num_choices: int

    @property
    def lengths(self) -> np.ndarray:
        """int32[rows], tokens of the longest sequence of each row."""
        return np.maximum.reduceat(self.sequences.lengths, self.starts[:-1])

    def take(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Returns arrays [batch, choices, length] and [batch, choices, 1], `labels`, `weights`.

        A choice that an example lacks is all padding. `row_numbers` are int64[batch].
        """
        at = np.maximum(row_numbers, 0)[:, None]
        sequences = self.starts[at] + np.arange(self.num_choices)
        is_choice = (row_numbers[:, None] >= 0) & (sequences < self.starts[at + 1])
        return self.sequences.take(np.where(is_choice, sequences, -1)[..., None], length) | {
            "labels": pick(self.labels, row_numbers),
            "weights": pick(self.weights, row_numbers),
        }


def encode_choices(
    examples: Iterable[ChoiceExample],
    tokenizer: Tokenizer,
    max_sequence_length: int,
    counts: Counter,
) -> ChoiceRows:
    """Encodes contexts with their endings.

    Args:
      examples: read once.
      tokenizer: any.
      max_sequence_length: maximum number of tokens of a sequence, special tokens included.
      counts: of `choices_truncated` and `tokens_cut_off`.

    Raises:
      UserError: naming the place, for fewer than two endings or a label that names no ending;
        there are no examples.
    """
    writer = SequenceWriter(tokenizer, max_sequence_length)
    starts, labels, weights = array("q", [0]), array("i"), array("f")
    for example in examples:
        _check(example)
        context, start = tokenizer.encode(example.context), tokenizer.encode(example.start)
        for ending in example.endings:
            cut = writer.add_truncated(context, start + tokenizer.encode(ending))
            counts["choices_truncated"] += cut > 0
            counts["tokens_cut_off"] += cut
        starts.append(len(writer))
        labels.append(example.label or 0)
        weights.append(example.label is not None)
    return ChoiceRows(
        writer.finish(),
        np.arange(len(labels), dtype=np.int32),
        flat(starts),
        flat(labels),
        flat(weights),
        int(np.diff(flat(starts)).max()),
    )


def _check(example: ChoiceExample) -> None:
    num_endings = len(example.endings)
    if num_endings < 2:
        raise UserError(f"{example.where}: {num_endings} endings, but two or more are needed.")
    if example.label is not None and not 0 <= example.label < num_endings:
        raise UserError(
            f"{example.where}: the label {example.label} is not the number of an ending, 0 to"
            f" {num_endings - 1}."
        )
