"""Predictions of a run: streaming, for a file of any length, resumed where they stopped.

The input has the form of the training files, labels left out, or (.txt) a text a line; for a model
that fills in masks, texts as tasks/pretraining.py describes them. The output has a JSON object for
each example, in the same order. The ending of its name may choose the form in which a published set
is scored instead:

    .tsv     GLUE's submissions, by name (MRPC.tsv, STS-B.tsv, ...)
    .json    SQuAD's: {"id": "answer"}; NAME.na_probs.json has the scores of "no answer"
    .conll   a word and its tag a line, a blank line between sentences

Until all examples are done, the output is in OUTPUT.unfinished. OUTPUT.unfinished.json has its
origin and the number of complete predictions.
"""

import functools
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax.data.batch import EvaluationBatch, in_parts
from bert_jax.devices import sharding
from bert_jax.files.errors import UserError
from bert_jax.inference.input_files import check_files
from bert_jax.inference.model import (
    BATCH_TOKENS,
    MASK_SLOTS,
    Progress,
    check_single_process,
    load_fitting_tokenizer,
)
from bert_jax.inference.unfinished import Unfinished
from bert_jax.models import make_add_fields
from bert_jax.tasks import TASKS, find_task
from bert_jax.tasks.task import OutputForm, Prediction, TaskData
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.listener import Listener
from bert_jax.training.run import (
    make_model_config,
    make_task_data,
    read_labels,
)
from bert_jax.training.state import abstract_params
from bert_jax.training.step import predict_step
from bert_jax.training.workdir import untrained_params

# Fields of the configuration that predictions depend on, in addition to the parameters.
_DECIDE = ("data", "head", "model", "phases", "max_length", "dtype")


class Predictor:
    """The chosen checkpoint of a workdir, ready to predict the task it was trained for.

    Attributes:
      data: host side of the task.
      params: of the model with its head.
      tokenizer: of the run.
      origin: what the predictions depend on, as JSON values.
    """

    def __init__(
        self,
        config: ConfigDict,
        workdir: str,
        top_k: int = 5,
        batch_tokens: int = BATCH_TOKENS,
        *,
        for_requests: bool = False,
    ):
        """Loads vocabulary and parameters.

        Args:
          config: of the workdir.
          workdir: of a run, or of imported weights.
          top_k: candidates for each mask.
          batch_tokens: positions of a batch of texts; fewer reduce the latency of a single text.
          for_requests: whether few examples are predicted at a time, as in `TrainedModel`.

        Raises:
          UserError: there is no checkpoint, or a head has random parameters.
        """
        check_single_process()
        least_slots = MASK_SLOTS if for_requests else 1
        self.data = make_predicting_data(config, workdir, top_k, batch_tokens, least_slots)
        self._for_requests = for_requests
        self.model = make_model_config(config)
        self.tokenizer = load_fitting_tokenizer(config, workdir, self.model)
        self._add_fields = make_add_fields(self.model, self.tokenizer)
        self._mesh = sharding.make_mesh()
        task = self.data.make_task(self.model, self.tokenizer)
        self._step = jax.jit(
            functools.partial(sharding.on_mesh(self._mesh, predict_step), task=task),
            out_shardings=sharding.replicated(self._mesh),
        )
        with open_chosen(workdir, config.checkpoint) as (checkpoints, step):
            self.params = checkpoints.restore_params(step, abstract_params(task, self._mesh))
            fingerprint = checkpoints.fingerprint(step)
        self.origin = {
            "workdir": os.path.abspath(workdir),
            "checkpoint": fingerprint,
            "labels": self.data.labels,
            "batch_size": config.eval.batch_size or config.global_batch_size,
            "shards": self.batch_shards,
            "top_k": top_k,
            **{name: value for name, value in config.to_dict().items() if name in _DECIDE},
        }

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

    def _batches(self, rows: Any) -> Iterator[EvaluationBatch]:
        batches = self.data.prediction_batches(rows, self.model, self.batch_shards)
        return in_parts(batches, self.batch_shards) if self._for_requests else batches

    @property
    def batch_shards(self) -> int:
        """The number of rows of a batch is a multiple of it."""
        return sharding.batch_shards(self._mesh)

    @property
    def compiled(self) -> int:
        """How many shapes have been compiled."""
        return self._step._cache_size()  # pyright: ignore[reportAttributeAccessIssue]

    def predict_window(self, window: Sequence[Any], counts: Counter) -> list[Prediction]:
        """Returns the predictions of examples that are in memory, in order.

        Args:
          window: one example or more.
          counts: counts what was truncated.
        """
        rows = self.data.encode(window, self.tokenizer, counts)
        answers = self.data.collect(window, rows)
        for batch in self._batches(rows):
            size = len(batch.row_numbers)
            local = self._add_fields(batch.read(0, size))
            on_device = sharding.shard_batch(self._mesh, local, size, 0)
            outputs = jax.device_get(self._step(self.params, on_device))
            answers.add(batch.row_numbers, batch.length, outputs)
        return answers.predictions()


def make_predicting_data(
    config: ConfigDict,
    workdir: str,
    top_k: int = 5,
    batch_tokens: int = BATCH_TOKENS,
    least_slots: int = 1,
) -> TaskData:
    """Returns the host side of a workdir's task, with its labels.

    Raises:
      UserError: the workdir has no labels, or a head has random parameters.
    """
    untrained = untrained_params(workdir)
    data = make_task_data(
        config,
        top_k=top_k,
        batch_tokens=batch_tokens,
        least_slots=least_slots,
        untrained=untrained,
    )
    data.check_trained(untrained, workdir)
    return data if data.labels is None else data.with_labels(read_labels(workdir))


def predict(
    config: ConfigDict,
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
    check_single_process()
    data, model = make_predicting_data(config, workdir), make_model_config(config)
    is_dataset = input_path.startswith("tfds:") and data.labels is not None
    check_files("" if is_dataset else input_path, output_path)
    if form := output_form(config, output_path):
        form.check(data, output_path)
    # An invalid last example is reported before the parameters are read.
    tokenizer = load_fitting_tokenizer(config, workdir, model)
    count, counts, digest = 0, Counter(), hashlib.sha256()
    for example in data.read(input_path, counts, labelled=False):
        data.check_example(example, tokenizer, model)
        count += 1
        digest.update(repr(example).encode())

    predictor = Predictor(config, workdir, top_k)
    progress, unfinished = Progress(count, listener), Unfinished(output_path)
    if done := unfinished.resume(predictor.origin | {"input": digest.hexdigest()}):
        progress.line(f"{done:,} examples are already predicted: continuing after them")
    progress.add(done)
    examples = itertools.islice(data.read(input_path, Counter(), labelled=False), done, None)
    for predictions in predictor.predict(examples, counts):
        unfinished.append(predictions)
        progress.add(len(predictions))
    unfinished.finish(form and functools.partial(form.write, data))
    if counted := ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items() if n):
        progress.line(f"counted    {counted}")
    progress.finish(unfinished.count - done, f"examples of {input_path} answered in {output_path}")
    return unfinished.count


def output_form(config: ConfigDict, output_path: str) -> OutputForm | None:
    """Returns the published form that an output's ending selects; None: JSON lines.

    Raises:
      UserError: the form is another task's.
    """
    ending = os.path.splitext(output_path)[1]
    if form := find_task(config.task).outputs.get(ending):
        return form
    for name, row in TASKS.items():
        if ending in row.outputs:
            raise UserError(
                f"--output={output_path}: {ending} is for config.task={name!r}, and this run's is"
                f" {config.task!r}: take another ending, such as .jsonl."
            )
    return None
