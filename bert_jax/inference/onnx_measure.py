"""How much an int8 graph differs from the float32 one, on a file: by score, or by cosine.

A fine-tuned model is scored on labelled examples, by the first metric of its task. Other models
are compared by cosine, on a file of texts: sentence vectors, or the logits of each token.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

from bert_jax.data.batch import Batch
from bert_jax.data.labelled.texts import EncodedTexts, encode_text, read_texts
from bert_jax.files.errors import UserError
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.long_texts import truncate
from bert_jax.models.crf import Crf
from bert_jax.models.task_heads import ClassificationOutputs, SpanOutputs, TaggingOutputs
from bert_jax.tasks.task import Task, add_answers, in_order

_BATCH_ROWS = 32
Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Result:
    """What a comparison found.

    Attributes:
      name: "cosine" or the name of the metric.
      float32, int8: the values of both graphs; with cosines, that of float32 is 1.
      least: the smallest cosine; None for a metric.
    """

    name: str
    float32: float
    int8: float
    least: float | None = None

    @property
    def loss(self) -> float:
        """By how much int8 is worse."""
        return self.float32 - self.int8


def open_session(source: bytes | str) -> onnxruntime.InferenceSession:
    """Returns a CPU session for the bytes of a model or the path of its file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class Comparison:
    """Compares graphs with the float32 one on a file."""

    def __init__(self, model: TrainedModel, graph: str, output: str, path: str, max_length: int):
        """Reads and encodes the file, and computes the float32 outputs.

        Args:
          output: "task" or "vectors", what the graph computes.
          path: labelled examples for "task" of a fine-tuned model, otherwise texts.

        Raises:
          UserError: the file cannot be read, or is empty.
        """
        self._model, self._path = model, path
        self._is_scored = output == "task" and bool(model.task.HEAD)
        self._windows = list(self._labelled() if self._is_scored else self._texts(max_length))
        self._batches = [batch for _, _, batches in self._windows for batch, _ in batches]
        if not self._windows:
            raise UserError(f"{path} has no examples: int8 is measured on some.")
        session = open_session(graph)
        shapes = {x.name: x.shape for x in session.get_outputs()}
        names = ("sentence_embedding", "logits", "start_logits")
        self._output = next(name for name in names if name in shapes)
        self._per_token = "seq" in shapes[self._output]
        self._names = [x.name for x in session.get_inputs()]
        self._float32 = list(self._run(session))

    def compare(self, graph: bytes) -> Result:
        """Compares an int8 graph with the float32 one."""
        found = list(self._run(open_session(graph)))
        if self._is_scored:
            name, value = self._score(self._float32)
            return Result(name, value, self._score(found)[1])
        cosines = np.concatenate([_cosines(a, b) for a, b in self._pairs(found)])
        return Result("cosine", 1.0, float(cosines.mean()), float(cosines.min()))

    def error(self, graph: bytes) -> float:
        """Returns the sum of the squared differences of the outputs from those in float32."""
        found = list(self._run(open_session(graph)))
        return float(sum(((a - b) ** 2).sum() for a, b in self._pairs(found)))

    def _pairs(self, found: Sequence[Arrays]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the output of both graphs for each batch; [tokens, features] if per token."""
        for ours, theirs, batch in zip(self._float32, found, self._batches, strict=True):
            a, b = ours[self._output], theirs[self._output]
            if self._per_token:
                is_token = batch["example_ids"] > 0
                a, b = a[is_token], b[is_token]
            yield a, b

    def _labelled(self) -> Iterator[tuple[Any, Any, list[tuple[Batch, np.ndarray]]]]:
        """Yields (examples, rows, batches with the numbers of their rows)."""
        task, tokenizer = self._model.task, self._model.tokenizer
        for window in task.windows(task.read(self._path, Counter(), labelled=True)):
            rows = task.encode(window, tokenizer, Counter())
            yield window, rows, list(_batches(rows, packed=False))

    def _texts(self, max_length: int) -> Iterator[tuple[Any, Any, list[tuple[Batch, np.ndarray]]]]:
        tokenizer = self._model.tokenizer
        found = [
            truncate(encode_text(text, tokenizer, None), max_length)
            for text in read_texts(self._path)
        ]
        if found:
            rows = EncodedTexts(found, tokenizer)
            yield found, rows, list(_batches(rows, packed=True))

    def _run(self, session: onnxruntime.InferenceSession) -> Iterator[Arrays]:
        names = [x.name for x in session.get_outputs()]
        for batch in self._batches:
            fields = batch | {"attention_mask": batch["example_ids"] > 0}
            inputs = {name: fields[name].astype(np.int64) for name in self._names}
            arrays: Any = session.run(names, inputs)
            yield dict(zip(names, arrays, strict=True))

    def _score(self, outputs: Sequence[Arrays]) -> tuple[str, float]:
        """Returns the name of the first metric, and its value."""
        model, left = self._model, iter(outputs)
        task: Any = model.task
        bound = task.bind(model.encoder, model.tokenizer)
        examples, predictions = [], []
        for window, rows, batches in self._windows:
            found: dict[int, Any] = {}
            for batch, numbers in batches:
                answers = _answers(bound, next(left), batch, model.params)
                add_answers(found, numbers, answers)
            examples += window
            predictions += task.collect(window, rows, in_order(found))
        name = task.metrics[0]
        return name, float(task.score(examples, predictions)[name])


def _batches(rows: Any, packed: bool) -> Iterator[tuple[Batch, np.ndarray]]:
    """Yields batches of rows of about the same length, with the numbers of the rows."""
    order = np.argsort(rows.lengths, kind="stable")
    for start in range(0, len(order), _BATCH_ROWS):
        numbers = order[start : start + _BATCH_ROWS]
        length = int(rows.lengths[numbers].max())
        yield rows.take(numbers[:, None] if packed else numbers, length), numbers


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the cosines of pairs of rows."""
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return (a * b).sum(-1) / np.maximum(lengths, 1e-12)


def _answers(task: Task, outputs: Arrays, batch: Any, params: Any) -> Mapping[str, np.ndarray]:
    """Returns what a task answers, given the outputs of a graph."""
    values: Any = outputs
    nothing: Any = None  # the outputs' `reading`, which `answers` does not need
    if "start_logits" in outputs:
        made: Any = SpanOutputs(values["start_logits"], values["end_logits"], nothing)
    elif "word_positions" in batch:
        places = batch["word_positions"][..., None]
        logits: Any = np.take_along_axis(values["logits"], places, axis=1)
        names = ("transitions", "start_transitions", "end_transitions")
        crf = Crf(*(params[name] for name in names)) if names[0] in params else None
        made = TaggingOutputs(logits, crf, nothing)
    else:
        made = ClassificationOutputs(values["logits"], nothing)
    return {name: np.asarray(array) for name, array in task.answers(made, batch).items()}
