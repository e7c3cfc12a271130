"""The predictor: encoded texts -> packed rows -> batches -> answers.

All uses of a trained model go through it: predictions, features, scores, filled masks, attention,
the server and the Python API. Rows have one of a few lengths, which depend only on the model's
maximum length (64, 256 and 512 for BERT), so that few shapes are compiled: a text goes into a
row of the shortest length that holds it, together with others, and attends to none of them. A batch
of many texts has about `batch_tokens` positions. A single text, or a few short ones, form one row
of the first length in `_SINGLE_ROWS` that holds them; on one CPU device `short_rows` computes the
blocks of such a row of up to 64 tokens.

On one CPU device several threads each compute a batch: one batch at a time leaves cores idle
in operations that are too small to be divided among them. Several devices get one batch after the
other, since their collectives must start in the same order everywhere.

Packing changes the last bits of predictions, by design: sums over a row include other padding.
Results differ by less than 1e-5 from those with one text in each row. Models that cannot keep the
texts of a row apart are run that way: ELMo, BiLSTM and CRF heads, pairs in both orders, and
multiple choice. The same inputs in the same order give identical bits.

With `TrainedModel.exact`, a text gives identical bits in any batch and order: it is alone in a row
whose length depends only on the text, and each program has a fixed number of rows, filled up with
padding, so no sum is computed in another way.
"""

import dataclasses
import functools
import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import jax
import numpy as np

from bert_jax.data.batch import Batch
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.sequences import EncodedRows, GroupedRows
from bert_jax.data.labelled.texts import EncodedTexts, TextRow
from bert_jax.data.packing import pack_rows
from bert_jax.devices import processor
from bert_jax.files.errors import UserError
from bert_jax.inference.loading import Program, TrainedModel
from bert_jax.tasks.task import Answer, Prediction, Task, add_answers, in_order

# Positions of a batch, padding included: on one CPU device, whose caches then hold the activations
# of a layer, and on others.
_CPU_BATCH_TOKENS, BATCH_TOKENS = 1024, 4096
# Packed rows have 64 tokens times a power of four, or the model's maximum: three lengths for a
# model with 512 positions.
_SHORT_ROW = 64
# Lengths of the row of a single text or of a few short ones.
_SINGLE_ROWS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# A row holds at most one text for each of this many positions.
_TOKENS_PER_TEXT = 8
# Rows that are not packed are padded to a power of two, at least to this one.
_SHORTEST = 16
# Exact: rows have a multiple of 4 tokens up to 32, and then of an eighth of the next power of two.
# A CPU gets few positions at a time, since a single text takes as long as a full batch: at least
# 128, and up to so many features, without which narrow models wait for their programs.
_EXACT_STEP, _EXACT_CPU_BATCH_TOKENS, _EXACT_CPU_FEATURES = 4, 128, 1 << 16
# Maximum number of batches in a window, and of bytes that their outputs take, unless a single batch
# needs more.
_WINDOW_BATCHES, _WINDOW_BYTES = 64, 1 << 28


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

    def __init__(self, model: TrainedModel, batch_tokens: int = 0):
        """Chooses the lengths of rows.

        Args:
          batch_tokens: positions of a batch, padding included; 0: 1,024 on one CPU device, 4,096
            on others.
        """
        self.model = model
        platform, *others = [device.platform for device in model.mesh.devices.flat]
        is_cpu = platform == "cpu" and not others
        self.batch_tokens = batch_tokens or (_CPU_BATCH_TOKENS if is_cpu else BATCH_TOKENS)
        exact_tokens = BATCH_TOKENS
        if platform == "cpu":
            most = _EXACT_CPU_FEATURES // model.encoder.hidden_size
            exact_tokens = max(_EXACT_CPU_BATCH_TOKENS, 1 << most.bit_length() - 1)
        self._exact_tokens = batch_tokens or exact_tokens  # of each device
        self._num_threads = processor.num_cores() if is_cpu else 0

    def _batches_of(self, rows: Any, packs: bool) -> Iterator[tuple[np.ndarray, int]]:
        if self.model.exact:
            return self._exact_batches(rows)
        return self.batches(rows.lengths, packs)

    def batches(self, lengths: np.ndarray, packs: bool) -> Iterator[tuple[np.ndarray, int]]:
        """Yields batches that hold each row of `lengths` once, the longest first; not for `exact`.

        Args:
          lengths: int[rows] in tokens.
          packs: whether several of these rows may share a row of the batch.

        Yields:
          int64[batch, N] numbers of rows, -1: none, with N = 1 where they are not packed; and the
          length in tokens of the rows of the batch.
        """
        shards = self.model.batch_shards
        if packs and (length := self._single_length(lengths)):
            numbers = np.full((shards, _max_texts(length)), -1)
            numbers[0, : len(lengths)] = np.arange(len(lengths))
            yield numbers, length
            return
        for length, numbers in self._by_length(lengths, packs):
            if packs:
                rows = pack_rows(lengths[numbers], length, _max_texts(length))
                rows = np.where(rows >= 0, numbers[rows], -1)
            else:
                rows = numbers[np.argsort(-lengths[numbers], kind="stable")][:, None]
            most = self._most_rows(length)
            for start in range(0, len(rows), most):
                part = rows[start : start + most]
                size = shards  # times a power of four, so that few shapes are compiled
                while size < len(part):
                    size *= 4
                missing = min(size, most) - len(part)
                yield np.pad(part, ((0, missing), (0, 0)), constant_values=-1), length

    def _exact_batches(self, rows: Rows) -> Iterator[tuple[np.ndarray, int]]:
        """Yields what `batches` does; the shape of a batch follows from any one of its rows."""
        kinds: dict[tuple[int, int], list[int]] = {}
        for number, (length, key) in enumerate(zip(rows.lengths, _shape_keys(rows), strict=True)):
            kinds.setdefault((self._exact_length(int(length)), int(key)), []).append(number)
        for (length, _), numbers in sorted(kinds.items(), reverse=True):
            most = self._exact_rows(length)
            for start in range(0, len(numbers), most):
                part = numbers[start : start + most]
                yield np.array(part + [-1] * (most - len(part)))[:, None], length

    def _exact_length(self, length: int) -> int:
        step = max(_EXACT_STEP, 1 << (length - 1).bit_length() >> 3)
        padded = -(-length // step) * step
        longest = self.model.encoder.max_position_embeddings
        return padded if length > longest else min(padded, longest)

    def _exact_rows(self, length: int) -> int:
        return max(1, self._exact_tokens // length) * self.model.batch_shards

    def shapes(self, lengths: np.ndarray, packs: bool) -> Iterator[tuple[int, int]]:
        """Yields (length, maximum number of rows) of the batches for examples of these lengths.

        If they fit into a single row, its length comes first, with 1 as the number of rows.
        """
        if self.model.exact:
            for length in {self._exact_length(length) for length in lengths.tolist()}:
                yield length, self._exact_rows(length)
            return
        packs = packs and self.model.packs
        if packs and (length := self._single_length(lengths)):
            yield length, 1
        for length, _ in self._by_length(lengths, packs):
            yield length, self._most_rows(length)

    def _most_rows(self, length: int) -> int:
        shards = self.model.batch_shards
        return max(1, self.batch_tokens // length // shards) * shards

    def _single_length(self, lengths: np.ndarray) -> int:
        """Returns the length of the row for a single text or a few short ones; 0 for others."""
        count, total = len(lengths), int(lengths.sum())
        if count > 1 and total > _SHORT_ROW:
            return 0
        needed = max(total, _TOKENS_PER_TEXT * count if count > 2 else 0)
        longest = self.model.encoder.max_position_embeddings
        return next((n for n in _SINGLE_ROWS if needed <= n <= longest), 0)

    def _by_length(self, lengths: np.ndarray, packs: bool) -> Iterator[tuple[int, np.ndarray]]:
        """Yields each length of rows, the longest first, with the numbers of its examples."""
        longest = int(lengths.max(initial=1))
        shortest, factor = (_SHORT_ROW, 4) if packs else (_SHORTEST, 2)
        choices = [shortest * factor**power for power in range(longest.bit_length())]
        maximum = self.model.encoder.max_position_embeddings
        if packs or longest <= maximum:
            maximum = max(longest, maximum)
            choices = [*(n for n in choices if n < maximum), maximum]
        places = np.searchsorted(choices, lengths)
        for place in reversed(range(len(choices))):
            if len(numbers := np.flatnonzero(places == place)):
                yield choices[place], numbers

    def run(
        self, forward: Program, rows: Rows, packs: bool | None = None
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Puts examples that are in memory through the model.

        Args:
          packs: whether several may share a row; None: if the encoder keeps them apart.

        Yields:
          For each batch, int64[examples] numbers of examples (-1: padding), and what `forward`
          returned, with the examples as the first axis.
        """
        packs = self.model.packs and packs is not False
        if self.model.exact and isinstance(rows, EncodedRows):
            rows = dataclasses.replace(rows, exact=True)
        batches = self._batches_of(rows, packs)
        yield from self._compute(forward, ((rows, *batch) for batch in batches))

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._num_threads, "predict")

    def _compute(
        self, forward: Program, batches: Iterator[tuple[Rows, np.ndarray, int]]
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Yields what `run` does, in order; batches are made while others are computed."""

        def dispatch(rows: Rows, numbers: np.ndarray, length: int) -> Callable[[], Any]:
            numbers = _numbers(rows, numbers)
            outputs = forward(rows.take(numbers, length))

            def fetch() -> tuple[np.ndarray, Any]:
                answers = jax.device_get(outputs)
                return rows.unpack(numbers, answers) if numbers.ndim == 2 else (numbers, answers)

            return fetch

        def submit(*batch: Any) -> Callable[[], Any]:
            return self._threads.submit(lambda: dispatch(*batch)()).result

        first = list(itertools.islice(batches, 2))
        uses_threads = self._num_threads > 0 and len(first) > 1
        start, most = (submit, 2 * self._num_threads) if uses_threads else (dispatch, 1)
        waiting: deque[Callable[[], Any]] = deque()
        for batch in itertools.chain(first, batches):
            waiting.append(start(*batch))
            if len(waiting) > most:
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()

    def host_batches(self, rows: Rows) -> Iterator[Batch]:
        """Yields batches of examples, one in each row, as host arrays."""
        for numbers, length in self._batches_of(rows, packs=False):
            yield rows.take(_numbers(rows, numbers), length)

    def stream(
        self,
        forward: Program,
        texts: Iterable[TextRow],
        done: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[TextRow, dict[str, np.ndarray]]]:
        """Yields texts in order, each with its part of what `forward` returns.

        Args:
          texts: read as they are needed, a window at a time.
          done: called with the number of texts that are done since the last call.
        """
        windows: deque[tuple[EncodedTexts, int]] = deque()  # and the number of their batches

        def batches() -> Iterator[tuple[Any, np.ndarray, int]]:
            for rows in self._windows(forward, texts):
                found = list(self._batches_of(rows, self.model.packs))
                windows.append((rows, len(found)))
                yield from ((rows, *batch) for batch in found)

        computed = self._compute(forward, batches())
        for first in computed:
            rows, count = windows.popleft()
            found: list[dict[str, np.ndarray]] = [{}] * len(rows.rows)
            for numbers, answers in itertools.chain([first], itertools.islice(computed, count - 1)):
                is_text = numbers >= 0
                for place in np.flatnonzero(is_text).tolist():
                    found[numbers[place]] = {n: array[place] for n, array in answers.items()}
                if done:
                    done(int(is_text.sum()))
            yield from zip(rows.rows, found, strict=True)

    def _windows(self, forward: Program, texts: Iterable[TextRow]) -> Iterator[EncodedTexts]:
        """Yields the windows of texts, which are read as they are needed."""
        texts, max_tokens = iter(texts), 0
        while window := list(itertools.islice(texts, 2)):
            tokens = sum(len(row.input_ids) for row in window)
            if len(window) > 1:
                max_tokens = max_tokens or self._window_tokens(forward, window[0])
            while tokens < max_tokens and (row := next(texts, None)) is not None:
                window.append(row)
                tokens += len(row.input_ids)
            yield EncodedTexts(window, self.model.tokenizer)

    def _window_tokens(self, forward: Program, text: TextRow) -> int:
        """Returns the tokens of a window, from the bytes that the outputs of a row take."""
        rows = EncodedTexts([text], self.model.tokenizer)
        numbers, length = next(self._batches_of(rows, self.model.packs))
        outputs = forward.output_shapes(rows.take(numbers, length))
        size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(outputs))
        max_tokens = _WINDOW_BYTES * len(numbers) * length // max(1, size)
        return min(max(max_tokens, self.batch_tokens), _WINDOW_BATCHES * self.batch_tokens)


def _shape_keys(rows: Rows) -> np.ndarray:
    """Returns int[rows]: what the shape of an exact batch depends on, besides the lengths."""
    if isinstance(rows, EncodedTexts):
        return rows.mask_counts  # the number of prediction slots follows
    return rows.sizes if isinstance(rows, GroupedRows) else np.zeros_like(rows.lengths)


def _max_texts(length: int) -> int:
    return max(2, length // _TOKENS_PER_TEXT)


def _numbers(rows: Rows, numbers: np.ndarray) -> np.ndarray:
    """Drops the axis of examples in a row, if a row can hold only one."""
    return numbers if numbers.shape[1] > 1 or isinstance(rows, EncodedTexts) else numbers[:, 0]


def predict_step(
    params: Any, batch: Mapping[str, jax.Array], *, task: Task
) -> dict[str, jax.Array]:
    """Returns the answers for a batch without labels."""
    outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
    return task.answers(outputs, batch)


# Counts pairs given to a model that was trained on single texts.
UNEXPECTED_PAIRS = "pairs_for_a_model_trained_on_single_texts"


class TaskPredictor:
    """Makes the predictions of the task that a model was trained for, `task`."""

    def __init__(self, predictor: Predictor, top_k: int = 5):
        """Compiles on first use.

        Raises:
          UserError: the task's head has random parameters.
        """
        self._predictor, self.model = predictor, predictor.model
        model = self.model
        model.task.check_trained(model.untrained, model.folder)
        if model.exact and model.config.get("task.mix_layer_norm", False):
            raise UserError(
                f"{model.folder} has config.task.mix_layer_norm=True, which normalizes over all"
                " texts of a batch: its predictions cannot be exact."
            )
        has_top_k = any(field.name == "top_k" for field in dataclasses.fields(model.task))
        task: Any = model.task
        self.task: Any = dataclasses.replace(task, top_k=top_k) if has_top_k else task
        reads_texts = model.task.EXAMPLE is TextExample
        self._expects_single = (
            model.has_training_file and reads_texts and not model.task.reads_pairs
        )
        self._expects_pairs = reads_texts and model.task.reads_pairs
        bound = self.task.bind(model.encoder, model.tokenizer)
        self._forward = model.compile(functools.partial(predict_step, task=bound))

    def check(self, example: Any) -> None:
        """Raises UserError for an example that cannot be predicted."""
        if self._expects_pairs and example.text_b is None:
            raise UserError(
                f"{example.where} is one text, {example.text_a!r:.60}, and the model was trained on"
                " pairs: give a list of pairs, [(text_a, text_b)]."
            )
        self.task.check_question(example, self.model.tokenizer, self.model.encoder)

    def predict(
        self, examples: Iterable[Any], counts: Counter | None = None
    ) -> Iterator[list[Prediction]]:
        """Yields the predictions of examples in order, a window at a time.

        Args:
          examples: read as they are needed.
          counts: counts what was truncated.
        """
        counts = Counter() if counts is None else counts
        for window in self.task.windows(examples):
            yield self.predict_window(window, counts)

    def predict_window(self, window: Sequence[Any], counts: Counter) -> list[Prediction]:
        """Returns the predictions of one example or more, which are in memory, in order."""
        rows = self.task.encode(window, self.model.tokenizer, counts)
        if self._expects_single:
            counts[UNEXPECTED_PAIRS] += sum(example.text_b is not None for example in window)
        found: dict[int, Answer] = {}
        for numbers, outputs in self._predictor.run(self._forward, rows, self.task.can_pack):
            add_answers(found, numbers, outputs)
        return self.task.collect(window, rows, in_order(found))
