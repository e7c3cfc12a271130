"""Aggregates step metrics: means between reports, metrics.jsonl, non-finite steps."""

import collections
import math
import os
import time

import jax
import numpy as np

from bert_jax.config.phases import Phase
from bert_jax.devices import processes
from bert_jax.devices.chips import peak_flops
from bert_jax.files.atomic import whole_file
from bert_jax.files.errors import UserError
from bert_jax.training import feed, metrics
from bert_jax.training.evaluate import Evaluator
from bert_jax.training.listener import Evaluation, Listener
from bert_jax.training.run import Run
from bert_jax.training.state import TrainState
from bert_jax.training.step import StepMetrics

# Steps that the device works on before the host looks at the metrics of the oldest.
_STEPS_IN_FLIGHT = 2


class Reporter:
    """Collects metrics without blocking the device.

    `totals` are the sums since the last report. Checkpoints hold them, so that the first report
    after resuming is the same as without an interruption.
    """

    def __init__(
        self,
        run: Run,
        listener: Listener,
        state: TrainState,
        totals: metrics.Totals,
    ):
        self.totals = totals
        self._run = run
        self._listener = listener
        self._schedule = run.optimizer()[1]
        self._in_flight: collections.deque[tuple[int, Phase, StepMetrics]] = collections.deque()
        self._streak = int(state.nonfinite_streak)
        self._update_norm = float("nan")
        self._file = None
        before: dict[str, float] = {}
        if processes.is_main():
            self._file = metrics.MetricsFile(run.workdir, int(state.step))
            before = self._file.last_speed
        self._clock = Clock(before.get("seconds", 0.0), int(before.get("tokens", 0)))

    def begin(self, phase: Phase, state: TrainState, evaluate: Evaluator | None) -> None:
        """Starts a phase; with `eval.at_start`, first evaluates the parameters of step 0."""
        self._phase = phase
        task_before = next(
            (p.task for p in self._run.phases if p.last_step == phase.first_step), ""
        )
        if int(state.step) == phase.first_step and task_before != phase.task:
            self.totals.end_loss()  # `loss` is that of one task
        if self._run.config.eval.at_start and evaluate and not int(state.step):
            self.pause()
            evaluation = evaluate(state.params)
            self.report_evaluation(0, evaluation, is_last=False, is_chosen=False)
        self._clock.read()
        self._waited = 0.0

    def push(
        self,
        step: int,
        kind: Phase,
        step_metrics: StepMetrics,
        waited: float,
        shape: tuple[int, ...],
    ) -> None:
        """Adds the metrics of a step.

        Args:
          step: number of steps done.
          kind: the phase, with the task that the step trained.
          step_metrics: still on the devices.
          waited: seconds that the phase has waited for data so far.
          shape: [batch, ..., sequence length] of the batch; its rows of padding do not count.

        Raises:
          UserError: a step was not finite and the configuration says to abort.
        """
        self._in_flight.append((step, kind, step_metrics))
        rows = self._run.training_rows(self._phase).batch_rows(step - 1 - self._phase.data_step)
        tokens = rows * math.prod(shape[1:])
        flops = tokens * self._run.flops_per_token(kind, shape[-1])
        self._clock.count(rows, tokens, flops, waited - self._waited)
        self._waited = waited
        self._listener.progress(step, self._run.steps)
        self.drain(_STEPS_IN_FLIGHT)

    def drain(self, leave: int = 0) -> None:
        """Fetches all metrics except those of the newest `leave` steps; raises as `push` does."""
        while len(self._in_flight) > leave:
            step, kind, on_device = self._in_flight.popleft()
            self._take(step, kind, jax.device_get(on_device))

    def _take(self, step: int, kind: Phase, values: StepMetrics) -> None:
        self._update_norm = float(values.update_norm) if values.applied else float("nan")
        if values.applied:
            self._streak = 0
            self.totals.add(values.sums, is_loss=kind == self._phase)
            self.totals.add_pair("gradient_norm", float(values.gradient_norm))
            self.totals.add_pair("skipped_share", 0.0)
            return
        self._streak += 1
        self.totals.add_pair("skipped_share", 1.0)
        config = self._run.config
        bad = [name for name, is_finite in values.finite.items() if not is_finite]
        message = f"{' and '.join(bad)} not finite at step {step}"
        if own := [name for name in bad if name in self._run.losses]:
            message += f" (does the denominator of losses[{own[0]!r}] depend on outputs?)"
        limit = config.nonfinite_limit if config.nonfinite == "skip" else 0
        path, num_empty = self._dump(step)
        padding = f"; {num_empty} of its rows are padding, example_ids 0" if num_empty else ""
        if self._streak > limit:
            raise UserError(
                f"{message}, {self._streak} in a row (config.nonfinite={config.nonfinite}): the"
                f" update was not applied. Its batch is in {path}; the checkpoints are intact."
                f" Lower config.optimizer.learning_rate, or inspect that batch{padding}."
            )
        self._listener.line(f"{message}: not applied; its batch is in {path}.")

    def _dump(self, step: int) -> tuple[str, int]:
        """Writes the batch of a step, and returns the file and the number of empty rows."""
        name = f"nonfinite-step-{step}-process-{jax.process_index()}.npz"
        path = os.path.join(self._run.workdir, name)
        batch = feed.host_batch(self._run, self._phase, step - 1)
        with whole_file(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **batch)  # pyright: ignore[reportArgumentType]
        return path, int((batch["example_ids"] == 0).all(-1).sum())

    def sync(self, step: int) -> None:
        """Fetches all metrics; returns when everything reported up to `step` is on disk."""
        self.drain()
        if self._file:
            self._file.sync()
        self._listener.saving(step)

    def log(self, step: int) -> None:
        """Reports the means since the last report, and the norm of the last update."""
        self.drain()
        values = self.totals.means()
        self.totals.clear()
        if not values["skipped_share"]:
            del values["skipped_share"]
        values["update_norm"] = self._update_norm
        values["learning_rate"] = float(np.asarray(self._schedule(step - 1)))
        speed = self._clock.read()
        if self._file:
            self._file.write(step, "train", values, speed)
        self._listener.metrics(step, "train", values, speed)

    def pause(self) -> None:
        """Stops the clock until the next report, once all steps are done."""
        self.drain()
        self._clock.stop()

    def report_evaluation(
        self, step: int, evaluation: Evaluation, *, is_last: bool, is_chosen: bool
    ) -> None:
        """Reports the metrics of an evaluation; see `Listener.evaluation`."""
        speed = self._clock.stop()
        if self._file:
            self._file.write(step, "validation", evaluation.values, speed)
        self._listener.metrics(step, "validation", evaluation.values, speed)
        self._listener.evaluation(self._run, step, evaluation, is_last=is_last, is_chosen=is_chosen)
        self._clock.read()  # the next report measures training alone

    def close(self) -> None:
        """Closes the files."""
        if self._file:
            self._file.close()


class Clock:
    """Measures the speed between two reports, the wait for data, and the whole run's time.

    Args:
      seconds, tokens: what the run took before it was resumed.
    """

    def __init__(self, seconds: float = 0.0, tokens: int = 0):
        self._seconds, self._all_tokens = seconds, tokens
        self._reset()

    def _reset(self) -> None:
        self._start, self._is_running = time.perf_counter(), True
        self._elapsed = 0.0
        self._tokens = self._rows = self._steps = 0
        self._waited = self._flops = 0.0

    def stop(self) -> dict[str, float]:
        """Stops until the next `read`; returns `seconds` and `tokens` of the run so far.

        Time between `stop` and `read` (evaluations) is not counted. Tokens include padding.
        """
        if self._is_running:
            elapsed = time.perf_counter() - self._start
            self._elapsed += elapsed
            self._seconds += elapsed
            self._is_running = False
        return {"seconds": self._seconds, "tokens": self._all_tokens}

    def count(self, rows: int, tokens: int, flops: float, waited: float) -> None:
        """Counts one step: rows, tokens with padding, model FLOPs, seconds waited for data."""
        self._steps += 1
        self._rows += rows
        self._tokens += tokens
        self._all_tokens += tokens
        self._flops += flops
        self._waited += waited

    def read(self) -> dict[str, float]:
        """Returns the speed since the last reading and the values of `stop`; starts again."""
        so_far = self.stop()
        seconds = max(self._elapsed, 1e-9)
        speed = {
            "steps_per_second": self._steps / seconds,
            "tokens_per_second": self._tokens / seconds,
            "examples_per_second": self._rows / seconds,
            "waiting_for_data": min(1.0, self._waited / seconds),
            **so_far,
        }
        if peak := peak_flops():
            speed["mfu"] = self._flops / seconds / peak
        self._reset()
        return speed
