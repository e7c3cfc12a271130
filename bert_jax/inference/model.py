"""A trained model on the devices, and texts that go through it in batches by length.

Rows come from an iterator and are read a window at a time, so that memory does not grow with the
input. The first window is small and has few shapes; where more text follows, windows are larger and
padded less.
"""

import copy
import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax.data.batch import Batch, EvaluationBatch, in_parts
from bert_jax.data.labelled.texts import (
    FEW_LENGTHS,
    MANY_LENGTHS,
    Text,
    TextRow,
    encode_text,
    text_batches,
)
from bert_jax.devices import sharding
from bert_jax.files.errors import UserError
from bert_jax.models import make_add_fields, reads_new_words
from bert_jax.models.model import EncoderConfig
from bert_jax.tasks import find_task
from bert_jax.tasks.task import Task
from bert_jax.text.tokenization import Tokenizer
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.initial import make_pretraining
from bert_jax.training.listener import Listener
from bert_jax.training.run import load_workdir_tokenizer, make_model_config, make_task_data
from bert_jax.training.state import abstract_params, parameter_rules
from bert_jax.training.workdir import untrained_params

# Positions of a batch, padding included.
BATCH_TOKENS = 4096
# Batches of a window: of the first, and the most of others. Above the size of the first, their
# outputs, which `in_order` may hold back, have at most these bytes.
_FIRST_WINDOW, _LARGEST_WINDOW, _HELD_BYTES = 8, 32, 1 << 28
# For masks of a text, where few texts are read at a time.
MASK_SLOTS = 8

Forward = Callable[[Any, Mapping[str, jax.Array]], dict[str, jax.Array]]
Result = TypeVar("Result")


class TrainedModel:
    """The chosen checkpoint of a workdir on the devices; only the folder is needed.

    Attributes:
      config: of the encoder.
      has_pooler: whether the model has a pooler of [CLS].
      task: the task whose model has these parameters.
      params: of the model; of a fine-tuned one without the head.
      tokenizer: of the run.
    """

    def __init__(
        self,
        config: ConfigDict,
        workdir: str,
        batch_tokens: int = BATCH_TOKENS,
        *,
        for_requests: bool = False,
        params: Any = None,
    ):
        """Loads vocabulary and parameters.

        Args:
          config: of the workdir.
          workdir: of a run, or of imported weights.
          batch_tokens: positions of a batch, padding included.
          for_requests: whether few texts are read at a time: batches are in parts
            (`EvaluationBatch.parts`), and have slots for MASK_SLOTS masks or more, so that few
            shapes are compiled.
          params: of the same workdir, which are on the devices already; None: they are read.

        Raises:
          UserError: there is no checkpoint, or it or the vocabulary does not fit.
        """
        check_single_process()
        row = find_task(config.task)
        self.config = make_model_config(config)
        reads_cls = "head" not in config or config.head.get("pool", "cls") == "cls"
        self.has_pooler = row.pools and config.model.next_sentence and reads_cls
        self.tokenizer = load_fitting_tokenizer(config, workdir, self.config)
        self._add_fields = make_add_fields(self.config, self.tokenizer)
        self.task: Task = make_pretraining(self.config, self.has_pooler)
        if row.reads_forward:
            self.task = make_task_data(config).make_task(self.config, self.tokenizer)
        self._mesh = sharding.make_mesh()
        self._for_requests, self._least_slots = for_requests, MASK_SLOTS if for_requests else 1
        with_heads = row.fills_masks or row.reads_forward
        if params is None:
            self.params = self._load_params(config, workdir, with_heads)
        else:
            encoder = {self.config.name: params[self.config.name]}
            self.params = params if with_heads else encoder
        if not with_heads:
            self.has_pooler = self.has_pooler and "pooler" in self.params[self.config.name]
        self._add_fields = make_add_fields(self.config, self.tokenizer)
        self._batch_tokens = batch_tokens

    def _load_params(self, config: ConfigDict, workdir: str, with_heads: bool) -> Any:
        with open_chosen(workdir, config.checkpoint) as (checkpoints, step):
            if with_heads:
                return checkpoints.restore_params(step, abstract_params(self.task, self._mesh))
            params = {self.config.name: checkpoints.read_params(step)[self.config.name]}
        rules = parameter_rules(self.task)
        return jax.device_put(params, sharding.parameter_shardings(self._mesh, rules, params))

    def one_at_a_time(self) -> "TrainedModel":
        """Returns the model with the same parameters and the smallest batches."""
        model = copy.copy(self)
        model._batch_tokens = 1
        return model

    def row(self, text: Text) -> TextRow:
        """Tokenizes a text or a pair.

        Raises:
          UserError: it has more tokens than the model has positions.
        """
        return encode_text(text, self.tokenizer, self.config.max_position_embeddings)

    def compile(self, forward: Forward) -> Forward:
        """jit of a function (params, batch) -> arrays whose first dimension is the batch."""
        forward = sharding.on_mesh(self._mesh, forward)
        return jax.jit(forward, out_shardings=sharding.replicated(self._mesh))

    @property
    def batch_shards(self) -> int:
        """The number of rows of a batch is a multiple of it."""
        return sharding.batch_shards(self._mesh)

    def call(self, forward: Forward, batch: Batch) -> dict[str, np.ndarray]:
        """Puts a batch of the host through the model.

        Args:
          forward: compiled.
          batch: in the form of `data.batch`; its rows are a multiple of `batch_shards`.
        """
        size = len(batch["input_ids"])
        on_device = sharding.shard_batch(self._mesh, self._add_fields(batch), size, 0)
        return jax.device_get(forward(self.params, on_device))

    def run(
        self, forward: Forward, rows: Iterable[TextRow], progress: "Progress | None" = None
    ) -> Iterator[tuple[int, TextRow, dict[str, np.ndarray]]]:
        """Puts rows through the model.

        Args:
          forward: compiled.
          rows: read as they are needed.
          progress: counts the rows that are done.

        Yields:
          The number of a row, the row, and its part of what `forward` returns; the longest of a
          window first. `in_order` restores their order.
        """
        numbered = enumerate(rows)
        size, lengths = _FIRST_WINDOW, FEW_LENGTHS
        while window := self._window(numbered, size):
            batches = self.batches([row for _, row in window], lengths)
            if self._for_requests:
                batches = in_parts(batches, self.batch_shards)
            batch_bytes = 1
            for batch in batches:
                outputs = self.call(forward, batch.read(0, len(batch.row_numbers)))
                batch_bytes = max(batch_bytes, sum(array.nbytes for array in outputs.values()))
                places = np.flatnonzero(batch.row_numbers >= 0).tolist()
                for place in places:
                    number, row = window[batch.row_numbers[place]]
                    yield number, row, {name: array[place] for name, array in outputs.items()}
                if progress:
                    progress.add(len(places))
            if not self._for_requests:  # there are many texts
                size = min(max(_FIRST_WINDOW, _HELD_BYTES // batch_bytes), _LARGEST_WINDOW)
                lengths = MANY_LENGTHS

    def batches(
        self, rows: Sequence[TextRow], pad_lengths: Sequence[int] = FEW_LENGTHS
    ) -> Iterator[EvaluationBatch]:
        """Yields batches with all rows once, the longest first, before `EvaluationBatch.parts`.

        Args:
          rows: in memory.
          pad_lengths: that batches are padded to.
        """
        return text_batches(
            rows,
            self.config.max_position_embeddings,
            self._batch_tokens,
            self.batch_shards,
            self.tokenizer.pad_id,
            self._least_slots,
            pad_lengths,
        )

    def _window(self, rows: Iterator[tuple[int, TextRow]], size: int) -> list[tuple[int, TextRow]]:
        """Returns rows of the tokens of `size` batches; at least one, if there is one."""
        window, room = [], size * self._batch_tokens
        for number, row in rows:
            window.append((number, row))
            room -= len(row.input_ids)
            if room <= 0:
                break
        return window


def in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Yields results without their numbers, from number 0 on; early results are held back."""
    waiting: list[tuple[int, Result]] = []
    due = 0
    for number, result in results:
        heapq.heappush(waiting, (number, result))
        while waiting and waiting[0][0] == due:
            yield heapq.heappop(waiting)[1]
            due += 1


def load_fitting_tokenizer(config: ConfigDict, workdir: str, model: EncoderConfig) -> Tokenizer:
    """Returns the tokenizer of a workdir.

    Raises:
      UserError: there is none, or it has more pieces than the model.
    """
    can_grow = reads_new_words(model)
    tokenizer = load_workdir_tokenizer(workdir, config.data.lowercase, can_grow)
    if can_grow:
        return tokenizer
    if (pieces := len(tokenizer.pieces)) > model.padded_vocab_size:
        raise UserError(
            f"The vocabulary in {workdir} has {pieces} pieces, the model only"
            f" {model.padded_vocab_size}: it is another model's vocabulary."
        )
    return tokenizer


def check_single_process() -> None:
    """Raises UserError if several processes were started."""
    if jax.process_count() > 1:
        raise UserError("A trained model is used in one process: leave out --num_processes.")


def check_fills_masks(config: ConfigDict, workdir: str) -> None:
    """Refuses a model without a trained masked-LM head.

    Raises:
      UserError: the task has no such head, or weights were imported without it.
    """
    if not find_task(config.task).fills_masks:
        raise UserError(f"{workdir} is for config.task={config.task!r}: it has no masked-LM head.")
    make_task_data(config).check_trained(untrained_params(workdir), workdir)


class Progress:
    """Reports progress while rows go through the model, and the speed at the end.

    Args:
      total: number of rows or examples.
      listener: receives what is reported.
    """

    def __init__(self, total: int, listener: Listener | None = None):
        self._listener, self._total = listener or Listener(), total
        self._done = 0
        self._start = time.perf_counter()

    def add(self, count: int) -> None:
        self._done += count
        self._listener.progress(self._done, self._total)

    def line(self, text: str) -> None:
        """Reports a line."""
        self._listener.line(text)

    def finish(self, count: int, what: str) -> None:
        """Reports "1,000 lines answered in FILE: 12.3 s, 81.3 lines/s, compiling included"."""
        seconds = time.perf_counter() - self._start
        name = what.split()[0]
        self._listener.line(
            f"{count:,} {what}: {seconds:.1f} s, {count / seconds:,.1f} {name}/s, compiling"
            " included"
        )
