"""Trains several labelled tasks on one encoder, in turns, or resumes a run that was stopped.

    bert_jax multitask --workdir=DIR --config.init_from=BERT \\
        films=configs/classification.py films.data.train=a.tsv films.data.eval=b.tsv \\
        names=configs/ner.py:wikigold names.data.train=a.conll names.data.eval=b.conll

NAME=CONFIG adds a task, NAME.FIELD=VALUE sets a field of its configuration, --config.FIELD=VALUE
one of all tasks. A task takes as many turns as its files and epochs give steps. DIR/NAME is the
workdir of a task: predict, serve, evaluate and convert take it like that of any run.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from bert_jax.config.phases import without_given
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import CACHE, OVERRIDES, Flag, prepare_process, resolve

FLAGS = (
    Flag("TASK", [], "NAME=CONFIG of each task, and NAME.FIELD=VALUE"),
    Flag(
        "workdir",
        "",
        "Folder of the run; that of a task is WORKDIR/NAME.",
        missing="the folder that the run is kept in",
    ),
    Flag("temperature", 1.0, "Above 1, small tasks get more steps: shares are steps^(1/T)."),
    CACHE,
    OVERRIDES,
)


def run(flags: argparse.Namespace) -> None:
    tasks = read_tasks(flags.task)
    configs = {}
    for name, (path, fields) in tasks.items():
        folder = os.path.join(flags.workdir, name)
        try:
            configs[name] = resolve(path, without_given(flags.overrides, fields) | fields, folder)
        except UserError as error:
            raise UserError(f"Task {name}: {error}") from error
    prepare_process(flags.compilation_cache)
    from bert_jax.tools.listeners.make import training_listener
    from bert_jax.tools.report.report import write_report
    from bert_jax.training.multitask import train_tasks

    listeners = {name: training_listener(name=name) for name in configs}
    results = train_tasks(
        configs, flags.workdir, listeners=listeners, temperature=flags.temperature
    )
    for name, result in results.items():
        if result.stopped_by:
            sys.exit(128 + signal.Signals[result.stopped_by])
        print(write_report(os.path.join(flags.workdir, name)))


def read_tasks(words: Sequence[str]) -> dict[str, tuple[str, dict[str, str]]]:
    """Returns name -> configuration file, and the text of each field.

    Raises:
      UserError: a word has another form, a name is given twice, or a field is that of no task.
    """
    tasks: dict[str, tuple[str, dict[str, str]]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        name, dot, field = key.partition(".")
        if not (equals and name and value) or (dot and not field):
            raise UserError(f"{word!r} is neither NAME=CONFIG nor NAME.FIELD=VALUE.")
        if not dot and name in tasks:
            raise UserError(f"{word}: there is a task {name} already, choose another name.")
        if dot and name not in tasks:
            raise UserError(f"{word}: there is no task {name}: give {name}=CONFIG before it.")
        if dot:
            tasks[name][1][field] = value
        else:
            tasks[name] = value, {}
    if not tasks:
        raise UserError("Give the tasks: NAME=CONFIG and NAME.FIELD=VALUE for each.")
    return tasks
