"""Predictions of a run: streaming, for a file of any length; the output is complete or absent.

The input has the form of the training files, labels left out, or (.txt) one text per line; for a
model that fills in masks, texts as tasks/pretraining/task.py describes them. The output has a JSON
object for each example, in the same order; the ending of its name may choose a table or a form of
`published`.

Until all examples are done, their lines are in a temporary folder beside the output.
"""

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.files.atomic import destination, is_stream, move_file
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.tasks.task import Prediction
from bert_jax.tools.outputs.inputs import Inputs
from bert_jax.tools.outputs.published import make_writer
from bert_jax.training.listener import Listener


class Progress:
    """Counts examples that a model has answered.

    Args:
      total: number of examples.
      listener: receives the counts and lines; None: nobody does.
    """

    def __init__(self, total: int, listener: Listener | None = None):
        self._listener, self._total, self._done = listener or Listener(), total, 0
        self.line = self._listener.line
        self._start = time.perf_counter()

    def add(self, count: int) -> None:
        self._done += count
        self._listener.progress(self._done, self._total)

    def finish(self, count: int, what: str) -> None:
        """Reports "1,000 lines answered in FILE: 12.3 s, 81.3 lines/s, compiling included"."""
        seconds = time.perf_counter() - self._start
        name = what.split()[0]
        self.line(
            f"{count:,} {what}: {seconds:.1f} s, {count / seconds:,.1f} {name}/s, compiling"
            " included"
        )


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
    write = make_writer(model.config.task.name, model.task, inputs, output_path)
    predictor, counts = TaskPredictor(Predictor(model), top_k), Counter()
    count = _check_examples(predictor, inputs, counts)
    progress = Progress(count, listener)
    # The folder of a device or a pipe has no room for files.
    beside = None if is_stream(output_path) else os.path.dirname(destination(output_path)) or "."
    with tempfile.TemporaryDirectory(suffix=".part", dir=beside) as folder:
        lines_path = os.path.join(folder, "lines")
        with open(lines_path, "w", encoding="utf-8") as file:
            for predictions in predictor.predict(_examples(predictor, inputs), counts):
                for prediction in predictions:
                    file.write(json.dumps(prediction, ensure_ascii=False) + "\n")
                progress.add(len(predictions))
        (write or move_file)(lines_path, output_path)
    _report(counts, progress.line)
    progress.finish(count, f"examples of {inputs} answered in {output_path}")
    return count


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


def _check_examples(predictor: TaskPredictor, inputs: Inputs, counts: Counter) -> int:
    """Checks all examples; returns their number."""
    count = 0
    for example in _examples(predictor, inputs, counts):
        predictor.check(example)
        count += 1
    return count


def _report(counts: Counter, line: Callable[[str], None]) -> None:
    if counted := ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items() if n):
        line(f"counted    {counted}")
