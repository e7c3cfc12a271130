"""The batch form on the host, and the protocol through which a run reads any data set.

A batch is a dict of numpy arrays whose first dimension is the batch. A row holds 1 to N examples
`[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, one after the other, and padding after the last.
`token_fields` is the only function that lays out the fields that every model reads:

    input_ids        int32[batch, seq]
    token_type_ids   int32[batch, seq]   0 in [CLS] A [SEP], 1 in B [SEP], 0 in padding
    position_ids     int32[batch, seq]   restart at 0 in each example, 0 in padding
    example_ids      int32[batch, seq]   1 to N: number of the example in its row, 0: padding
    cls_positions    int32[batch, N]     where each example begins; 0 for an absent example

Training, evaluation and prediction read a data set only through `Rows` and `EvaluationBatch`:
`corpus.corpus_rows.CorpusRows` (a prepared corpus) and `labelled.labelled_rows.LabelledRows` (a
file of labelled examples) have the same methods, and every batch is a pure function of its number.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from bert_jax.files.errors import UserError

# Name of a field -> array whose first dimension is the batch.
Batch = dict[str, np.ndarray]


def token_fields(
    ids: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    first_lengths: np.ndarray,
    sequence_length: int,
    pad_id: int,
) -> Batch:
    """Lays out rows of examples, in the fields listed at the top of this file.

    Rows may share examples. A row without examples is all padding.

    Args:
      ids: int[tokens], special tokens included.
      starts: int[batch, N], where each example begins in `ids`.
      lengths: int[batch, N], tokens of each example; 0: absent, after all others of its row.
      first_lengths: int[batch, N], tokens of `[CLS] A [SEP]` of each example.
      sequence_length: tokens of a row, padding included.
      pad_id: value of `input_ids` in padding.

    Raises:
      UserError: a row has more tokens than `sequence_length`.
    """
    stops = np.cumsum(lengths, axis=1)
    begins = stops - lengths
    num_tokens = stops[:, -1:]
    if (longest := num_tokens.max(initial=0)) > sequence_length:
        raise UserError(f"A row of {longest} tokens does not fit in {sequence_length}.")
    place = np.arange(sequence_length)
    is_token = place < num_tokens
    source = starts[:, :1] + place  # int[batch, seq], index into `ids` at each place
    is_second = is_token & (place >= first_lengths[:, :1])
    position_ids = np.where(is_token, place, 0).astype(np.int32)
    example_ids = is_token.astype(np.int32)
    for number in range(1, lengths.shape[1]):
        column = slice(number, number + 1)
        begin = begins[:, column]
        is_here = is_token & (place >= begin)  # or in a later example, which comes next
        source = np.where(is_here, starts[:, column] + place - begin, source)
        is_second = np.where(is_here, place >= begin + first_lengths[:, column], is_second)
        position_ids = np.where(is_here, place - begin, position_ids).astype(np.int32)
        example_ids += is_here
    ids = ids if ids.size else np.array([pad_id], np.int32)
    tokens = ids[np.minimum(source, len(ids) - 1)]
    return {
        "input_ids": np.where(is_token, tokens, pad_id).astype(np.int32, copy=False),
        "token_type_ids": is_second.astype(np.int32),
        "position_ids": position_ids,
        "example_ids": example_ids,
        "cls_positions": np.where(lengths > 0, begins, 0).astype(np.int32),
    }


def take_rows(numbers: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Returns numbers[start:stop]; past the end, -1, the number of a padding row.

    Args:
      numbers: int64[rows, ...], the rows of a global batch.
      start, stop: may lie past the end: padding rows fill up a batch that the devices cannot share
        evenly.
    """
    part = numbers[start:stop]
    missing = ((0, stop - start - len(part)), *[(0, 0)] * (numbers.ndim - 1))
    return np.pad(part, missing, constant_values=-1)


@dataclasses.dataclass(frozen=True)
class EvaluationBatch:
    """One global batch of a pass over a data set.

    Attributes:
      row_numbers: int64[batch_size], the rows of the batch; -1: a padding row with weight 0.
      length: tokens that its rows are padded to.
      take: returns rows of the data set by their numbers.
    """

    row_numbers: np.ndarray
    length: int
    take: Callable[[np.ndarray], Batch]

    def read(self, start: int, stop: int) -> Batch:
        """Returns rows [start, stop) of the batch (`take_rows`); a process reads only its own."""
        return self.take(take_rows(self.row_numbers, start, stop))


class Rows(Protocol):
    """Rows of token ids that a run is trained or evaluated on."""

    @property
    def name(self) -> str:
        """Name of the split: `train`, `validation`, `eval`, or a name in config.data.more_eval."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash in hexadecimal digits; equal for equal data."""
        ...

    @property
    def rows_per_epoch(self) -> int:
        """Training rows of an epoch, from which durations in epochs are computed."""
        ...

    @property
    def words_per_epoch(self) -> int:
        """Words of text in an epoch; 0: not counted."""
        ...

    def batch_rows(self, number: int) -> int:
        """Returns the number of rows of global training batch `number`, over all processes.

        It depends only on the configuration and the data, not on the devices.
        """
        ...

    def batch(self, number: int, start: int, stop: int) -> Batch:
        """Returns rows [start, stop) of global training batch `number`, in the batch form.

        Rows past its last one are padding, with weight 0.
        """
        ...

    def evaluation_batches(self, batch_size: int) -> Iterator[EvaluationBatch]:
        """Yields global batches that together have each row once; padding fills up the last one."""
        ...
