"""The predictor: encoded texts -> packed rows -> batches -> answers.

All uses of a trained model go through it: predictions, features, scores, filled masks, attention,
the server and the Python API. Rows have one of few lengths, which depend on the model's
maximum length only (64, 256 and 512 for BERT), so that few shapes are compiled: a text goes into a
row of the shortest length that holds it, together with others, and attends to none of them. A batch
of many texts has about `batch_tokens` positions; a single short text is one short row.

Packing changes the last bits of predictions, by intent: sums over a row run over other padding.
Results differ by less than 1e-5 from those of one text in each row, which is how models are run
that cannot keep the texts of a row apart: ELMo, BiLSTM and CRF heads, pairs in both orders, and
multiple choice. Equal inputs in equal order give equal bits.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from bert_jax.data.batch import Batch
from bert_jax.data.labelled.texts import EncodedTexts, TextRow
from bert_jax.data.packing import pack_rows
from bert_jax.inference.loading import Forward, TrainedModel
from bert_jax.tasks.task import Answer, Prediction, Task, add_answers, in_order

# Positions of a batch, padding included.
BATCH_TOKENS = 4096
# Packed rows have 64 tokens or a power of four times as many, or the model's maximum: three lengths
# for a model of 512 positions.
_SHORT_ROW = 64
# A row holds at most one text for each of this many positions.
_TOKENS_PER_TEXT = 8
# Rows that are not packed are padded to a power of two, at least to this one.
_SHORTEST = 16
# Batches of a window, at most; and the bytes that their outputs may take, unless a single batch
# needs more.
_WINDOW_BATCHES, _WINDOW_BYTES = 16, 1 << 28


class Rows(Protocol):
    """Encoded examples in memory, such as `EncodedRows` and `EncodedTexts` of `data.labelled`."""

    @property
    def lengths(self) -> np.ndarray:
        """int[rows] in tokens."""
        ...

    def take(self, row_numbers: np.ndarray, length: int) -> Batch: ...

    def unpack(self, row_numbers: np.ndarray, answers: Any) -> tuple[np.ndarray, Any]: ...


class Predictor:
    """Runs compiled functions of a loaded model over encoded examples."""

    def __init__(self, model: TrainedModel, batch_tokens: int = BATCH_TOKENS):
        """Chooses the lengths of rows.

        Args:
          model: the model, on the devices.
          batch_tokens: positions of a batch, padding included.
        """
        self.model = model
        self.batch_tokens = batch_tokens

    def batches(self, lengths: np.ndarray, packs: bool) -> Iterator[tuple[np.ndarray, int]]:
        """Yields batches that have every row of `lengths` once, the longest first.

        Args:
          lengths: int[rows] in tokens.
          packs: whether several rows may share one of the batch.

        Yields:
          int64[batch, N] numbers of rows, -1: none, with N = 1 where they are not packed; and the
          length in tokens of the rows of the batch.
        """
        shards = self.model.batch_shards
        for length, numbers in self._by_length(lengths, packs):
            max_texts = max(2, length // _TOKENS_PER_TEXT) if packs else 1
            if packs:
                rows = pack_rows(lengths[numbers], length, max_texts)
                rows = np.where(rows >= 0, numbers[rows], -1)
            else:
                rows = numbers[np.argsort(-lengths[numbers], kind="stable")][:, None]
            size = max(1, self.batch_tokens // length // shards) * shards
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                missing = _batch_size(len(part), shards, size) - len(part)
                yield np.pad(part, ((0, missing), (0, 0)), constant_values=-1), length

    def shapes(self, lengths: np.ndarray, packs: bool) -> Iterator[tuple[int, int]]:
        """Yields (length, most rows) of the batches that examples of these lengths are in."""
        shards = self.model.batch_shards
        for length, _ in self._by_length(lengths, packs and self.model.packs):
            yield length, max(1, self.batch_tokens // length // shards) * shards

    def _by_length(self, lengths: np.ndarray, packs: bool) -> Iterator[tuple[int, np.ndarray]]:
        """Yields each length of rows, the longest first, with the numbers of its examples."""
        longest = int(lengths.max(initial=1))
        if packs:
            maximum = max(longest, self.model.encoder.max_position_embeddings)
            choices = [_SHORT_ROW << 2 * power for power in range(longest.bit_length())]
            choices = [*(n for n in choices if n < maximum), maximum]
        else:
            powers = range(_SHORTEST.bit_length() - 1, longest.bit_length() + 1)
            choices = [1 << power for power in powers]
            if longest <= (maximum := self.model.encoder.max_position_embeddings):
                choices = [*(n for n in choices if n < maximum), maximum]
        places = np.searchsorted(choices, lengths)
        for place in reversed(range(len(choices))):
            if len(numbers := np.flatnonzero(places == place)):
                yield choices[place], numbers

    def run(
        self, forward: Forward, rows: Rows, packs: bool | None = None
    ) -> Iterator[tuple[np.ndarray, int, Any]]:
        """Puts examples that are in memory through the model.

        Args:
          forward: compiled.
          rows: the examples.
          packs: whether several may share a row; None: if the encoder keeps them apart.

        Yields:
          For each batch int64[examples] numbers of examples (-1: padding), the length of its rows,
          and what `forward` returned, with the examples as first axis.
        """
        packs = self.model.packs and packs is not False
        waiting = None
        for numbers, length in self.batches(rows.lengths, packs):
            # The devices compute this batch while the host makes the next one.
            outputs = forward(self.model.params, self.model.put(_take(rows, numbers, length)))
            if waiting:
                yield _fetch(rows, *waiting)
            waiting = numbers, length, outputs
        if waiting:
            yield _fetch(rows, *waiting)

    def host_batches(self, rows: Rows, packs: bool) -> Iterator[Batch]:
        """Yields the batches of examples, as arrays of the host."""
        for numbers, length in self.batches(rows.lengths, packs and self.model.packs):
            yield _take(rows, numbers, length)

    def stream(
        self,
        forward: Forward,
        texts: Iterable[TextRow],
        done: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[TextRow, dict[str, np.ndarray]]]:
        """Yields texts in order, each with its part of what `forward` returns.

        Args:
          forward: compiled.
          texts: read as they are needed, a window at a time.
          done: called with the number of texts that are done since the last call.
        """
        texts, max_tokens = iter(texts), 0
        while (first := next(texts, None)) is not None:
            max_tokens = max_tokens or self._window_tokens(forward, first)
            window, tokens = [first], len(first.input_ids)
            while tokens < max_tokens and (row := next(texts, None)) is not None:
                window.append(row)
                tokens += len(row.input_ids)
            rows = EncodedTexts(window, self.model.tokenizer)
            found: list[dict[str, np.ndarray]] = [{}] * len(window)
            for numbers, _, answers in self.run(forward, rows):
                is_text = numbers >= 0
                for place in np.flatnonzero(is_text).tolist():
                    found[numbers[place]] = {n: array[place] for n, array in answers.items()}
                if done:
                    done(int(is_text.sum()))
            yield from zip(window, found, strict=True)

    def _window_tokens(self, forward: Forward, text: TextRow) -> int:
        """Returns the tokens of a window, from the bytes that the outputs of a row take."""
        rows = EncodedTexts([text], self.model.tokenizer)
        numbers, length = next(self.batches(rows.lengths, self.model.packs))
        batch = self.model.put(_take(rows, numbers, length))
        outputs = jax.eval_shape(forward, self.model.params, batch)
        size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(outputs))
        max_tokens = _WINDOW_BYTES * len(numbers) * length // max(1, size)
        return min(max(max_tokens, self.batch_tokens), _WINDOW_BATCHES * self.batch_tokens)


def _has_packed_form(rows: Rows, numbers: np.ndarray) -> bool:
    """Whether a batch has an axis of examples in each row, even if there is only one."""
    return numbers.shape[1] > 1 or isinstance(rows, EncodedTexts)


def _take(rows: Rows, numbers: np.ndarray, length: int) -> Batch:
    return rows.take(numbers if _has_packed_form(rows, numbers) else numbers[:, 0], length)


def _fetch(
    rows: Rows, numbers: np.ndarray, length: int, outputs: Any
) -> tuple[np.ndarray, int, Any]:
    answers = jax.device_get(outputs)
    if _has_packed_form(rows, numbers):
        numbers, answers = rows.unpack(numbers, answers)
        return numbers, length, answers
    return numbers[:, 0], length, answers


def predict_step(
    params: Any, batch: Mapping[str, jax.Array], *, task: Task
) -> dict[str, jax.Array]:
    """Returns the answers for a batch without labels."""
    outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
    return task.answers(outputs, batch)


class TaskPredictor:
    """Predicts the task that a model was trained for.

    Attributes:
      model: the model.
      data: host side of the task.
    """

    def __init__(self, predictor: Predictor, top_k: int = 5):
        """Compiles on first use.

        Args:
          predictor: the model's predictor.
          top_k: candidates for each mask.

        Raises:
          UserError: the task's head has random parameters.
        """
        self._predictor, self.model = predictor, predictor.model
        model = self.model
        model.data.check_trained(model.untrained, model.folder)
        self.data = with_top_k(model.data, top_k)
        task: Task = self.data.make_task(model.encoder, model.tokenizer)
        self._forward = model.compile(lambda params, batch: predict_step(params, batch, task=task))

    def check(self, example: Any) -> None:
        """Raises UserError for an example that cannot be predicted."""
        self.data.check_example(example, self.model.tokenizer, self.model.encoder)

    def predict(
        self, examples: Iterable[Any], counts: Counter | None = None
    ) -> Iterator[list[Prediction]]:
        """Yields the predictions of examples in order, a window at a time.

        Args:
          examples: read as they are needed.
          counts: counts what was truncated.
        """
        counts = Counter() if counts is None else counts
        for window in self.data.windows(examples):
            yield self.predict_window(window, counts)

    def predict_window(self, window: Sequence[Any], counts: Counter) -> list[Prediction]:
        """Returns the predictions of one example or more, which are in memory, in order."""
        rows = self.data.encode(window, self.model.tokenizer, counts)
        found: dict[int, Answer] = {}
        for numbers, _, outputs in self._predictor.run(self._forward, rows, self.data.can_pack):
            add_answers(found, numbers, outputs)
        return self.data.collect(window, rows, in_order(found))


def with_top_k(data: Any, top_k: int) -> Any:
    """Returns the host side of a task with the number of candidates for each mask."""
    has_it = any(field.name == "top_k" for field in dataclasses.fields(data))
    return dataclasses.replace(data, top_k=top_k) if has_it else data


def _batch_size(needed: int, shards: int, max_rows: int) -> int:
    """Returns the rows of a batch: `shards` times a power of four, or `max_rows`."""
    size = shards
    while size < needed:
        size *= 4
    return min(size, max_rows)
