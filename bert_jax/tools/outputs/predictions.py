"""Predictions of a run: streaming, for a file of any length, resumed where they stopped.

The input has the form of the training files, labels left out, or (.txt) a text a line; for a model
that fills in masks, texts as tasks/pretraining.py describes them. The output has a JSON object for
each example, in the same order; the ending of its name may choose a table or a form of `published`.

Until all examples are done, the output is in OUTPUT.unfinished, beside the target of a link.
OUTPUT.unfinished.json has its origin and the number of complete predictions.
"""

import hashlib
import itertools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.files.atomic import (
    AppendFile,
    destination,
    is_stream,
    move_file,
    read_json,
    write_bytes,
    write_json,
)
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.tasks.task import Prediction
from bert_jax.tools.outputs.files import check_output
from bert_jax.tools.outputs.inputs import Inputs
from bert_jax.tools.outputs.progress import Progress
from bert_jax.tools.outputs.published import make_writer
from bert_jax.training.listener import Listener

# Fields of the configuration that predictions depend on, in addition to the parameters.
_DECIDING_FIELDS = ("data", "head", "model", "phases", "max_length", "dtype")


def predict(
    model: TrainedModel,
    inputs: Inputs,
    output_path: str,
    top_k: int = 5,
    listener: Listener | None = None,
) -> int:
    """Writes the prediction of every example to a file.

    Returns:
      The number of examples.

    Raises:
      UserError: an example cannot be read, the model's head has random parameters, or the output
        has a form that the task does not have.
    """
    check_output(output_path, inputs.paths)
    write = make_writer(model.config.task, model.task, inputs, output_path)
    predictor, counts = TaskPredictor(Predictor(model), top_k), Counter()
    count, digest = _check_examples(predictor, inputs, counts)
    progress, unfinished = Progress(count, listener), Unfinished(output_path)
    done = unfinished.resume(_origin(model, top_k) | {"input": digest})
    if done:
        progress.line(f"{done:,} examples are already predicted: continuing after them")
    progress.add(done)
    examples = itertools.islice(_examples(predictor, inputs), done, None)
    for predictions in predictor.predict(examples, counts):
        unfinished.append(predictions)
        progress.add(len(predictions))
    unfinished.finish(write)
    _report(counts, progress.line)
    progress.finish(unfinished.count - done, f"examples of {inputs} answered in {output_path}")
    return unfinished.count


def stream(
    model: TrainedModel,
    inputs: Inputs,
    top_k: int = 5,
    report: Callable[[str], None] = lambda line: None,
) -> Iterator[tuple[Any, Prediction]]:
    """Yields each example with its prediction; all examples are checked first.

    Args:
      model: the model.
      inputs: the examples.
      top_k: candidates for each mask.
      report: called at the end with a line about what was cut off, if anything was.

    Raises:
      UserError: as `predict`.
    """
    predictor, counts = TaskPredictor(Predictor(model), top_k), Counter()
    _check_examples(predictor, inputs, counts)
    for window in predictor.task.windows(_examples(predictor, inputs)):
        yield from zip(window, predictor.predict_window(window, counts), strict=True)
    _report(counts, report)


def _examples(predictor: TaskPredictor, inputs: Inputs, counts: Counter | None = None) -> Iterator:
    counts = Counter() if counts is None else counts
    return inputs.examples(predictor.task, predictor.model.task.EXAMPLE, counts)


def _check_examples(predictor: TaskPredictor, inputs: Inputs, counts: Counter) -> tuple[int, str]:
    """Returns the number of examples, and a hash of them."""
    count, digest = 0, hashlib.sha256()
    for example in _examples(predictor, inputs, counts):
        predictor.check(example)
        count += 1
        digest.update(repr(example).encode())
    return count, digest.hexdigest()


def _report(counts: Counter, line: Callable[[str], None]) -> None:
    if counted := ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items() if n):
        line(f"counted    {counted}")


def _origin(model: TrainedModel, top_k: int) -> dict:
    """Returns what predictions depend on besides the examples, as JSON values."""
    values = model.config.to_dict()
    return {
        "workdir": model.folder,
        "checkpoint": model.fingerprint,
        "labels": model.task.labels,
        "shards": model.batch_shards,
        "top_k": top_k,
        **{name: values[name] for name in _DECIDING_FIELDS if name in values},
    }


class Unfinished:
    """Complete lines of an output that is being written, and what they were computed from.

    Attributes:
      count: predictions that are complete.
    """

    def __init__(self, output_path: str):
        self.count = 0
        self._output_path = output_path
        self._temporary = None
        if is_stream(output_path):  # has nothing to resume, and its folder no room for files
            self._temporary = tempfile.TemporaryDirectory()
            output_path = os.path.join(self._temporary.name, "output")
        self._path = f"{destination(output_path)}.unfinished"
        self._origin: dict[str, Any] = {}
        self._origin_path = f"{self._path}.json"

    def resume(self, origin: dict[str, Any]) -> int:
        """Returns how many predictions are complete; 0 if they were computed from something else.

        Args:
          origin: JSON values that the predictions depend on.
        """
        self._origin = json.loads(json.dumps(origin))
        files = (self._path, self._origin_path)
        before = read_json(self._origin_path) if all(map(os.path.isfile, files)) else {}
        if before.get("origin") == self._origin:
            self._keep(before["done"])
        else:
            write_bytes(self._path, b"")
            self._write_origin()
        return self.count

    def _keep(self, count: int) -> None:
        """Drops lines of an incomplete window: examples of a window are computed together."""
        with open(self._path, "rb+") as file:
            size = sum(map(len, itertools.islice(file, count)))
            file.truncate(size)
        self.count = count

    def append(self, predictions: list[Prediction]) -> None:
        """Adds the predictions of a window; they are on disk when it returns."""
        with AppendFile(self._path) as file:
            for prediction in predictions:
                file.write_line(json.dumps(prediction, ensure_ascii=False))
        self.count += len(predictions)
        self._write_origin()

    def _write_origin(self) -> None:
        write_json(self._origin_path, {"origin": self._origin, "done": self.count})

    def finish(self, write: Callable[[str, str], None] | None) -> None:
        """Moves the lines to the output.

        Args:
          write: (path of the lines, path of the output) writes another form; None: the lines.
        """
        if write is None:
            move_file(self._path, self._output_path)
        else:
            write(self._path, self._output_path)
            os.remove(self._path)
        os.remove(self._origin_path)
        if self._temporary is not None:
            self._temporary.cleanup()
