"""Predictions of a run: streaming, for a file of any length, resumed where they stopped.

The input has the form of the training files, labels left out, or (.txt) a text a line; for a model
that fills in masks, texts as tasks/pretraining.py describes them. The output has a JSON object for
each example, in the same order; the ending of its name may choose a table or a form of `published`.

Until all examples are done, the output is in OUTPUT.unfinished. OUTPUT.unfinished.json has its
origin and the number of complete predictions.
"""

import hashlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from bert_jax.config.run import RunConfig
from bert_jax.files.atomic import AppendFile, move_file, read_json, write_bytes, write_json
from bert_jax.inference.loading import (
    TrainedModel,
    load_fitting_tokenizer,
    load_workdir,
    make_labelled_data,
)
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.tasks.task import Prediction
from bert_jax.tools.outputs.files import check_files
from bert_jax.tools.outputs.progress import Progress
from bert_jax.tools.outputs.published import make_writer
from bert_jax.training.listener import Listener
from bert_jax.training.workdir import untrained_params

# Fields of the configuration that predictions depend on, in addition to the parameters.
_DECIDING_FIELDS = ("data", "head", "model", "phases", "max_length", "dtype")


def predict(
    config: RunConfig,
    workdir: str,
    input_path: str,
    output_path: str,
    top_k: int = 5,
    listener: Listener | None = None,
) -> int:
    """Predicts every example of a file, or of tfds:NAME[SPLIT].

    Returns:
      The number of examples.

    Raises:
      UserError: for a workdir without a checkpoint, an example that cannot be read, or an output
        whose form the task does not have.
    """
    data, encoder = make_labelled_data(config, workdir), config.model
    data.check_trained(untrained_params(workdir), workdir)
    is_dataset = input_path.startswith("tfds:") and data.labels is not None
    check_files("" if is_dataset else input_path, output_path)
    write = make_writer(config.task, data, input_path, output_path)
    # An invalid last example is reported before the parameters are read.
    tokenizer = load_fitting_tokenizer(config, workdir)
    count, counts, digest = 0, Counter(), hashlib.sha256()
    for example in data.read(input_path, counts, labelled=False):
        data.check_example(example, tokenizer, encoder)
        count += 1
        digest.update(repr(example).encode())

    model = load_workdir(config, workdir)
    predictor = TaskPredictor(Predictor(model), top_k)
    progress, unfinished = Progress(count, listener), Unfinished(output_path)
    done = unfinished.resume(_origin(model, top_k) | {"input": digest.hexdigest()})
    if done:
        progress.line(f"{done:,} examples are already predicted: continuing after them")
    progress.add(done)
    examples = itertools.islice(data.read(input_path, Counter(), labelled=False), done, None)
    for predictions in predictor.predict(examples, counts):
        unfinished.append(predictions)
        progress.add(len(predictions))
    unfinished.finish(write)
    if counted := ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items() if n):
        progress.line(f"counted    {counted}")
    progress.finish(unfinished.count - done, f"examples of {input_path} answered in {output_path}")
    return unfinished.count


def _origin(model: TrainedModel, top_k: int) -> dict:
    """Returns what predictions depend on besides the examples, as JSON values."""
    values = model.config.to_dict()
    return {
        "workdir": model.folder,
        "checkpoint": model.fingerprint,
        "labels": model.data.labels,
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
        self._path = f"{output_path}.unfinished"
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
