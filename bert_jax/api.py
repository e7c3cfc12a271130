"""The Python API: load a model and use it; train, fine-tune and prepare data.

    >>> import bert_jax
    >>> model = bert_jax.train(bert_jax.get_config("fast:tiny", steps=500), "runs/mine")
    >>> model.encode(["A cat sat on the mat."]).shape
    (1, 128)

Settings go through the same presets, `init_from` and checks as on the command line, and results
equal those of the commands, bit for bit. docs/python.md is the guide.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax.config import experiments, store
from bert_jax.config.editing import forget_written, set_fields, written
from bert_jax.config.group import flatten
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.config.task import TASKS as TASK_CLASSES
from bert_jax.config.task import add_task, find_task
from bert_jax.data import init_from
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare as prepare_corpus
from bert_jax.data.in_memory import naming_arguments, to_file
from bert_jax.files.atomic import read_json
from bert_jax.files.errors import UserError, python_spelling, spell_in_python
from bert_jax.inference.minimal_pairs import evaluate_suite
from bert_jax.inference.model import Model, load
from bert_jax.inference.probing import probe
from bert_jax.inference.search import evaluate_retrieval, mine_negatives
from bert_jax.plans import adaptation
from bert_jax.plans.finetuning import TASKS, Plan, default_workdir, make_plan, plan_finetuning
from bert_jax.tasks.task import Task
from bert_jax.training import own_batches
from bert_jax.training import train as training
from bert_jax.training.listener import Listener
from bert_jax.training.multitask import train_tasks
from bert_jax.training.own_batches import MakeBatch
from bert_jax.training.seeds import train_seeds

__all__ = [
    "Model",
    "adapt",
    "evaluate_retrieval",
    "evaluate_suite",
    "finetune",
    "get_config",
    "load",
    "mine_negatives",
    "multitask",
    "prepare",
    "probe",
    "train",
]

# (outputs of the task's model, batch) -> Sum of the loss.
Loss = Callable[[Any, Mapping[str, jax.Array]], Any]

# Attribute on what `get_config` returns: the values from the configuration's file, and the names of
# the fields that the file sets itself.
_FILE = "_file"


@python_spelling()
def get_config(name: str, **values: Any) -> Any:
    """Returns the `ConfigDict` of an experiment, named as for `--config`.

    Args:
      name: name of a file in configs/ ("fast:tiny" is configs/fast.py:tiny), or a path.
      values: fields to set, with "__" in place of dots: `optimizer__learning_rate=1e-4`.

    Raises:
      UserError: there is no such file or field.

    >>> config = bert_jax.get_config("fast:tiny")
    >>> config.steps = 500
    """
    config = experiments.load(name)
    object.__setattr__(config, _FILE, (dict(flatten(config)), written(config)))
    forget_written(config)
    return set_values(config, values).lock()


def set_values(config: ConfigDict, values: Mapping[str, Any]) -> ConfigDict:
    """Sets fields by name, with "__" in place of dots, and returns the configuration.

    Raises:
      UserError: a field does not exist, or the value has the wrong type.
    """
    set_fields(config, _dotted(values))
    return config


def _dotted(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in values.items()}


class ProgressLine(Listener):
    """Shows the progress of a run.

    In a terminal or a notebook, one line is updated once a second; elsewhere, as in a log, each
    report is a new line.
    """

    def __init__(self):
        self._step = self._steps = self._width = 0
        self._losses: dict[str, float] = {}
        self._updates = sys.stdout.isatty() or "ipykernel" in sys.modules
        self._shown = 0.0  # time in seconds

    def progress(self, step: int, steps: int) -> None:
        self._step, self._steps = step, steps
        if self._updates and (step == steps or time.monotonic() > self._shown + 1):
            self._show()

    def metrics(
        self, step: int, split: str, values: Mapping[str, float], speed: Mapping[str, float]
    ) -> None:
        name = "loss" if split == "train" else "held-out loss"
        self._losses.pop(name, None)  # the newest loss is shown last
        self._losses[name] = values.get("loss", float("nan"))
        self._step = step
        self._show()

    def close(self) -> None:
        if self._width:
            print(flush=True)
            self._width = 0

    def _show(self) -> None:
        losses = "  ".join(f"{name} {value:.4f}" for name, value in self._losses.items())
        # An evaluation before the first step comes before the number of steps is known.
        steps = f"/{self._steps}" if self._steps else ""
        text = f"step {self._step}{steps}  {losses}".rstrip()
        if not self._updates:
            print(text, flush=True)
            return
        print(f"\r{text:<{self._width}}", end="", flush=True)
        self._width, self._shown = len(text), time.monotonic()


@python_spelling()
def train(
    config: ConfigDict | RunConfig,
    workdir: str | os.PathLike[str],
    losses: Mapping[str, Loss] | None = None,
    listener: Listener | None = None,
    batches: MakeBatch | None = None,
) -> Model:
    """Trains a model, or resumes a stopped run, and returns the model.

    Args:
      config: result of `get_config`, which is not changed, or a `RunConfig`.
      workdir: folder of the run: configuration, data, checkpoints, metrics.
      losses: further losses by name; the mean of each is added to the task's loss and reported
        under its name. A loss is a function (outputs of the task's model, batch) -> `Sum`.
      listener: receives messages, progress and metrics; None: a `ProgressLine`.
      batches: pre-trains on your own batches: a function of the step, counted from 0, that returns
        `input_ids`, int32[batch, seq], and other fields of the batch form (`data.batch`), or
        `attention_mask`. The same step must give the same batch, so that a stopped run resumes
        exactly. `config.data.vocab` is the vocabulary that made the ids. None: a corpus.

    Raises:
      UserError: for settings or data that cannot be used.

    >>> model = bert_jax.train(bert_jax.get_config("tiny", steps=100), "runs/tiny")
    >>> model.history["loss"]
    """
    workdir = os.fspath(workdir)
    if not (isinstance(losses or {}, Mapping) and all(map(callable, (losses or {}).values()))):
        raise UserError(
            f"losses={losses!r} is not a dict of name -> function (outputs, batch) -> Sum: see"
            " docs/python.md."
        )
    if batches is not None and not callable(batches):
        raise UserError(
            f"batches={batches!r:.60} is not a function of the step: an iterator cannot resume"
            " exactly."
        )
    return _run(resolve(config, workdir), workdir, listener, losses, batches)


def _run(
    config: RunConfig,
    workdir: str,
    listener: Listener | None,
    losses: Mapping[str, Loss] | None = None,
    batches: MakeBatch | None = None,
) -> Model:
    """Trains with a resolved configuration, and returns the model."""
    several = config.get("seeds", 1) > 1
    common: Any = {"listener": listener or ProgressLine(), "losses": losses}
    if several and batches:
        raise UserError("seeds: batches=... train one seed at a time; leave config.seeds out.")
    if batches and "data.source" in config.fields():
        config = config.replace({"data.source": own_batches.SOURCE})
    if not several:
        _end_if_stopped(training.train(config, workdir, **common, batches=batches).stopped_by)
    else:
        _end_if_stopped(train_seeds(config, workdir, **common).stopped_by)
        best = read_json(os.path.join(workdir, "results.json"))["spread"]["best_seed"]
        workdir = os.path.join(workdir, f"seed-{best}")
    return load(workdir)


def _end_if_stopped(signal_name: str) -> None:
    """Does what the signal would have done if training had not caught it to save the run.

    Raises:
      KeyboardInterrupt: for SIGINT.
      SystemExit: for SIGTERM, with the exit code of a shell.
    """
    if signal_name == "SIGINT":
        raise KeyboardInterrupt
    if signal_name:
        sys.exit(128 + signal.Signals[signal_name])


@python_spelling()
def finetune(
    model: Model | str | os.PathLike[str],
    train: Any,
    evaluate: Any = None,
    task: str | type[Task] = "",
    workdir: str | os.PathLike[str] = "",
    listener: Listener | None = None,
    teacher: Model | str | os.PathLike[str] | None = None,
    **values: Any,
) -> Model:
    """Fine-tunes a model on labelled examples, and returns the new one.

    The task and the columns follow from the examples, the recipe from the encoder and the number of
    examples: docs/finetuning.md has the rules. The choices are printed with the reasons, or sent to
    `listener.line`.

    Args:
      model: a model or its folder (a workdir or another program's).
      train: examples to train on: the path of a file; a table of pandas, polars, pyarrow or
        Hugging Face `datasets`; rows as dicts; or (texts, labels). A text may be a pair, or a list
        of words with a list of tags. Data in memory is written to the workdir as JSON lines.
      evaluate: examples to evaluate on, in any of these forms; None: a stratified tenth of `train`.
      task: "classification", "regression", "multi_label", "tagging", "span", "multiple_choice" or
        "embedding", "splade", or a class of your own; "": inferred from the examples. Or a
        configuration, such as "glue:mrpc", whose recipe is kept.
      workdir: folder of the new run; "": runs/ and the name of the file.
      listener: see `train`.
      teacher: a model or its folder, fine-tuned for the same labels, that the model also learns
        from, as the `distillation__...` fields say. None: no distillation.
      values: fields of the configuration, with "__" in place of dots: `epochs=2.0`,
        `optimizer__learning_rate=3e-5`, `task__text_b="sentence2"`.

    Raises:
      UserError: as in `train`, or the file fits none of the tasks.

    >>> model = bert_jax.finetune("runs/mine", "train.csv", workdir="runs/reviews")
    >>> model = bert_jax.finetune("runs/mine", (texts, labels), workdir="runs/reviews")
    """
    folder = _folder(model)
    if teacher is not None:
        values["distillation__teacher"] = _folder(teacher)
    train, evaluate = _data(train, "train"), _data(evaluate, "evaluate")
    workdir = os.fspath(workdir) or default_workdir(_named(train, "train"))
    if isinstance(task, type):
        task = add_task(task)
    is_own = task in TASK_CLASSES and not find_task(task).RUN.has_corpus
    if not task or task in TASKS or is_own:
        given = _dotted(values)
        plan = plan_finetuning(folder, train, evaluate, task, workdir, given)
        return _carry_out(plan, workdir, listener)
    try:
        experiments.find(task)
    except UserError:
        raise UserError(
            f"Unknown task {task!r}. Available: {', '.join(TASKS)}, a class, or a configuration,"
            " such as glue:mrpc."
        ) from None
    config = get_config(task)
    if "source" in config.data:
        raise UserError(f"task={task!r} trains on a corpus; give one of {', '.join(TASKS)}.")
    with tempfile.TemporaryDirectory() as parts, naming_arguments(parts):
        train, evaluate = to_file(train, parts, "train"), to_file(evaluate, parts, "evaluate")
        files = {"init_from": folder, "data.train": train, "data.eval": evaluate}
        plan = make_plan(resolve(set_values(config, files | values), workdir), (), parts, workdir)
    return _carry_out(plan, workdir, listener)


@python_spelling()
def multitask(
    configs: Mapping[str, ConfigDict | RunConfig],
    workdir: str | os.PathLike[str],
    listeners: Mapping[str, Listener] | None = None,
    temperature: float = 1.0,
) -> dict[str, Model]:
    """Trains several labelled tasks in turn on a shared encoder, and returns each task's model.

    Args:
      configs: name of a task -> its configuration (`get_config`); all have the same `init_from`,
        model and seed.
      workdir: folder of the run; the workdir of a task is workdir/NAME.
      listeners: name of a task -> listener for its messages and metrics; None: no listeners.
      temperature: a task's share of all steps is proportional to its steps ** (1 / temperature).

    Raises:
      UserError: as in `train`, or the tasks cannot share an encoder.

    >>> reviews = bert_jax.get_config("classification", init_from="runs/mine", ...)
    >>> names = bert_jax.get_config("ner:wikigold", init_from="runs/mine", ...)
    >>> models = bert_jax.multitask({"reviews": reviews, "names": names}, "runs/both")
    >>> models["names"].predict(["Ann lives in Rome."])
    """
    workdir = os.fspath(workdir)
    for name, config in configs.items():
        if not isinstance(config, ConfigDict | RunConfig):
            raise UserError(
                f"configs[{name!r}] is of type {type(config).__name__}: give a configuration, such"
                " as get_config('glue:mrpc')."
            )
    folders = {name: os.path.join(workdir, name) for name in configs}
    resolved = {name: resolve(config, folders[name]) for name, config in configs.items()}
    results = train_tasks(resolved, workdir, listeners=listeners, temperature=temperature)
    _end_if_stopped(next((result.stopped_by for result in results.values()), ""))
    return {name: load(folder) for name, folder in folders.items()}


@python_spelling()
def adapt(
    model: Model | str | os.PathLike[str],
    text: Any,
    workdir: str | os.PathLike[str] = "",
    evaluate: Any = None,
    general: Any = None,
    listener: Listener | None = None,
    **values: Any,
) -> Model:
    """Continues pre-training a model on a text, and returns the new model.

    The form of the text is detected; rows, length, steps and learning rate follow from the model
    and the text: docs/pretraining.md has the rules. The choices are printed with the reasons, or
    sent to `listener.line`. The held-out text is also evaluated before the first step, at step 0.

    Args:
      model: a model or its folder (a workdir or another program's).
      text: text files, a glob, JSON lines, or Parquet files; or texts in memory, one per document:
        an iterable, or a table such as a DataFrame, which are written to the workdir.
      workdir: folder of the new run; "": runs/NAME-adapted, with the name of the text.
      evaluate: text to evaluate on; None: a part of `text` is held out.
      general: general text, which is evaluated too; `data__replay=0.2` also trains on it.
      listener: see `train`.
      values: fields of the configuration, with "__" in place of dots: `epochs=3.0`.

    Raises:
      UserError: as in `train`, or the text cannot be used.

    >>> model = bert_jax.adapt("runs/mine", "text.txt", workdir="runs/adapted")
    """
    folder = _folder(model)
    text, evaluate = _data(text, "text"), _data(evaluate, "evaluate")
    workdir = os.fspath(workdir) or adaptation.default_workdir(_named(text, "text"))
    given = _dotted(values)
    general = _data(general, "general")
    plan = adaptation.plan_adaptation(folder, text, evaluate, workdir, given, general)
    return _carry_out(plan, workdir, listener)


def _folder(model: Model | str | os.PathLike[str]) -> str:
    """Returns the folder of a model, or its name on the hub."""
    if isinstance(model, Model):
        if model.is_changed:
            raise UserError(
                "The parameters of the model are in no folder: export it, and start from that one."
            )
        return model.folder
    if not isinstance(model, str | os.PathLike):
        raise UserError(
            f"model is of type {type(model).__name__}: give a bert_jax.Model, the folder of one, or"
            " a name of the hub."
        )
    if os.path.isfile(model):
        raise UserError(f"{os.fspath(model)} is a file, not a model: the order is (model, file).")
    return os.fspath(model)


def _data(data: Any, name: str) -> Any:
    """Returns an argument that holds examples or texts; "" if it is not given."""
    if isinstance(data, Model):
        raise UserError(f"{name} is a model: the order is (model, {name}).")
    if data is None and name not in ("train", "text"):
        return ""
    return os.fspath(data) if isinstance(data, os.PathLike) else data


def _named(data: Any, name: str) -> str:
    """Returns the path of a file, after which the folder of a run is named."""
    if isinstance(data, str):
        return data
    raise UserError(f"workdir is missing: name a folder for the run, since {name} is not a file.")


def _carry_out(plan: Plan, workdir: str, listener: Listener | None) -> Model:
    """Trains a plan; its choices and reasons go to the listener or, without one, are printed."""
    show = listener.line if listener else print
    for line in plan.lines:
        show(spell_in_python(line))
    with plan.begin(workdir, show):
        return _run(plan.config, workdir, listener)


@python_spelling()
def prepare(config: ConfigDict | RunConfig, data_dir: str | os.PathLike[str]) -> Manifest:
    """Makes the vocabulary and training shards of a corpus, as training does if they are missing.

    Args:
      config: see `train`.
      data_dir: folder for the data; train with `config.data.dir` set to it.

    >>> bert_jax.prepare(bert_jax.get_config("tiny"), "data/tiny")
    """
    data_dir = os.fspath(data_dir)
    resolved = resolve(config, "", data_dir)
    if not isinstance(resolved, PretrainingConfig):
        raise UserError(
            f"config.task.name={config.task.name!r} has no corpus: there is nothing to prepare."
        )
    return prepare_corpus(resolved.data, data_dir, resolved.data.num_processes)


def resolve(config: ConfigDict | RunConfig, workdir: str, data_dir: str = "") -> RunConfig:
    """Returns a configuration with its preset, `init_from` and all checks applied.

    Fields that were set since the configuration's file was read keep their values.
    """
    (at_first, by_file), values = getattr(config, _FILE, ({}, set())), config.to_dict()
    explicit = set()
    if at_first:
        explicit = {name for name, value in flatten(values) if at_first.get(name) != value}
        explicit |= written(config)
    elif isinstance(config, RunConfig):
        usual = type(config.task).default_config().fields()
        by_file = {name for name, value in config.fields().items() if usual.get(name) != value}
    if workdir:
        store.check_workdir(workdir)
    return init_from.resolve(values, explicit, workdir, data_dir, by_file)
