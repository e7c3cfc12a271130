"""Fine-tuning as an experiment: files as rows in memory, batches by length, scores on the host."""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.config.phases import Phase, make_phases, total_steps
from bert_jax.corpus.shards import file_sha256
from bert_jax.devices import sharding
from bert_jax.examples.buckets import BucketedLoader, bucket_lengths, evaluation_batches
from bert_jax.examples.rows import TaskRows
from bert_jax.files.atomic import read_json, write_json
from bert_jax.tasks import TASK_DATA
from bert_jax.tasks.task import Answers, FinetuningTask, TaskData
from bert_jax.text.tokenization import Tokenizer, load_tokenizer
from bert_jax.text.vocabulary import check_vocabulary
from bert_jax.training import metrics
from bert_jax.training.experiment import (
    Evaluator,
    Experiment,
    load_workdir_tokenizer,
    make_checked_mesh,
    make_model_config,
    optimizer_config,
)
from bert_jax.training.feed import Feed

# The labels of a run, in the order of their numbers.
LABELS = "labels.json"


@dataclasses.dataclass(frozen=True)
class Split:
    """A file of examples.

    Attributes:
      name: `train`, `eval`, or a name in config.data.more_eval.
      source: the file, or tfds:NAME[SPLIT].
      sha256: of the file; of the examples where it is no file.
      examples: as the file says them.
      rows: of them.
      counts: what was mended, cut or left out.
    """

    name: str
    source: str
    sha256: str
    examples: Sequence[Any]
    rows: TaskRows
    counts: dict[str, int]

    def describe(self) -> str:
        """A line of the banner."""
        facts = [f"{len(self.examples):,} examples, {self.rows.num_rows:,} rows"]
        facts += [f"{count:,} {name.replace('_', ' ')}" for name, count in self.counts.items()]
        return f"{self.name:<10} {self.source}: {', '.join(facts)}; SHA-256 {self.sha256[:12]}"


@dataclasses.dataclass(frozen=True)
class FinetuningExperiment(Experiment):
    """A task on files of examples.

    Attributes:
      data: the host's side of the task.
      splits: by name.
      vocabulary: path of the file.
    """

    data: TaskData
    splits: dict[str, Split]
    vocabulary: str

    @functools.cached_property
    def data_fingerprint(self) -> str:
        facts = [self.splits["train"].sha256, self.tokenizer.fingerprint, *self.data.labels]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @property
    def vocabulary_path(self) -> str:
        return self.vocabulary

    def save_to_workdir(self) -> None:
        super().save_to_workdir()
        write_labels(self.workdir, self.data.labels)

    def rows_of(self, phase: Phase) -> int:
        """Whole batches: one of an epoch may not be full, and they may differ in their rows."""
        if "train" not in self.splits:
            return phase.batch_size
        return self.loader.batches_per_epoch * phase.batch_size

    @functools.cached_property
    def loader(self) -> BucketedLoader:
        """Which rows each training batch has."""
        return make_loader(
            self.config, self.mesh, self.splits["train"].rows, self.phases[0].batch_size
        )

    def predicted_share(self, phase: Phase) -> float:
        return 0.0

    def task(self, phase: Phase) -> FinetuningTask:
        return self.data.make_task(make_model_config(self.config))

    def feed(self, phase: Phase) -> Feed:
        rows = self.splits["train"].rows

        def read(number: int, start: int, stop: int):
            numbers, length = self.loader.batch(number)
            return rows.take(numbers[start:stop], length)

        return Feed(self.mesh, phase, read, lambda number: len(self.loader.batch(number)[0]))

    def evaluator(self, phase: Phase) -> Evaluator | None:
        """It scores every split but the training one; of more than one, by names in front."""
        splits = [split for name, split in self.splits.items() if name != "train"]
        if not splits:
            return None
        task = self.task(phase)
        batch_size = self.config.eval.batch_size or phase.batch_size

        def evaluate_params(params: Any) -> dict[str, float]:
            values = {}
            for split in splits:
                answers = self.data.collect(split.examples, split.rows)
                totals = answer(
                    task, params, self.mesh, split.rows, answers, batch_size, self.config
                )
                loss = metrics.with_loss(totals.means(), task.loss_terms)["loss"]
                found = self.data.score(split.examples, answers.predictions()) | {"loss": loss}
                prefix = "" if split.name == "eval" else f"{split.name}_"
                values |= {prefix + name: value for name, value in found.items()}
            return values

        return evaluate_params

    @functools.cached_property
    def baseline(self) -> float:
        """The first metric of the same answer to all of `eval`."""
        return self.data.baseline(self.splits["eval"].examples)

    def verdict(self, values: dict[str, float], phase: Phase) -> list[str]:
        name = self.data.metrics[0]
        lines = [f"  {name} {values[name]:.4f}   the same answer to everything {self.baseline:.4f}"]
        if values[name] > self.baseline:
            return [*lines, "health: good, it has learned to tell examples apart."]
        return [
            *lines,
            "health: degenerate, no better than always the same answer: try another seed, a smaller"
            " learning rate or more epochs, and bias correction (optimizer.name=adamw).",
        ]

    def describe_data(self) -> list[str]:
        size = f"{self.phases[0].batch_size} rows"
        if self.config.data.batches == "tokens":
            size = f"the tokens of {size} of mean length"
        lengths = ", ".join(map(str, lengths_of(self.config)))
        lines = [split.describe() for split in self.splits.values()]
        if self.data.labels:
            lines.append(f"labels     {', '.join(self.data.labels)}")
        return [
            *lines,
            f"batches    {size}, padded to {lengths} tokens: one compilation each",
        ]

    def describe_evaluation(self, phase: Phase) -> dict[str, Any]:
        return {
            "task": self.config.task,
            "init_from": self.config.init_from,
            "baseline": self.baseline,
            "data": {
                name: {"source": s.source, "sha256": s.sha256, "examples": len(s.examples)}
                for name, s in self.splits.items()
            },
        }


def answer(
    task: FinetuningTask,
    params: Any,
    mesh: Mesh,
    rows: TaskRows,
    answers: Answers,
    batch_size: int,
    config: ConfigDict,
) -> metrics.Totals:
    """Puts rows through the model, each once, and hands out the answers; returns their Sums."""
    step = jitted_answer_step(task, mesh)
    start, stop = sharding.local_rows(mesh, batch_size)
    totals = metrics.Totals()
    for numbers, length in evaluation_batches(rows.lengths, batch_size, lengths_of(config)):
        local = rows.take(numbers[start:stop], length)
        batch = sharding.shard_batch(mesh, local, batch_size, start)
        sums, found = jax.device_get(step(params, batch))
        totals.add(sums)
        answers.add(numbers, length, found)
    return totals


@functools.lru_cache(maxsize=1)
def jitted_answer_step(task: FinetuningTask, mesh: Mesh) -> Callable[..., Any]:
    """Returns the function (params, batch) -> (Sums, answers), without dropout."""
    model = task.make_model()

    def answer_step(params, batch):
        outputs = model.apply({"params": params}, batch, deterministic=True)
        return task.objective(outputs, batch), task.answers(outputs, batch)

    return jax.jit(answer_step, out_shardings=sharding.replicated(mesh))


def lengths_of(config: ConfigDict) -> tuple[int, ...]:
    """The lengths that rows are padded to."""
    return bucket_lengths(config.data.lengths, config.phases[0][0])


def make_loader(config: ConfigDict, mesh: Mesh, rows: TaskRows, batch_size: int) -> BucketedLoader:
    """Which rows each training batch has; `data.batches` says what they have alike."""
    microbatches = batch_size // (config.microbatch_size or batch_size)
    even_tokens = sharding.batch_shards(mesh) * microbatches
    return BucketedLoader(
        rows.lengths,
        batch_size,
        config.seed,
        lengths_of(config),
        even_tokens if config.data.batches == "tokens" else 0,
    )


def make_data(config: ConfigDict) -> TaskData:
    """The host's side of the configured task, without labels yet.

    Raises:
      ValueError: for settings that it cannot use.
    """
    arguments = {"frozen": config.optimizer.frozen_layers == -1} if config.task == "tagging" else {}
    return TASK_DATA[config.task].make(
        config.data.to_dict(),
        config.head.to_dict(),
        config.metrics,
        config.phases[0][0],
        **arguments,
    )


def open_finetuning(config: ConfigDict, workdir: str, to_train: bool) -> FinetuningExperiment:
    """Reads the files and puts everything together. All processes call it.

    Raises:
      ValueError: for a mesh, a batch size, an optimizer or a file that cannot be used.
    """
    optimizer_config(config)  # its mistakes come before long work
    mesh = make_checked_mesh(config)
    data, phases = make_data(config), make_phases(config, steps=1)
    if not config.data.eval:
        raise ValueError("config.data.eval is missing: the file to evaluate on.")
    sources = {"eval": config.data.eval, **_more_sources(config.data.more_eval)}
    if to_train:
        vocabulary = _vocabulary(config)
        tokenizer = load_tokenizer(vocabulary, config.data.lowercase)
        check_vocabulary(tokenizer, config.model.vocab_size, vocabulary)
        if not config.data.train:
            raise ValueError("config.data.train is missing: the file to train on.")
        examples, counts = _read(data, config.data.train)
        data = data.with_labels_of(examples)
        splits = {"train": _split("train", config.data.train, examples, counts, data, tokenizer)}
        batch_size = phases[0].batch_size
        loader = make_loader(config, mesh, splits["train"].rows, batch_size)
        rows = loader.batches_per_epoch * batch_size
        phases = make_phases(config, total_steps(config, (rows,)))
    else:
        vocabulary, splits = "", {}
        tokenizer = load_workdir_tokenizer(workdir, config.data.lowercase)
        data = data.with_labels(read_labels(workdir))
    for name, source in sources.items():
        splits[name] = _split(name, source, *_read(data, source), data, tokenizer)
    return FinetuningExperiment(
        config, workdir, mesh, tokenizer, phases, data=data, splits=splits, vocabulary=vocabulary
    )


def read_labels(workdir: str) -> tuple[str, ...]:
    """The labels of a run.

    Raises:
      ValueError: there are none.
    """
    path = pathlib.Path(workdir, LABELS)
    if not path.is_file():
        raise ValueError(f"{workdir} has no {LABELS}: train first, with --mode=train.")
    return tuple(read_json(path))


def write_labels(workdir: str, labels: Sequence[str]) -> None:
    """Writes what `read_labels` reads."""
    write_json(os.path.join(workdir, LABELS), list(labels))


def _vocabulary(config: ConfigDict) -> str:
    if not config.data.vocab:
        raise ValueError(
            "config.init_from is missing: the pre-trained model to start from. (Or name a"
            " vocabulary with config.data.vocab, to start from random parameters.)"
        )
    return config.data.vocab


def _more_sources(entries: Sequence[str]) -> dict[str, str]:
    """("NAME=FILE", ...) by name.

    Raises:
      ValueError: for another form, or a name that is taken.
    """
    sources = {}
    for entry in entries:
        name, _, source = entry.partition("=")
        if not source or name in ("train", "eval", *sources):
            raise ValueError(
                f"config.data.more_eval: {entry!r} is not NAME=FILE with a name of its own."
            )
        sources[name] = source
    return sources


def _read(data: TaskData, source: str) -> tuple[list[Any], Counter]:
    counts = Counter()
    return list(data.read(source, counts, labelled=True)), counts


def _split(
    name: str,
    source: str,
    examples: list[Any],
    counts: Counter,
    data: TaskData,
    tokenizer: Tokenizer,
) -> Split:
    if os.path.isfile(source):
        sha256 = file_sha256(source)
    else:
        sha256 = hashlib.sha256(repr(examples).encode()).hexdigest()
    rows = data.encode(examples, tokenizer, counts)
    return Split(name, source, sha256, examples, rows, {n: c for n, c in counts.items() if c})
