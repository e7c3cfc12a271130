"""Several labelled tasks on one encoder, trained in turns (Liu et al. 2019, arXiv 1901.11504).

Each task is an ordinary run in a folder of its own, with its own data, head, optimizer state, steps
and schedule. Only the parameters of the encoder are shared: a turn is a step of one task, which
changes the encoder and its own head. The order of the turns is a random permutation of all steps of
all tasks, so a task's share of the turns is proportional to its number of steps or, with a
temperature, to a root of it.

    DIR/tasks.json      names of the tasks
    DIR/checkpoints     the encoder, and head and optimizer state of each task, by turn
    DIR/NAME            the workdir of a task; after the last turn, its checkpoint has the encoder
                        and its head, like that of any other run
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.config import store
from bert_jax.config.run import RunConfig
from bert_jax.devices import processes
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.files.atomic import write_json
from bert_jax.files.errors import UserError
from bert_jax.files.prefetch import Prefetcher
from bert_jax.training import metrics
from bert_jax.training.checkpoints import Checkpoints, has_checkpoints
from bert_jax.training.evaluate import make_evaluator
from bert_jax.training.feed import training_batches
from bert_jax.training.initial import check_source
from bert_jax.training.listener import Listener
from bert_jax.training.open import open_run
from bert_jax.training.reporting import Reporter
from bert_jax.training.resume import (
    check_unchanged,
    checkpoint_meta,
    record_start,
    restore_or_init,
)
from bert_jax.training.state import TrainState, abstract_state
from bert_jax.training.step import make_train_step
from bert_jax.training.train import TrainResult, report_chosen
from bert_jax.training.turns import check_tasks, order_of_turns, tempered, with_steps
from bert_jax.training.workdir import save_to_workdir

# Parameters by path, such as bert/embeddings/...
Params = Mapping[str, Any]


def train_tasks(
    configs: Mapping[str, RunConfig],
    workdir: str,
    *,
    listeners: Mapping[str, Listener] | None = None,
    temperature: float = 1.0,
) -> dict[str, TrainResult]:
    """Trains tasks in turns, to the end or until SIGTERM or SIGINT; resumes where it was stopped.

    All tasks use the last encoder: `checkpoint.use` becomes "newest".

    Args:
      configs: name of a task -> its configuration; model, seed and `init_from` are the same.
      workdir: folder of all tasks; that of a task is workdir/NAME.
      listeners: name of a task -> what receives its progress, metrics and messages.
      temperature: above 1, small tasks get more turns; see `tempered`.

    Returns:
      The result of each task.

    Raises:
      UserError: as `train`; or the tasks cannot share one encoder.
    """
    configs = {
        name: config.replace({"checkpoint.use": "newest"}) for name, config in configs.items()
    }
    check_tasks(configs, workdir)
    given = listeners if listeners and processes.is_main() else {}
    log = next(iter(given.values()), Listener()).line
    with contextlib.ExitStack() as stack:
        for folder in (workdir, *(_folder(workdir, name) for name in configs)):
            stack.enter_context(processes.lock(folder, log))
        return _train_tasks(configs, workdir, given, temperature)


def _train_tasks(
    configs: Mapping[str, RunConfig],
    workdir: str,
    given: Mapping[str, Listener],
    temperature: float,
) -> dict[str, TrainResult]:
    first = next(iter(configs.values()))
    if first.init_from and not store.has_begun(first.init_from, _folder(workdir, [*configs][0])):
        check_source(first)
    if temperature != 1:
        folders = {name: _folder(workdir, name) for name in configs}
        steps = [open_run(config, folders[name]).steps for name, config in configs.items()]
        counts = dict(zip(configs, tempered(steps, temperature), strict=True))
        configs = {name: with_steps(config, counts[name]) for name, config in configs.items()}
    tasks = [
        _Task(name, config, _folder(workdir, name), given.get(name, Listener()))
        for name, config in configs.items()
    ]
    with contextlib.ExitStack() as stack:
        keep = max(config.checkpoint.keep for config in configs.values())
        checkpoints = stack.enter_context(contextlib.closing(Checkpoints(workdir, keep=keep)))
        states = _restore_or_init(tasks, checkpoints, workdir)
        for task in tasks:
            stack.enter_context(contextlib.closing(task.listener))
            task.start(states, stack)
        if processes.is_main():
            write_json(os.path.join(workdir, store.TASKS), [task.name for task in tasks])
        stop = stack.enter_context(processes.StopRequest())
        _take_turns(tasks, states, checkpoints, stop)
        stopped_by = stop.signal_name if stop.granted and states.turn < _turns(tasks) else ""
        if not stopped_by:
            checkpoints.wait()
            for task in tasks:
                task.finish(states)
    if stopped_by:
        tasks[0].listener.line(
            f"Stopped by {stopped_by} after turn {states.turn} of {_turns(tasks)}, which is saved."
            " The same command resumes from here."
        )
    return {
        task.name: TrainResult(
            task.run, states.of(task.name), metrics.history(task.run.workdir), stopped_by
        )
        for task in tasks
    }


# ------------------------------------------------------------------ what the tasks share


@dataclasses.dataclass
class _States:
    """The state of all tasks.

    Attributes:
      turn: turns so far.
      name: top-level name of the encoder's parameters.
      encoder: parameters of the encoder.
      own: state of each task; its parameters are those of its head, including the pooler.
    """

    turn: int
    name: str
    encoder: Params
    own: dict[str, TrainState]

    @classmethod
    def join(cls, name: str, states: Mapping[str, TrainState]) -> "_States":
        """Returns the state of tasks before the first turn, with the encoder of the last."""
        found = cls(0, name, {}, {})
        for task, state in states.items():
            found.put(task, state)
        return found

    def of(self, task: str) -> TrainState:
        """Returns the state of a task, with the encoder as it is now."""
        state = self.own[task]
        return dataclasses.replace(state, params=unflatten({**self.encoder, **state.params}))

    def put(self, task: str, state: TrainState) -> None:
        """Replaces the state of a task, and the encoder by that of the task."""
        params = flatten(state.params)
        pooler = f"{self.name}/pooler/"
        shared = {p for p in params if p.startswith(f"{self.name}/") and not p.startswith(pooler)}
        self.encoder = {path: params[path] for path in shared}
        own = {path: params[path] for path in params if path not in shared}
        self.own[task] = dataclasses.replace(state, params=own)

    def packed(self) -> TrainState:
        """Returns everything as one state for a checkpoint; its step is the turn."""
        heads = {task: unflatten(state.params) for task, state in self.own.items() if state.params}
        others = {
            task: {
                "step": state.step,
                "opt_state": state.opt_state,
                "nonfinite_streak": state.nonfinite_streak,
            }
            for task, state in self.own.items()
        }
        return TrainState(
            step=np.array(self.turn, np.int32),  # pyright: ignore[reportArgumentType]
            params={"encoder": unflatten(self.encoder), "heads": heads},
            opt_state=others,
            nonfinite_streak=np.array(0, np.int32),  # pyright: ignore[reportArgumentType]
        )

    def unpacked(self, packed: TrainState) -> "_States":
        """Returns the states that `packed` was made from, for the same tasks."""
        heads = packed.params["heads"]
        own = {
            task: TrainState(params=flatten(heads.get(task, {})), **packed.opt_state[task])
            for task in self.own
        }
        return _States(int(packed.step), self.name, flatten(packed.params["encoder"]), own)


def _turns(tasks: Sequence["_Task"]) -> int:
    return sum(task.run.steps for task in tasks)


def _folder(workdir: str, name: str) -> str:
    return os.path.join(workdir, name)


def _restore_or_init(tasks: Sequence["_Task"], checkpoints: Checkpoints, workdir: str) -> _States:
    encoder = tasks[0].run.model.name
    turn = checkpoints.newest_good_step()
    meta = checkpoints.read_meta(turn) if turn is not None else {}
    if meta:
        names, before = [task.name for task in tasks], meta["names"]
        if before != names:
            raise UserError(
                f"{workdir} was trained with the tasks {', '.join(before)}, and not"
                f" {', '.join(names)}, in this order: choose another --workdir."
            )
        for task in tasks:
            check_unchanged(task.run, meta["tasks"][task.name])
    for task in tasks:
        if turn != _turns(tasks) and has_checkpoints(task.run.workdir):
            raise UserError(
                f"{task.run.workdir} holds the checkpoints of another run: remove them, or choose"
                " another --workdir."
            )
    if turn is None:
        return _States.join(encoder, {task.name: task.init() for task in tasks})
    abstract = _States.join(encoder, {task.name: task.abstract_state() for task in tasks})
    like = abstract.packed()
    states = abstract.unpacked(checkpoints.restore(turn, like)[0])
    for task in tasks:
        task.totals = meta["tasks"][task.name]["totals"]
        task.listener.line(f"resumed    after turn {turn} of {_turns(tasks)}")
    return states


def _take_turns(
    tasks: Sequence["_Task"],
    states: _States,
    checkpoints: Checkpoints,
    stop: processes.StopRequest,
) -> None:
    """Trains to the last turn, or until a request to stop."""
    order = order_of_turns([task.run.steps for task in tasks], tasks[0].run.config.seed)
    for number in order[states.turn :].tolist():
        task = tasks[number]
        is_due = task.take_turn(states)
        stopping = stop.is_set(states.turn)
        if stopping or is_due or states.turn == len(order):
            for each in tasks:
                each.reporter.sync(each.step)
            meta = {
                "names": [each.name for each in tasks],
                "steps": len(order),
                "tasks": {each.name: each.meta() for each in tasks},
            }
            checkpoints.save(states.packed(), meta, {})
        if stopping:
            break


# ------------------------------------------------------------------ a task


class _Task:
    """A task: its run, and what its turns need.

    Attributes:
      name: name of the task.
      run: the run in its folder.
      listener: receives what the run reports.
      step: steps so far.
      totals: sums since the last report, from a checkpoint.
    """

    def __init__(self, name: str, config: RunConfig, folder: str, listener: Listener):
        self.name, self.listener = name, listener
        self.run = open_run(config, folder, log=listener.line)
        (self._phase,) = self.run.phases
        self.step, self.totals = 0, None
        listener.opened(self.run)

    def init(self) -> TrainState:
        """Returns the state before the first step."""
        with contextlib.closing(Checkpoints(self.run.workdir)) as checkpoints:
            return restore_or_init(self.run, checkpoints, self.listener)[0]

    def abstract_state(self) -> TrainState:
        """Returns shapes, dtypes and shardings of the state."""
        task, (tx, _) = self.run.task_at(self._phase), self.run.optimizer()
        return abstract_state(task, tx, self.run.mesh, self._phase.batch_size)

    def start(self, states: _States, stack: contextlib.ExitStack) -> None:
        """Prepares the turns of a run that starts or resumes with these states."""
        run, phase, state = self.run, self._phase, states.of(self.name)
        self.step = int(state.step)
        self.listener.started(run, state)
        if processes.is_main() and self.step < run.steps:
            save_to_workdir(run)
            record_start(run, self.step)
        names = ("log", "eval", "checkpoint")
        self._every = {name: run.steps_of(f"{name}.every", phase) for name in names}
        self._train_step = make_train_step(run, phase, log_every=self._every["log"])
        evaluate = make_evaluator(run, phase)
        assert evaluate is not None  # config.data.eval is mandatory
        self._evaluate = evaluate
        self._keys = {purpose: run.key(purpose) for purpose in ("dropout", "masking")}
        self.reporter = Reporter(run, self.listener, state, metrics.Totals(self.totals))
        stack.enter_context(contextlib.closing(self.reporter))
        self.reporter.begin(phase, state, self._evaluate)
        first = self.step
        self._batches = stack.enter_context(Prefetcher(lambda: training_batches(run, phase, first)))

    def take_turn(self, states: _States) -> bool:
        """Does a step, and reports what is due; returns whether a checkpoint is due."""
        batch = next(self._batches)
        state, step_metrics = self._train_step(
            states.of(self.name), batch, self._keys, self.run.constants
        )
        states.put(self.name, state)
        states.turn += 1
        self.step += 1
        shape = batch["input_ids"].shape
        self.reporter.push(self.step, self._phase, step_metrics, self._batches.waited, shape)
        is_last = self.step == self.run.steps
        if is_last or self._is_due("log"):
            self.reporter.log(self.step)
        if self._is_due("eval") and not is_last:  # the last evaluation is that of `finish`
            self.reporter.pause()
            evaluation = self._evaluate(states.of(self.name).params)
            self.reporter.report_evaluation(self.step, evaluation, is_last=False, is_chosen=True)
        return self._is_due("checkpoint")

    def _is_due(self, name: str) -> bool:
        return self._every[name] > 0 and self.step % self._every[name] == 0

    def meta(self, fitted: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns the `checkpoint_meta` of the task."""
        return checkpoint_meta(self.run, self.reporter.totals, False, fitted)

    def finish(self, states: _States) -> None:
        """Evaluates the task with the last encoder, and writes its checkpoint and results.json."""
        run, report = self.run, self.reporter.report_evaluation
        before = metrics.read_evaluations(run.workdir, self.step)
        if any(row["step"] == self.step for row in before):  # interrupted since
            report = functools.partial(self.listener.evaluation, run)
        with contextlib.closing(Checkpoints(run.workdir, keep=1)) as checkpoints:
            if checkpoints.newest_good_step() != run.steps:
                self.reporter.pause()
                evaluation = self._evaluate(states.of(self.name).params)
                report(self.step, evaluation, is_last=True, is_chosen=True)
                self.reporter.sync(self.step)
                meta = self.meta(evaluation.fitted)
                checkpoints.save(states.of(self.name), meta, evaluation.values)
            report_chosen(run, checkpoints, self.listener)
