"""A trace of some steps of a run, by jax.profiler: what devices and host do, and when."""

import pathlib
from collections.abc import Callable
from typing import Any

import jax

from bert_jax.config.phases import parse_steps
from bert_jax.devices import processes
from bert_jax.files import buckets
from bert_jax.files.errors import UserError

FOLDER = "profile"


class Profile:
    """Traces some steps of a run into the folder profile/ of its workdir.

    Each step is annotated as "train", with its number. With several processes, only the first
    writes a trace, of its own devices. A run that resumes within the steps traces the rest of them.

    Args:
      text: `config.profile`, such as "10:15".
      workdir: folder of the run.
      steps: steps of the whole run.
      report: called with lines that say where a trace is, and how to open it.

    Raises:
      UserError: the run has no such steps.
    """

    def __init__(self, text: str, workdir: str, steps: int, report: Callable[[str], None]):
        first, last = parse_steps("config.profile", text) or (0, -1)
        if first > steps:
            raise UserError(
                f"config.profile={text} begins after the last step of the run, {steps}: choose"
                " earlier steps."
            )
        self._steps = range(first, min(last, steps) + 1 if processes.is_main() else first)
        self._folder = pathlib.Path(workdir, FOLDER)
        self._report = report
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
        self._report(f"profile    steps {begin} to {end} in {self._folder}; to open it:")
        newest = max(self._folder.glob("plugins/profile/*"))
        for path in newest.glob("*.trace.json.gz"):
            self._report(f"           {path} at https://ui.perfetto.dev, or")
        self._report(f"           pip install xprof; xprof --logdir={self._folder}")
