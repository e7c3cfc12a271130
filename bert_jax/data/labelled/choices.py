"""Contexts with several endings: SWAG's csv, tables and JSON; an example is a row of sequences."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bert_jax.data.corpus.batch import Batch
from bert_jax.data.labelled.reading import field, text, text_field
from bert_jax.data.labelled.rows import SequenceWriter, TaskRows, fit_pair, flat, pick
from bert_jax.data.labelled.schema import ChoiceExample
from bert_jax.data.labelled.tables import Row, read_rows
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer

_ENDING = re.compile(r"ending(\d+)")


@dataclass(frozen=True)
class ChoiceColumns:
    """Which columns or fields hold what; SWAG's by default.

    Attributes:
      context: segment A.
      start: the text before each ending in segment B; None: nothing.
      endings: a column for each ending, or one field of JSON with a list of them; (): all columns
        ending0, ending1, ...
      label: number of the correct ending, from 0.
      id: column of the ids; None: the number of the row is the id.
    """

    context: str = "sent1"
    start: str | None = "sent2"
    endings: tuple[str, ...] = ()
    label: str = "label"
    id: str | None = None


def read_choices(
    path: str, counts: Counter, labelled: bool = True, columns: ChoiceColumns | None = None
) -> Iterator[ChoiceExample]:
    """Streams the examples of a table (bert_jax.data.labelled.tables describes its form).

    Args:
      path: a file; tables have a header.
      counts: `empty_texts`: contexts without text, which are kept; and the counts of tables.
      labelled: whether labels are read; every row must have one then.
      columns: what to read.

    Raises:
      UserError: naming the line, for missing columns, fewer than two endings, an empty ending, or
        an invalid label; or the file has no row.
    """
    columns = columns or ChoiceColumns()
    number = -1
    for number, (where, row) in enumerate(read_rows(path, counts, has_header=True)):
        context = text_field(row, columns.context, "data.text_a", where)
        start = "" if columns.start is None else text_field(row, columns.start, "its start", where)
        endings = _endings(row, columns.endings, where)
        label = _label(row, columns.label, len(endings), where) if labelled else None
        id = str(number) if columns.id is None else str(field(row, columns.id, "its id", where))
        counts["empty_texts"] += not context.strip()
        yield ChoiceExample(where, id, context, start, endings, label)
    if number < 0:
        raise UserError(f"{path} has no examples.")


def _endings(row: Row, names: tuple[str, ...], where: str) -> tuple[str, ...]:
    if not names:
        numbered = (match for name in row if (match := _ENDING.fullmatch(name)))
        names = tuple(match[0] for match in sorted(numbered, key=lambda match: int(match[1])))
    values = [field(row, name, "data.endings", where) for name in names]
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if len(values) < 2:
        columns = ", ".join(map(repr, row))
        raise UserError(
            f"{where}: {len(values)} endings, but two or more are needed: set data.endings to"
            f" columns of {columns}."
        )
    endings = tuple(text(value, "an ending", where) for value in values)
    if empty := [number for number, ending in enumerate(endings) if not ending.strip()]:
        raise UserError(f"{where}: ending {empty[0]} is empty.")
    return endings


def _label(row: Row, name: str, num_endings: int, where: str) -> int:
    value = field(row, name, "data.label", where)
    written = str(value).strip()
    if isinstance(value, bool) or not written.isdecimal() or int(written) >= num_endings:
        raise UserError(
            f"{where}: the label {value!r} is not a number of an ending, 0 to {num_endings - 1}."
        )
    return int(written)


@dataclass(frozen=True)
class ChoiceRows(TaskRows):
    """Attributes:
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
        """The arrays are [batch, choices, length] and [batch, choices, 1]; adds labels and weights.

        A choice that an example lacks is all padding.
        """
        at = np.maximum(row_numbers, 0)[:, None]
        sequences = self.starts[at] + np.arange(self.num_choices)
        is_choice = (row_numbers[:, None] >= 0) & (sequences < self.starts[at + 1])
        return self.sequences.take(np.where(is_choice, sequences, -1), length) | {
            "labels": pick(self.labels, row_numbers),
            "weights": pick(self.weights, row_numbers),
        }


def encode_choices(
    examples: Iterable[ChoiceExample],
    tokenizer: Tokenizer,
    max_sequence_length: int,
    counts: Counter,
) -> ChoiceRows:
    """Encodes [CLS] context [SEP] start ending [SEP] for each ending (paper, section 4.4).

    Args:
      examples: read once.
      tokenizer: any.
      max_sequence_length: most tokens of a sequence; pairs are truncated by `fit_pair`.
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
            second = start + tokenizer.encode(ending)
            kept = fit_pair(len(context), len(second), writer.room_of_pair)
            if cut := len(context) + len(second) - sum(kept):
                counts["choices_truncated"] += 1
                counts["tokens_cut_off"] += cut
            writer.add(context[: kept[0]], second[: kept[1]])
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
