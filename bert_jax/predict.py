"""From a trained run to answers: what stands at each [MASK], and does B follow A?

The input has a text a line, or a JSON object a line with `text_a` and, for a pair, `text_b`. The
output has a JSON object a line, in the same order:

    {"next_sentence": {"is_next": 0.97, "random_next": 0.03},
     "masks": [{"position": 3, "candidates": [{"token": "length", "probability": 0.41}, ...]}]}

`position` counts tokens, [CLS] being 0. "[MASK]" in the text is the special token here, unlike in
training text. `next_sentence` is null for a single text.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax import sharding
from bert_jax.checkpointing import Checkpoints
from bert_jax.experiment import load_workdir_tokenizer, make_model_config
from bert_jax.models.config import BertConfig
from bert_jax.models.heads import BertForPreTraining
from bert_jax.state import abstract_params
from bert_jax.tasks import Pretraining

# A batch is padded to the first of these that is long enough: few shapes to compile for.
_LENGTHS = (32, 64, 128, 256, 512)
_BATCH_SIZE = 32
# Texts that are sorted by length together; bounds the memory however long the input is.
_WINDOW = 32 * _BATCH_SIZE


@dataclasses.dataclass(frozen=True)
class Question:
    """A text or a pair as ids: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""

    input_ids: list[int]
    # Of [CLS] A [SEP].
    first_length: int

    @property
    def is_pair(self) -> bool:
        return len(self.input_ids) > self.first_length


class Predictor:
    """A run's newest checkpoint, ready to answer; needs nothing but the folder of the run."""

    def __init__(self, config: ConfigDict, workdir: str, top_k: int):
        """Loads vocabulary and parameters.

        Args:
          config: of the run.
          workdir: folder of the run.
          top_k: candidates for each [MASK].

        Raises:
          ValueError: if the run has no checkpoint.
        """
        model_config = make_model_config(config)
        self._mesh = sharding.make_mesh()
        self._params = load_params(model_config, workdir, self._mesh)
        self.tokenizer = load_workdir_tokenizer(workdir, config.data.lowercase)
        self._top_k = min(top_k, len(self.tokenizer.pieces))
        longest = model_config.max_position_embeddings
        self._lengths = [*(n for n in _LENGTHS if n < longest), longest]
        shards = sharding.batch_shards(self._mesh)
        self._batch_size = -(-_BATCH_SIZE // shards) * shards
        self._forward = jax.jit(
            functools.partial(
                _forward, BertForPreTraining(model_config), len(self.tokenizer.pieces), self._top_k
            ),
            out_shardings=sharding.replicated(self._mesh),
        )

    def question(self, text_a: str, text_b: str | None = None) -> Question:
        """Tokenizes a text or a pair.

        Raises:
          ValueError: if it has more tokens than the model has positions.
        """
        encode = functools.partial(self.tokenizer.encode, special_tokens=True)
        first = [self.tokenizer.cls_id, *encode(text_a), self.tokenizer.sep_id]
        second = [*encode(text_b), self.tokenizer.sep_id] if text_b is not None else []
        if (length := len(first) + len(second)) > self._lengths[-1]:
            raise ValueError(
                f"A text has {length} tokens, special ones included, and the model takes at most"
                f" {self._lengths[-1]}: shorten it. It begins {text_a[:40]!r}."
            )
        return Question(first + second, len(first))

    def answer(self, questions: Iterable[Question]) -> Iterator[dict[str, Any]]:
        """Answers in the order of the questions, which are read as they are needed."""
        questions = iter(questions)
        while window := list(itertools.islice(questions, _WINDOW)):
            order = sorted(range(len(window)), key=lambda i: len(window[i].input_ids))
            answers: list[dict[str, Any]] = [{}] * len(window)
            for first in range(0, len(order), self._batch_size):
                numbers = order[first : first + self._batch_size]
                for i, found in zip(
                    numbers, self._answer_batch([window[i] for i in numbers]), strict=True
                ):
                    answers[i] = found
            yield from answers

    def _answer_batch(self, questions: list[Question]) -> Iterator[dict[str, Any]]:
        batch = self._make_batch(questions)
        on_device = sharding.shard_batch(self._mesh, batch, self._batch_size, 0)
        output = jax.device_get(self._forward(self._params, on_device))
        for row, question in enumerate(questions):
            positions = [
                i for i, token in enumerate(question.input_ids) if token == self.tokenizer.mask_id
            ]
            masks = [
                {"position": i, "candidates": self._candidates(output, row, slot)}
                for slot, i in enumerate(positions)
            ]
            is_next, random_next = map(float, output["next_sentence"][row])
            pair = {"is_next": is_next, "random_next": random_next}
            yield {"next_sentence": pair if question.is_pair else None, "masks": masks}

    def _candidates(self, output: dict[str, np.ndarray], row: int, slot: int) -> list[dict]:
        found = zip(output["tokens"][row, slot], output["probabilities"][row, slot], strict=True)
        return [
            {"token": self.tokenizer.pieces[token], "probability": float(probability)}
            for token, probability in found
        ]

    def _make_batch(self, questions: list[Question]) -> dict[str, np.ndarray]:
        """The batch form, filled up with rows of padding."""
        mask_id, size = self.tokenizer.mask_id, self._batch_size
        longest = max(len(q.input_ids) for q in questions)
        length = next(n for n in self._lengths if n >= longest)
        most = max(1, *(q.input_ids.count(mask_id) for q in questions))
        tokens = np.full((size, length), self.tokenizer.pad_id, np.int32)
        types, examples = np.zeros((2, size, length), np.int32)
        # A power of two slots, so that few shapes are compiled.
        positions = np.zeros((size, 1 << (most - 1).bit_length()), np.int32)
        for row, question in enumerate(questions):
            ids = np.array(question.input_ids, np.int32)
            tokens[row, : ids.size] = ids
            types[row, question.first_length : ids.size] = 1
            examples[row, : ids.size] = 1
            masks = np.flatnonzero(ids == mask_id)
            positions[row, : masks.size] = masks
        return {
            "input_ids": tokens,
            "token_type_ids": types,
            "position_ids": np.tile(np.arange(length, dtype=np.int32), (size, 1)),
            "example_ids": examples,
            "cls_positions": np.zeros((size, 1), np.int32),
            "masked_lm_positions": positions,
        }


def _forward(
    model: BertForPreTraining,
    num_pieces: int,
    top_k: int,
    params: Any,
    batch: dict[str, jax.Array],
) -> dict[str, jax.Array]:
    """float32[batch, masks, top_k] probabilities, their tokens, and float32[batch, 2]."""
    outputs: Any = model.apply({"params": params}, batch, deterministic=True)
    # The table of the model may have more rows than the vocabulary has pieces.
    logits = outputs.masked_lm_logits[..., :num_pieces]
    probabilities, tokens = jax.lax.top_k(jax.nn.softmax(logits), top_k)
    return {
        "probabilities": probabilities,
        "tokens": tokens,
        "next_sentence": jax.nn.softmax(outputs.next_sentence_logits)[:, 0],
    }


def load_params(model_config: BertConfig, workdir: str, mesh: Mesh) -> Any:
    """The parameters of a run's newest checkpoint, in their shardings on this mesh.

    Raises:
      ValueError: if there is no checkpoint, or it does not fit the configuration.
    """
    task = Pretraining(model_config, None, sequence_length=8, max_predictions_per_seq=1)
    with contextlib.closing(Checkpoints(workdir, read_only=True)) as checkpoints:
        if (step := checkpoints.newest_good_step()) is None:
            raise ValueError(f"{workdir} has no checkpoint yet: train first, with --mode=train.")
        return checkpoints.restore_params(step, abstract_params(task, mesh))


def read_texts(path: str) -> Iterator[tuple[str, str | None]]:
    """Yields (text_a, text_b or None) of each line of a file of texts or JSON objects.

    Raises:
      ValueError: naming file and line of what is no UTF-8, or JSON that is not of the form.
    """
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}, line {number}: no UTF-8 ({error.reason}).") from None
            if not line.lstrip().startswith("{"):
                yield line.strip(), None
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not a JSON object ({error}).") from None
            text_a, text_b = row.get("text_a"), row.get("text_b")
            if not isinstance(text_a, str) or not isinstance(text_b, str | None):
                raise ValueError(
                    f"{path}, line {number}: needs a text `text_a`, and `text_b` is a text if it is"
                    f" there; it has {', '.join(row) or 'nothing'}."
                )
            yield text_a, text_b


def predict(
    config: ConfigDict, workdir: str, input_path: str, output_path: str, top_k: int = 5
) -> int:
    """Answers every line of a file; the output is there whole or not at all.

    Returns:
      How many lines were answered.

    Raises:
      ValueError: for a run without a checkpoint, or a line that cannot be used.
    """
    if not os.path.isfile(input_path):
        raise ValueError(f"--input={input_path}: there is no such file.")
    if jax.process_count() > 1:
        raise ValueError("--mode=predict runs in one process: start it without --num_processes.")
    predictor = Predictor(config, workdir, top_k)
    questions = (predictor.question(a, b) for a, b in read_texts(input_path))
    count, temporary = 0, output_path + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        for answer in predictor.answer(questions):
            file.write(json.dumps(answer, ensure_ascii=False) + "\n")
            count += 1
    os.replace(temporary, output_path)
    print(f"{count} lines of {input_path} answered in {output_path}")
    return count
