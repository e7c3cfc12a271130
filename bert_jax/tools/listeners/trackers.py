"""Weights & Biases and MLflow, which --trackers names: configuration, metrics, scores.

A workdir is one run of a tracker. Its id is in trackers.json, so that a run that was stopped
continues there; what it reports again after its last checkpoint has the same values at the same
steps. Servers, projects and accounts are chosen as for these programs themselves, by WANDB_* and
MLFLOW_* in the environment.

Each metric is `train/NAME` or `validation/NAME`; `final/NAME` are the scores of the evaluated
checkpoint that config.checkpoint.use selects among those so far.
"""

import importlib.util
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.files.atomic import read_json, write_json
from bert_jax.files.errors import UserError
from bert_jax.training.listener import Evaluation, Listener
from bert_jax.training.run import Run
from bert_jax.training.state import TrainState

# Ids of the run by tracker, in the workdir.
IDS = "trackers.json"
PROJECT = "bert_jax"
# Parameters that MLflow takes in a request, and characters of a value.
_MAX_PARAMS, _MAX_VALUE = 100, 6000


class Tracker(Listener):
    """A run of a tracking program.

    A subclass opens it (`open`), and sends values to it (`log`, `end`).

    Attributes:
      NAME: name for --trackers, and that of the extra and of the package.
    """

    NAME = ""

    def __init__(self, report: Callable[[str], None]):
        """Checks that the package is installed; `report` takes lines for the user.

        Raises:
          UserError: it is not.
        """
        if importlib.util.find_spec(self.NAME) is None:
            raise UserError(
                f"--trackers={self.NAME} needs a package: pip install 'bert_jax[{self.NAME}]'."
            )
        self._report, self._is_open, self._is_complete = report, False, False

    def started(self, run: Run, state: TrainState) -> None:
        """Opens the run of this workdir, a new one if it has none."""
        path = os.path.join(run.workdir, IDS)
        ids = read_json(path) if os.path.isfile(path) else {}
        fields = run.config.fields().items()  # tuples become text
        values = {n: x if isinstance(x, str | int | float) else repr(x) for n, x in fields}
        name = "/".join(pathlib.Path(os.path.abspath(run.workdir)).parts[-2:])
        found = self.open(ids.get(self.NAME), name, values, run.workdir)
        self._is_open, self._is_complete = True, False
        write_json(path, ids | {self.NAME: found})

    def progress(self, step: int, steps: int) -> None:
        self._is_complete = step == steps

    def metrics(
        self, step: int, split: str, values: Mapping[str, float], speed: Mapping[str, float]
    ) -> None:
        if self._is_open:
            self.log(step, {f"{split}/{name}": v for name, v in {**values, **speed}.items()})

    def evaluation(
        self, run: Run, step: int, evaluation: Evaluation, *, is_last: bool, is_chosen: bool
    ) -> None:
        if self._is_open:
            self._is_complete |= is_last
            if is_chosen:
                self.log(step, {f"final/{name}": v for name, v in evaluation.values.items()})

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.end(self._is_complete)

    def open(self, id: str | None, name: str, values: Mapping[str, Any], workdir: str) -> str:
        """Opens a run and returns its id.

        Args:
          id: id of the run; None: a new one.
          name: its name.
          values: the configuration by field.
          workdir: folder of the run.
        """
        raise NotImplementedError

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Sends the values of a step."""
        raise NotImplementedError

    def end(self, is_complete: bool) -> None:
        """Ends the run, or this part of it if it is not complete."""
        raise NotImplementedError


class WandB(Tracker):
    """Weights & Biases; what is written without a connection is in workdir/wandb."""

    NAME = "wandb"

    def open(self, id: str | None, name: str, values: Mapping[str, Any], workdir: str) -> str:
        import wandb
        from wandb.errors import Error

        try:
            self._run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=name,
                id=id,
                resume="allow",
                config=dict(values),
                dir=workdir,
                allow_val_change=True,  # of fields that may change when a run is resumed
                settings=wandb.Settings(console="off"),
            )
        except Error as error:
            raise UserError(
                f"W&B cannot be reached ({_line(error)}): call wandb login, or set"
                " WANDB_MODE=offline."
            ) from None
        # Steps may come again after a resumption: they are values, not W&B's own counter.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        return self._run.id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({"step": step, **values})

    def end(self, is_complete: bool) -> None:
        self._run.finish(exit_code=0 if is_complete else 1)


class MLflow(Tracker):
    """MLflow, at MLFLOW_TRACKING_URI."""

    NAME = "mlflow"

    def open(self, id: str | None, name: str, values: Mapping[str, Any], workdir: str) -> str:
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            self._client = MlflowClient()
            if id is None:
                title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
                found = self._client.get_experiment_by_name(title)
                number = found.experiment_id if found else self._client.create_experiment(title)
                self._id = self._client.create_run(number, run_name=name).info.run_id
                params = [Param(field, str(v)[:_MAX_VALUE]) for field, v in values.items()]
                for start in range(0, len(params), _MAX_PARAMS):
                    part = params[start : start + _MAX_PARAMS]
                    self._client.log_batch(self._id, params=part)
            else:  # MLflow keeps the parameters that a run began with
                self._id = id
                self._client.update_run(id, "RUNNING")
        except MlflowException as error:
            raise UserError(
                f"MLflow cannot be used ({_line(error)}): set MLFLOW_TRACKING_URI to its server or"
                " database."
            ) from None
        return self._id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        metrics = [Metric(name, float(value), now, step) for name, value in values.items()]
        self._try(f"the metrics of step {step}", "log_batch", metrics)

    def end(self, is_complete: bool) -> None:
        self._try("the end of the run", "set_terminated", "FINISHED" if is_complete else "KILLED")

    def _try(self, what: str, method: str, *arguments: Any) -> None:
        """Calls the server; if that fails, the run continues without it."""
        from mlflow.exceptions import MlflowException

        try:
            getattr(self._client, method)(self._id, *arguments)
        except MlflowException as error:
            self._report(f"MLflow has not got {what}: {_line(error)}")


TRACKERS: dict[str, type[Tracker]] = {tracker.NAME: tracker for tracker in (WandB, MLflow)}


def make_trackers(names: str, report: Callable[[str], None]) -> list[Tracker]:
    """Returns the trackers of --trackers, names separated by commas.

    Raises:
      UserError: a name is unknown, or the package of one is not installed.
    """
    found = list(filter(None, map(str.strip, names.split(","))))
    if unknown := [name for name in found if name not in TRACKERS]:
        raise UserError(f"Unknown tracker {unknown[0]!r}. Available: {', '.join(TRACKERS)}.")
    return [TRACKERS[name](report) for name in dict.fromkeys(found)]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
