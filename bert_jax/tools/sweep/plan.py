"""What a sweep file returns: runs, what each of them starts from, and tables of their results.

A sweep file has a function `get_sweep` with keyword arguments, its settings, which returns a
`Sweep`. `--set NAME=VALUE` on the command line sets an argument; docs/sweeps.md has an example.

In the values of overrides, `{run:NAME}` stands for the workdir of a run, `{data:NAME}` for the
folder of its prepared data, and `{workdir}` for the folder of the sweep. A run that names another
one waits for it.
"""

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_jax.config import experiments
from bert_jax.files.errors import UserError

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
REFERENCE = re.compile(r"\{(run|data):([^}]*)\}")


@dataclass(frozen=True)
class Run:
    """A training run, or one for each of several seeds.

    Attributes:
      name: name of its folder; letters, digits and `_.+-`.
      config: configuration file, with its argument: `configs/glue.py:mrpc`.
      overrides: dotted field -> value, as --config.FIELD=VALUE on the command line.
      after: name of the run whose parameters it starts from; empty: none, or `init_from` is in the
        overrides. If that run has several seeds, each seed starts from the run of its own seed.
      at_step: the checkpoint of `after` to start from; 0: the one that `after` uses for evaluation.
      seeds: number of runs, with `seed`, `seed` + 1, ...; 0: the number given on the command line.
      system: row of the tables.
      task: column of the tables.
    """

    name: str
    config: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    after: str = ""
    at_step: int = 0
    seeds: int = 1
    system: str = ""
    task: str = ""

    def __post_init__(self):
        if not _NAME.fullmatch(self.name):
            raise UserError(
                f"{self.name!r} is not a valid name of a run: use letters, digits and any of"
                " _.+-, and begin with a letter or a digit."
            )
        if self.seeds < 0:
            raise UserError(f"Run {self.name}: seeds={self.seeds} must be at least 0.")
        if self.at_step < 0 or (self.at_step and not self.after):
            raise UserError(
                f"Run {self.name}: at_step={self.at_step} is a checkpoint of the run `after`: it"
                " must be at least 1 and needs `after`."
            )
        if self.after and "init_from" in self.overrides:
            raise UserError(
                f"Run {self.name} has both after={self.after!r} and an override of init_from:"
                " remove one of them."
            )

    def needs(self) -> set[str]:
        """Returns the names of the referenced runs."""
        text = " ".join(map(str, self.overrides.values()))
        return {match[2] for match in REFERENCE.finditer(text)} | ({self.after} - {""})


@dataclass(frozen=True)
class Column:
    """One score of one task.

    Attributes:
      task: task of the runs.
      metric: name in their results.json; for a corpus, in its last evaluation.
      title: heading; empty: the task.
      scale: factor of the score in the table; 100 for shares, as the paper prints them.
      lower_is_better: whether the lowest value is best, as for losses.
    """

    task: str
    metric: str
    title: str = ""
    scale: float = 100.0
    lower_is_better: bool = False

    @property
    def heading(self) -> str:
        return self.title or self.task


@dataclass(frozen=True)
class Table:
    """Systems by tasks.

    Attributes:
      title: heading.
      rows: system -> title, in order.
      columns: scores, in order.
      paper: system -> heading of a column -> the published value, in the units of the table.
      reference: the system that the others are compared with; empty: the first row. A mapping gives
        each row its own, and rows that it lacks are compared with nothing.
      mark_best: mark the best row of each column.
      note: printed below the table.
    """

    title: str
    rows: Mapping[str, str]
    columns: Sequence[Column]
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reference: str | Mapping[str, str] = ""
    mark_best: bool = False
    note: str = ""

    def published(self, system: str, column: Column) -> float | None:
        return self.paper.get(system, {}).get(column.heading)

    def reference_of(self, system: str) -> str:
        """Returns the system that a row is compared with; empty for none."""
        if isinstance(self.reference, str):
            reference = self.reference or next(iter(self.rows))
        else:
            reference = self.reference.get(system, "")
        return reference if reference != system else ""


@dataclass(frozen=True)
class Sweep:
    """Runs in the order in which they start when nothing else decides, and tables of the results.

    Attributes:
      title: heading of the report.
      runs: each after those that it needs.
      tables: tables of the report.
      note: text for readers of the tables, printed below the heading.
    """

    title: str
    runs: Sequence[Run]
    tables: Sequence[Table] = ()
    note: str = ""

    def __post_init__(self):
        if not self.runs:
            raise UserError(f"The sweep {self.title!r} has no runs.")
        names, seen = {run.name for run in self.runs}, set()
        for run in self.runs:
            if run.name in seen:
                raise UserError(f"Two runs of the sweep have the name {run.name!r}.")
            for needed in sorted(run.needs() - seen):
                where = "it stands after it" if needed in names else "there is no such run"
                raise UserError(f"Run {run.name} needs the run {needed!r}, but {where}.")
            seen.add(run.name)
        self._check_tables()

    def _check_tables(self) -> None:
        systems, tasks = ({getattr(r, k) for r in self.runs} for k in ("system", "task"))
        for table in self.tables:
            if not table.rows or not table.columns:
                raise UserError(f"The table {table.title!r} has no rows or no columns.")
            if isinstance(table.reference, str):
                unknown = {table.reference} - {""} - {*table.rows}
            else:
                unknown = {*table.reference.values()} - systems
            unknown |= {*table.rows} - systems
            unknown |= {column.task for column in table.columns} - tasks
            if unknown:
                raise UserError(
                    f"The table {table.title!r} names {', '.join(sorted(unknown))}, which no run of"
                    " the sweep has as its system or task."
                )


def load_sweep(path: str, words: Iterable[str] = ()) -> Sweep:
    """Returns the sweep of a file.

    Args:
      path: path of the file, possibly with the value of its first setting, as in
        configs/sweeps/table5.py:mini. Files of the package are found as configurations are.
      words: further settings, NAME=VALUE; a value has the type of the setting's default.

    Raises:
      UserError: there is no such file, it is not a sweep file, or a setting does not exist or has
        a value that it cannot have.
    """
    file, *argument = path.split(":", 1)
    make = getattr(experiments.load_module(file, "--sweep"), "get_sweep", None)
    if not callable(make):
        raise UserError(f"--sweep={file} is not a sweep file: it has no function get_sweep.")
    parameters, texts = inspect.signature(make).parameters, _parsed(words)
    if argument:
        if not parameters:
            raise UserError(
                f"--sweep={path}: the file has no settings, so {argument[0]!r} has none."
            )
        texts.setdefault(next(iter(parameters)), argument[0])
    values = {name: _value(name, text, parameters) for name, text in texts.items()}
    try:
        sweep = make(**values)
    except ValueError as error:
        raise UserError(str(error)) from error
    if not isinstance(sweep, Sweep):
        raise UserError(f"{file}: get_sweep returns {type(sweep).__name__}, not a Sweep.")
    return sweep


def _parsed(words: Iterable[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UserError(f"--set {word!r} is not NAME=VALUE, such as --set scale=mini.")
        if name in settings:
            raise UserError(f"--set {name} is given twice: {settings[name]!r} and {value!r}.")
        settings[name] = value
    return settings


def _value(name: str, text: str, parameters: Mapping[str, inspect.Parameter]) -> Any:
    if name not in parameters:
        close = difflib.get_close_matches(name, parameters, 1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UserError(
            f"Unknown setting --set {name}.{hint} Available: {', '.join(parameters) or 'none'}."
        )
    kind = type(parameters[name].default)
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        what = {bool: "true or false", int: "an integer", float: "a number"}[kind]
        raise UserError(f"--set {name}={text} is not {what}.") from None
