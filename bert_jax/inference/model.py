"""What every use of a trained model shares: its folder opened, texts as rows, batches by length.

Rows come from an iterator and are read a window at a time, so that memory does not grow with the
input. A window's rows go through the model longest first, in batches of one shape for each length
of `_LENGTHS`, each of which is compiled once.
"""

import dataclasses
import heapq
import json
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.devices import sharding
from bert_jax.inference.texts import Text
from bert_jax.models.config import BertConfig
from bert_jax.tasks import Pretraining
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.experiment import load_workdir_tokenizer, make_model_config
from bert_jax.training.progress import Screen
from bert_jax.training.state import abstract_params

# A batch is padded to the first of these that is long enough.
_LENGTHS = (16, 32, 64, 128, 256, 512)
# Token slots of a batch, and batches of a window.
BATCH_TOKENS = 4096
_WINDOW = 8

Forward = Callable[[Any, Mapping[str, jax.Array]], dict[str, jax.Array]]
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Row:
    """A text or a pair as ids: [CLS] A [SEP], or [CLS] A [SEP] B [SEP].

    Attributes:
      text: where it comes from.
      input_ids: int32[tokens].
      first_length: of [CLS] A [SEP].
      asked: positions to fill in.
      answers: ids that stood there, where they are known.
    """

    text: Text
    input_ids: np.ndarray
    first_length: int
    asked: tuple[int, ...] = ()
    answers: tuple[int, ...] = ()

    @property
    def is_pair(self) -> bool:
        return len(self.input_ids) > self.first_length

    @property
    def word_positions(self) -> np.ndarray:
        """int32[...]: where neither [CLS] nor [SEP] stands."""
        is_special = np.zeros(len(self.input_ids), bool)
        is_special[[0, self.first_length - 1, -1]] = True
        return np.flatnonzero(~is_special).astype(np.int32)


class TrainedModel:
    """A workdir's newest checkpoint on the devices; needs nothing but the folder."""

    def __init__(self, config: ConfigDict, workdir: str, batch_tokens: int = BATCH_TOKENS):
        """Loads vocabulary and parameters.

        Args:
          config: of the workdir.
          workdir: of a run, or of imported weights.
          batch_tokens: token slots of a batch, padding included.

        Raises:
          ValueError: if there is no checkpoint, or it or the vocabulary does not fit.
        """
        if jax.process_count() > 1:
            raise ValueError("A trained model is used in one process: leave out --num_processes.")
        self.config = make_model_config(config)
        if config.task in ("tagging", "span"):  # have no pooler
            self.config = dataclasses.replace(self.config, next_sentence=False)
        self._mesh = sharding.make_mesh()
        self.params = load_params(config, self.config, workdir, self._mesh)
        self.tokenizer = load_workdir_tokenizer(workdir, config.data.lowercase)
        if (pieces := len(self.tokenizer.pieces)) > self.config.padded_vocab_size:
            raise ValueError(
                f"The vocabulary in {workdir} has {pieces} pieces, the model only"
                f" {self.config.padded_vocab_size}: it is another model's vocabulary."
            )
        self._batch_tokens = batch_tokens
        longest = self.config.max_position_embeddings
        self._lengths = [*(n for n in _LENGTHS if n < longest), longest]

    def row(self, text: Text, *, masks: bool = False) -> Row:
        """Tokenizes a text or a pair.

        Args:
          text: the text.
          masks: whether "[MASK]" and its like stand for the special tokens; the masks are asked.

        Raises:
          ValueError: if it has more tokens than the model has positions.
        """
        tokenizer = self.tokenizer
        first = [tokenizer.cls_id, *tokenizer.encode(text.text_a, masks), tokenizer.sep_id]
        second = []
        if text.text_b is not None:
            second = [*tokenizer.encode(text.text_b, masks), tokenizer.sep_id]
        if (length := len(first) + len(second)) > self._lengths[-1]:
            raise ValueError(
                f"{text.where} has {length} tokens, special ones included, and the model takes at"
                f" most {self._lengths[-1]}: shorten it. It begins {text.text_a[:40]!r}."
            )
        ids = np.array(first + second, np.int32)
        asked = np.flatnonzero(ids == tokenizer.mask_id)
        return Row(text, ids, len(first), tuple(asked.tolist()))

    def compile(self, forward: Forward) -> Forward:
        """jit of a function (params, batch) -> arrays whose first dimension is the batch."""
        return jax.jit(forward, out_shardings=sharding.replicated(self._mesh))

    def run(
        self, forward: Forward, rows: Iterable[Row], progress: "Progress | None" = None
    ) -> Iterator[tuple[int, Row, dict[str, np.ndarray]]]:
        """Puts rows through the model.

        Args:
          forward: compiled.
          rows: read as they are needed.
          progress: is told how many rows are done.

        Yields:
          The number of a row, the row, and its part of what `forward` gives; the longest of a
          window first. `in_order` brings them into their order.
        """
        numbered = enumerate(rows)
        while window := self._window(numbered):
            window.sort(key=lambda item: -len(item[1].input_ids))
            while window:
                length = next(n for n in self._lengths if n >= len(window[0][1].input_ids))
                size = self._batch_size(length)
                batch, window = window[:size], window[size:]
                arrays = self._make_batch([row for _, row in batch], size, length)
                on_device = sharding.shard_batch(self._mesh, arrays, size, 0)
                outputs = jax.device_get(forward(self.params, on_device))
                for i, (number, row) in enumerate(batch):
                    yield number, row, {name: array[i] for name, array in outputs.items()}
                if progress:
                    progress.add(len(batch))

    def _window(self, rows: Iterator[tuple[int, Row]]) -> list[tuple[int, Row]]:
        """Rows of some batches' tokens; at least one, if there is one."""
        window, room = [], _WINDOW * self._batch_tokens
        for number, row in rows:
            window.append((number, row))
            room -= len(row.input_ids)
            if room <= 0:
                break
        return window

    def _batch_size(self, length: int) -> int:
        shards = sharding.batch_shards(self._mesh)
        return max(1, self._batch_tokens // length // shards) * shards

    def _make_batch(self, rows: list[Row], size: int, length: int) -> dict[str, np.ndarray]:
        """The batch form, filled up with rows of padding."""
        most = max(1, *(len(row.asked) for row in rows))
        # A power of two slots, so that few shapes are compiled.
        positions, answers = np.zeros((2, size, 1 << (most - 1).bit_length()), np.int32)
        tokens = np.full((size, length), self.tokenizer.pad_id, np.int32)
        types, examples = np.zeros((2, size, length), np.int32)
        for i, row in enumerate(rows):
            stop = len(row.input_ids)
            tokens[i, :stop] = row.input_ids
            types[i, row.first_length : stop] = 1
            examples[i, :stop] = 1
            positions[i, : len(row.asked)] = row.asked
            answers[i, : len(row.answers)] = row.answers
        return {
            "input_ids": tokens,
            "token_type_ids": types,
            "position_ids": np.tile(np.arange(length, dtype=np.int32), (size, 1)),
            "example_ids": examples,
            "cls_positions": np.zeros((size, 1), np.int32),
            "masked_lm_positions": positions,
            "masked_lm_ids": answers,
        }


def in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Results without their numbers, from number 0 on; one that is early waits for its turn."""
    waiting: list[tuple[int, Result]] = []
    due = 0
    for number, result in results:
        heapq.heappush(waiting, (number, result))
        while waiting and waiting[0][0] == due:
            yield heapq.heappop(waiting)[1]
            due += 1


def check_has_masked_lm(config: ConfigDict, workdir: str) -> None:
    """Refuses a model that was never taught to fill in masks.

    Raises:
      ValueError: if the task is another one than pre-training, or weights were imported without
        that head, so that its numbers are random.
    """
    if config.task != "pretraining":
        raise ValueError(f"{workdir} is for config.task={config.task!r}: it has no masked-LM head.")
    if is_random(workdir, "masked_lm"):
        raise ValueError(
            f"The weights in {workdir} were imported without a masked-LM head: they give features"
            " (python -m bert_jax.features), but cannot fill in or score words before they are"
            f" trained, with --config.init_from={workdir}."
        )


def is_random(workdir: str, module: str) -> bool:
    """Whether weights were imported without this part of the model."""
    return any(name.startswith(f"{module}/") for name in random_params(workdir))


def random_params(workdir: str) -> list[str]:
    """Names of the parameters that an import did not find, and that nothing has trained since."""
    certificate = pathlib.Path(workdir, "certificate.json")
    if not certificate.is_file():
        return []
    return json.loads(certificate.read_text())["tensors"]["fresh"]


def load_params(config: ConfigDict, model: BertConfig, workdir: str, mesh: Mesh) -> Any:
    """The parameters of a workdir, of a fine-tuned one the encoder's, in their shardings.

    Raises:
      ValueError: if there is no checkpoint, or it does not fit the configuration.
    """
    task = Pretraining(model, None, sequence_length=8, max_predictions_per_seq=1)
    with open_chosen(workdir, config.checkpoint) as (checkpoints, step):
        if config.task == "pretraining":
            return checkpoints.restore_params(step, abstract_params(task, mesh))
        params = {"bert": checkpoints.read_params(step)["bert"]}
    return jax.device_put(params, sharding.parameter_shardings(mesh, params))


class Progress:
    """A bar on a terminal while rows go through the model, and at the end how fast it went."""

    def __init__(self, total: int):
        self._screen = Screen(total)
        self._done = 0
        self._start = time.perf_counter()

    def add(self, count: int) -> None:
        self._done += count
        self._screen.tick(self._done)

    def line(self, text: str) -> None:
        """Prints a line that stays above the bar."""
        self._screen.line(text)

    def finish(self, count: int, what: str) -> None:
        """Prints "1,000 lines answered in FILE: 12.3 s, 81.3 lines/s, compiling included"."""
        seconds = time.perf_counter() - self._start
        name = what.split()[0]
        self._screen.line(
            f"{count:,} {what}: {seconds:.1f} s, {count / seconds:,.1f} {name}/s, compiling"
            " included"
        )
