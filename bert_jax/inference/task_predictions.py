"""Predictions of a fine-tuned run: streaming, for a file of any length, resumed where it stopped.

The input has the form of the training files, labels left out, or (.txt) a text a line. The output
has a JSON object for each example, in the same order; by the ending of its name it has the form in
which a published set is scored instead:

    .tsv     GLUE's: a file of that name is handed in (MRPC.tsv, STS-B.tsv, ...)
    .json    SQuAD's: {"id": "answer"}; NAME.na_probs.json has how sure "no answer" is
    .conll   a word and its tag a line, a blank line between sentences

Until all is done it stands in OUTPUT.unfinished, beside OUTPUT.unfinished.json that says what it is
of. (OUTPUT.part is what bert_jax.data.atomic writes to.)
"""

import itertools
import json
import os
import pathlib
from collections import Counter
from collections.abc import Callable
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
from bert_jax.tasks.task import Prediction, TaskData

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

    data, counts = make_data(config).with_labels(read_labels(workdir)), Counter()
    # A bad last example is said before the work.
    progress = Progress(sum(1 for _ in data.read(input_path, counts, False)))
    part = Part(output_path)
    answer_window, step = _answerer(config, workdir, data, counts)
    done = part.go_on(
        {
            "input": file_sha256(input_path),
            "workdir": os.path.abspath(workdir),
            "step": step,
            "head": config.head.to_dict(),
        }
    )
    progress.add(done)
    examples = itertools.islice(data.read(input_path, Counter(), False), done, None)
    while window := list(itertools.islice(examples, WINDOW)):
        part.append(answer_window(window))
        progress.add(len(window))
    write_official(config, part.path, output_path)
    part.remove_facts()
    if counted := ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items() if n):
        progress.line(f"counted    {counted}")
    progress.finish(part.count - done, f"examples of {input_path} answered in {output_path}")
    return part.count


def _answerer(
    config: ConfigDict, workdir: str, data: TaskData, counts: Counter
) -> tuple[Callable[[list[Any]], list[Prediction]], int]:
    """The function examples -> predictions of a run, and the step of its checkpoint."""
    mesh = sharding.make_mesh()
    task = data.make_task(make_model_config(config))
    tokenizer = load_workdir_tokenizer(workdir, config.data.lowercase)
    with open_chosen(workdir, config.checkpoint) as (checkpoints, step):
        params = checkpoints.restore_params(step, abstract_params(task, mesh))
    shards = sharding.batch_shards(mesh)
    batch_size = -(-(config.eval.batch_size or config.global_batch_size) // shards) * shards

    def answer_window(window: list[Any]) -> list[Prediction]:
        rows = data.encode(window, tokenizer, counts)
        answers = data.collect(window, rows)
        answer(task, params, mesh, rows, answers, batch_size, config)
        return answers.predictions()

    return answer_window, step


class Part:
    """What is done of an output: lines that are whole, and what they were computed from."""

    def __init__(self, output_path: str):
        self.path = f"{output_path}.unfinished"
        self.count = 0
        self._facts_path = f"{self.path}.json"

    def go_on(self, facts: dict[str, Any]) -> int:
        """Returns how many examples are done; none if that was from something else."""
        files = (self.path, self._facts_path)
        if all(map(os.path.isfile, files)) and read_json(self._facts_path) == facts:
            self._keep_whole_windows()
        else:
            pathlib.Path(self.path).write_bytes(b"")
            write_json(self._facts_path, facts)
        if self.count:
            print(f"{self.count:,} examples were done before: going on after them")
        return self.count

    def _keep_whole_windows(self) -> None:
        """Examples of a window are computed together: only then are the rest as if undisturbed."""
        with open(self.path, "rb+") as file:
            window_end = end = 0
            for number, line in enumerate(file, 1):
                end += len(line)
                if number % WINDOW == 0 and line.endswith(b"\n"):
                    self.count, window_end = number, end
            file.truncate(window_end)

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
