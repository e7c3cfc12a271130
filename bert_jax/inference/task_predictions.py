"""Predictions of a fine-tuned run: streaming, for a file of any length, resumed where it stopped.

The input has the form of the training files, labels left out, or (.txt) a text a line. The output
has a JSON object for each example, in the same order; by the ending of its name it has the form in
which a published set is scored instead:

    .tsv     GLUE's: a file of that name is handed in (MRPC.tsv, STS-B.tsv, ...)
    .json    SQuAD's: {"id": "answer"}; NAME.na_probs.json has how sure "no answer" is
    .conll   a word and its tag a line, a blank line between sentences

Until all is done it stands in OUTPUT.part, beside OUTPUT.part.json that says what it is of.
"""

import itertools
import json
import os
import pathlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax import sharding
from bert_jax.checkpointing import open_chosen
from bert_jax.data.atomic import read_json, write_json
from bert_jax.data.shards import file_sha256
from bert_jax.experiment import load_workdir_tokenizer, make_model_config
from bert_jax.finetuning import answer, make_data, read_labels
from bert_jax.inference.model import Progress
from bert_jax.inference.official import check_official, write_official
from bert_jax.state import abstract_params
from bert_jax.tasks.task import Prediction

# Examples that are in memory at a time, and after which what is done is safe on disk.
WINDOW = 1024


def predict_task(config: ConfigDict, workdir: str, input_path: str, output_path: str) -> int:
    """Predicts every example of a file.

    Returns:
      How many there are.

    Raises:
      ValueError: for a workdir without a checkpoint, an example that cannot be read, or an output
        whose form the task does not have.
    """
    if jax.process_count() > 1:
        raise ValueError("A trained model is used in one process: leave out --num_processes.")
    if not os.path.isfile(input_path):
        raise ValueError(f"--input={input_path}: there is no such file.")
    if not os.path.isdir(os.path.dirname(output_path) or "."):
        raise ValueError(f"--output={output_path}: there is no such folder.")
    check_official(config, output_path)

    part = Part(output_path)
    progress = Progress(_count_lines(input_path))
    predictions = _predict(config, workdir, input_path, part)
    for window in predictions:
        part.append(window)
        progress.add(len(window))
    if not part.count:
        raise ValueError(f"--input={input_path} has no examples.")
    write_official(config, part.path, output_path)
    part.remove_facts()
    progress.finish(part.count, f"examples of {input_path} answered in {output_path}")
    return part.count


def _predict(
    config: ConfigDict, workdir: str, input_path: str, part: "Part"
) -> Iterator[list[Prediction]]:
    """Yields the predictions of a window of examples at a time, after those that `part` has."""
    mesh = sharding.make_mesh()
    data = make_data(config).with_labels(read_labels(workdir))
    task = data.make_task(make_model_config(config))
    tokenizer = load_workdir_tokenizer(workdir, config.data.lowercase)
    with open_chosen(workdir, config.checkpoint) as (checkpoints, step):
        params = checkpoints.restore_params(step, abstract_params(task, mesh))

    facts = {"input": file_sha256(input_path), "workdir": os.path.abspath(workdir), "step": step}
    done = part.go_on(facts)
    shards = sharding.batch_shards(mesh)
    batch_size = -(-(config.eval.batch_size or config.global_batch_size) // shards) * shards
    examples = itertools.islice(data.read(input_path, Counter(), False), done, None)
    while window := list(itertools.islice(examples, WINDOW)):
        rows = data.encode(window, tokenizer, Counter())
        answers = data.collect(window, rows)
        answer(task, params, mesh, rows, answers, batch_size, config)
        yield answers.predictions()


class Part:
    """What is done of an output: lines that are whole, and what they were computed from."""

    def __init__(self, output_path: str):
        self.path = f"{output_path}.part"
        self.count = 0
        self._facts_path = f"{output_path}.part.json"

    def go_on(self, facts: dict[str, Any]) -> int:
        """Returns how many examples are done; none if that was from something else."""
        if os.path.isfile(self._facts_path) and read_json(self._facts_path) == facts:
            self._drop_last_half_line()
        else:
            pathlib.Path(self.path).write_bytes(b"")
            write_json(self._facts_path, facts)
        self.count = _count_lines(self.path)
        if self.count:
            print(f"{self.count:,} examples were done before: going on after them")
        return self.count

    def _drop_last_half_line(self) -> None:
        with open(self.path, "rb+") as file:
            content_end = 0
            for line in file:
                content_end += len(line) if line.endswith(b"\n") else 0
            file.truncate(content_end)

    def append(self, predictions: list[Prediction]) -> None:
        """Adds predictions, safe on disk."""
        with open(self.path, "a", encoding="utf-8") as file:
            for prediction in predictions:
                file.write(json.dumps(prediction, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.count += len(predictions)

    def remove_facts(self) -> None:
        """All is done."""
        os.remove(self._facts_path)


def _count_lines(path: str) -> int:
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
