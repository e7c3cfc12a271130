"""A trace of some steps of a run, by jax.profiler: what devices and host do, and when."""

import pathlib
from collections.abc import Callable
from typing import Any

import jax

from bert_jax.config.phases import parse_steps
from bert_jax.devices import processes
from bert_jax.files import buckets
from bert_jax.files.errors import UserError
from bert_jax.training.listener import Listener
from bert_jax.training.run import Run

FOLDER = "profile"


class Profile:
    """Traces the steps of `config.profile` into the folder profile/ of the workdir.

    Each step is marked as step "train" with its number. Of several processes, the first writes a
    trace, that of its own devices. A run that resumes within the steps traces those that are left.

    Raises:
      UserError: the run has no such steps.
    """

    def __init__(self, run: Run, listener: Listener):
        text = run.config.profile
        first, last = parse_steps("config.profile", text) or (0, -1)
        if first > run.steps:
            raise UserError(
                f"config.profile={text} begins after the last step of the run, {run.steps}: choose"
                " earlier steps."
            )
        self._steps = range(first, min(last, run.steps) + 1 if processes.is_main() else first)
        self._folder = pathlib.Path(run.workdir, FOLDER)
        self._listener = listener
        self._traced: list[int] = []  # steps of the trace in progress

    def step(self, number: int, train_step: Callable[..., Any], *arguments: Any) -> Any:
        """Returns train_step(*arguments); traces it if it is one of the steps to trace.

        Args:
          number: number of the step, from 1.
          train_step: the step.
          *arguments: its arguments.
        """
        if number not in self._steps:
            return train_step(*arguments)
        if not self._traced:
            jax.profiler.start_trace(self._folder)
        self._traced.append(number)
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            results = train_step(*arguments)
        if number == self._steps[-1]:
            jax.block_until_ready(results)
            self.close()
        return results

    def close(self) -> None:
        """Ends the trace in progress, if there is one, and reports where it is."""
        if not self._traced:
            return
        jax.profiler.stop_trace()
        begin, end = self._traced[0], self._traced[-1]
        self._traced.clear()
        buckets.publish(self._folder)
        self._listener.line(f"profile    steps {begin} to {end} in {self._folder}; to open it:")
        newest = max(self._folder.glob("plugins/profile/*"))
        for path in newest.glob("*.trace.json.gz"):
            self._listener.line(f"           {path} at https://ui.perfetto.dev, or")
        self._listener.line(f"           pip install xprof; xprof --logdir={self._folder}")
