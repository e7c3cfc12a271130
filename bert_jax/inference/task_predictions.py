"""Predictions of a fine-tuned run: streaming, for a file of any length, resumed where it stopped.

The input has the form of the training files, labels left out, or (.txt) a text a line. The output
has a JSON object for each example, in the same order; by the ending of its name it has the form in
which a published set is scored instead:

    .tsv     GLUE's: a file of that name is handed in (MRPC.tsv, STS-B.tsv, ...)
    .json    SQuAD's: {"id": "answer"}; NAME.na_probs.json has how sure "no answer" is
    .conll   a word and its tag a line, a blank line between sentences

Until all is done it stands in OUTPUT.unfinished, beside OUTPUT.unfinished.json that says what it is
of and how far it is whole. (OUTPUT.part is what bert_jax.files.atomic writes to.)
"""

import hashlib
import itertools
import json
import os
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax.devices import sharding
from bert_jax.examples.encode_words import documents
from bert_jax.files.atomic import read_json, write_json
from bert_jax.inference.model import Progress
from bert_jax.inference.official import check_official, write_official
from bert_jax.inference.texts import check_files
from bert_jax.tasks.task import Prediction, TaskData
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.experiment import load_workdir_tokenizer, make_model_config
from bert_jax.training.finetuning import answer, make_data, read_labels
from bert_jax.training.state import abstract_params

# Examples that are in memory at a time, and after which what is done is safe on disk; more where
# the last of them is in the middle of a document that is read for context.
WINDOW = 1024
# Fields of the configuration that answers depend on, beside the parameters.
_DECIDE = ("data", "head", "model", "phases", "dtype")


def predict_task(config: ConfigDict, workdir: str, input_path: str, output_path: str) -> int:
    """Predicts every example of a file, or of tfds:NAME[SPLIT].

    Returns:
      How many there are.

    Raises:
      ValueError: for a workdir without a checkpoint, an example that cannot be read, or an output
        whose form the task does not have.
    """
    if jax.process_count() > 1:
        raise ValueError("A trained model is used in one process: leave out --num_processes.")
    check_files("" if input_path.startswith("tfds:") else input_path, output_path)
    check_official(config, output_path)

    data, counts = make_data(config).with_labels(read_labels(workdir)), Counter()
    # A bad last example is said before the work.
    count, digest = _look_through(data.read(input_path, counts, False))
    progress, part = Progress(count), Part(output_path)
    answer_window, facts = _answerer(config, workdir, data, counts)
    done = part.go_on(facts | {"input": digest})
    progress.add(done)
    examples = itertools.islice(data.read(input_path, Counter(), False), done, None)
    in_context = config.task == "tagging" and config.head.document_context
    for window in _windows(examples, in_context):
        part.append(answer_window(window))
        progress.add(len(window))
    write_official(config, part.path, output_path)
    part.remove_facts()
    if counted := ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items() if n):
        progress.line(f"counted    {counted}")
    progress.finish(part.count - done, f"examples of {input_path} answered in {output_path}")
    return part.count


def _look_through(examples: Iterable[Any]) -> tuple[int, str]:
    """How many examples there are, and a digest of all they say."""
    count, digest = 0, hashlib.sha256()
    for example in examples:
        count += 1
        digest.update(repr(example).encode())
    return count, digest.hexdigest()


def _windows(examples: Iterable[Any], in_context: bool) -> Iterator[list[Any]]:
    """Examples that are answered together; those that see each other are never apart."""
    window = []
    for document in documents(examples, in_context):
        window += document
        if len(window) >= WINDOW:
            yield window
            window = []
    if window:
        yield window


def _answerer(
    config: ConfigDict, workdir: str, data: TaskData, counts: Counter
) -> tuple[Callable[[list[Any]], list[Prediction]], dict[str, Any]]:
    """The function examples -> predictions of a run, and what decides its answers."""
    mesh = sharding.make_mesh()
    task = data.make_task(make_model_config(config))
    tokenizer = load_workdir_tokenizer(workdir, config.data.lowercase)
    with open_chosen(workdir, config.checkpoint) as (checkpoints, step):
        params = checkpoints.restore_params(step, abstract_params(task, mesh))
        fingerprint = checkpoints.fingerprint(step)
    shards = sharding.batch_shards(mesh)
    batch_size = -(-(config.eval.batch_size or config.global_batch_size) // shards) * shards

    def answer_window(window: list[Any]) -> list[Prediction]:
        rows = data.encode(window, tokenizer, counts)
        answers = data.collect(window, rows)
        answer(task, params, mesh, rows, answers, batch_size, config)
        return answers.predictions()

    facts = {
        "workdir": os.path.abspath(workdir),
        "checkpoint": fingerprint,
        "labels": data.labels,
        "batch_size": batch_size,
        **{name: value for name, value in config.to_dict().items() if name in _DECIDE},
    }
    return answer_window, facts


class Part:
    """What is done of an output: lines that are whole, and what they were computed from."""

    def __init__(self, output_path: str):
        self.path = f"{output_path}.unfinished"
        self.count = 0
        self._facts: dict[str, Any] = {}
        self._facts_path = f"{self.path}.json"

    def go_on(self, facts: dict[str, Any]) -> int:
        """Returns how many examples are done; none if that was from something else."""
        self._facts = json.loads(json.dumps(facts))
        files = (self.path, self._facts_path)
        before = read_json(self._facts_path) if all(map(os.path.isfile, files)) else {}
        if before.get("facts") == self._facts:
            self._keep(before["done"])
        else:
            pathlib.Path(self.path).write_bytes(b"")
            self._write_facts()
        if self.count:
            print(f"{self.count:,} examples were done before: going on after them")
        return self.count

    def _keep(self, count: int) -> None:
        """Examples of a window are computed together: what is of half a window is dropped."""
        with open(self.path, "rb+") as file:
            size = sum(map(len, itertools.islice(file, count)))
            file.truncate(size)
        self.count = count

    def append(self, predictions: list[Prediction]) -> None:
        """Adds the predictions of a window, safe on disk."""
        with open(self.path, "a", encoding="utf-8") as file:
            for prediction in predictions:
                file.write(json.dumps(prediction, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.count += len(predictions)
        self._write_facts()

    def _write_facts(self) -> None:
        write_json(self._facts_path, {"facts": self._facts, "done": self.count})

    def remove_facts(self) -> None:
        """All is done."""
        os.remove(self._facts_path)
