"""The runs of a race: of this program, and of transformers' Trainer."""

import ast
import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bert_jax.config import store
from bert_jax.files.atomic import read_json, write_json
from bert_jax.files.errors import UserError
from bert_jax.tools.benchmark.turns import Rival
from bert_jax.training.metrics import read_metrics

# Updates from which the rate of a recipe is measured: the second half of them.
_CALIBRATION_STEPS = 40
_EVALUATIONS = "5%"
# Models of transformers' Trainer, instead of a configuration file.
RIVALS = {"transformers:bert": "bert", "transformers:modernbert": "modernbert"}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A configuration under a name.

    Attributes:
      name: of its rows and files.
      config: configuration file, with its argument; or one of RIVALS.
      overrides: (field, value) of the configuration, or of transformers' Trainer.
    """

    name: str
    config: str
    overrides: tuple[tuple[str, str], ...] = ()

    def flags(self) -> list[str]:
        fields = (f"--config.{name}={value}" for name, value in self.overrides)
        return [f"--config={self.config}", *fields]

    def arguments(self) -> dict[str, Any]:
        """Returns the fields of transformers' Trainer."""
        return {name: _literal(value) for name, value in self.overrides}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse_recipe(text: str) -> Recipe:
    """Returns the recipe of "NAME=CONFIG;FIELD=VALUE;...".

    Raises:
      UserError: it has another form.
    """
    head, *rest = (part.strip() for part in text.split(";"))
    name, equals, config = head.partition("=")
    pairs = [part.partition("=") for part in rest if part]
    if not (name.replace("-", "_").isidentifier() and equals and config) or not all(
        field and sign for field, sign, _ in pairs
    ):
        raise UserError(
            f"{text!r} is not NAME=CONFIG;FIELD=VALUE;..., such as fast=configs/fast.py:tiny."
        )
    return Recipe(name, config, tuple((field, value) for field, _, value in pairs))


def count_updates(recipe: Recipe, words: Sequence[str], seconds: float, output: str) -> int:
    """Prepares the data and returns the number of updates that take the time."""
    path, flags = os.path.join(output, f"{recipe.name}.json"), [*recipe.flags(), *words]
    if (known := _known_steps(path, recipe, seconds, flags, output)) is not None:
        return known
    _bert_jax("prepare", [*recipe.flags(), *words, _data_dir(recipe, output)])
    workdir = os.path.join(output, f"{recipe.name}-calibration")
    shutil.rmtree(workdir, ignore_errors=True)
    lengths = _lengths(_CALIBRATION_STEPS, log=_CALIBRATION_STEPS // 2, evaluate="0")
    shortened = [*flags, *lengths, "--config.eval.max_batches=1"]
    _bert_jax("train", [*shortened, f"--workdir={workdir}", _data_dir(recipe, output)])
    speed = [row["speed"] for row in read_metrics(workdir) if row["split"] == "train"][-1]
    steps = max(20, int(seconds * speed["steps_per_second"]))
    write_json(path, {"seconds": seconds, "flags": flags, "steps": steps})
    shutil.rmtree(workdir)
    return steps


def _known_steps(
    path: str, recipe: Recipe, seconds: float, flags: Sequence[str], output: str
) -> int | None:
    """Returns the updates of an earlier start of the race; None if there was none."""
    if not os.path.isfile(path):
        return None
    known = read_json(path)
    if known["seconds"] == seconds and known["flags"] == flags:
        return known["steps"]
    raise UserError(
        f"{output} has a race with other settings of {recipe.name}: choose another --output."
    )


def train(recipe: Recipe, words: Sequence[str], steps: int, seed: int, output: str) -> str:
    """Trains with a seed, unless that is done; returns the folder of the run."""
    workdir = os.path.join(output, f"{recipe.name}-seed{seed}")
    lengths = _lengths(steps, log=_EVALUATIONS, evaluate=_EVALUATIONS)
    flags = [*recipe.flags(), *words, *lengths, f"--config.seed={seed}"]
    _bert_jax("train", [*flags, f"--workdir={workdir}", _data_dir(recipe, output)])
    return workdir


def count_rival_updates(recipe: Recipe, seconds: float, reference: str, output: str) -> int:
    """Returns the number of updates of transformers' Trainer that take the time.

    Raises:
      UserError: the rows of the reference cannot be taken.
    """
    config = store.load(reference)
    if (
        len(config.phase_entries) > 1
        or config.data.max_examples_per_row > 1
        or not config["data.validation_share"]
    ):
        raise UserError(
            f"{recipe.config} takes the rows of the first recipe, which must have one phase,"
            " config.data.max_examples_per_row=1 and held-out text."
        )
    path, flags = os.path.join(output, f"{recipe.name}.json"), recipe.flags()
    if (known := _known_steps(path, recipe, seconds, flags, output)) is not None:
        return known
    workdir, half = os.path.join(output, f"{recipe.name}-calibration"), _CALIBRATION_STEPS // 2
    _run_rival(recipe, _CALIBRATION_STEPS, half, 0, 1, reference, workdir)
    middle, end = (row["speed"]["seconds"] for row in read_metrics(workdir))
    steps = max(20, int(seconds * half / (end - middle)))
    write_json(path, {"seconds": seconds, "flags": flags, "steps": steps})
    shutil.rmtree(workdir)
    return steps


def train_rival(recipe: Recipe, steps: int, seed: int, reference: str, output: str) -> str:
    """Trains transformers' model, unless that is done; returns the folder of the run."""
    workdir = os.path.join(output, f"{recipe.name}-seed{seed}")
    done = read_metrics(workdir) if os.path.isdir(workdir) else []
    if not done or done[-1]["step"] < steps:
        _run_rival(recipe, steps, max(1, steps // 20), seed, None, reference, workdir)
    return workdir


def _run_rival(
    recipe: Recipe,
    steps: int,
    every: int,
    seed: int,
    eval_batches: int | None,
    reference: str,
    workdir: str,
) -> None:
    shutil.rmtree(workdir, ignore_errors=True)
    os.makedirs(workdir)
    settings = {
        "model": RIVALS[recipe.config],
        "steps": steps,
        "every": every,
        "seed": seed,
        "eval_batches": eval_batches,
        "arguments": recipe.arguments(),
    }
    module = "bert_jax.tools.benchmark.rivals.recipe_torch"
    rival = Rival(module, "build", reference=reference, workdir=workdir, settings=settings)
    try:
        rival.measure()
    finally:
        rival.close()


def _lengths(steps: int, log: Any, evaluate: str) -> list[str]:
    values = {"steps": steps, "epochs": 0.0, "examples": 0, "tokens": 0}
    values |= {"log.every": log, "eval.every": evaluate, "checkpoint.every": 0}
    return [f"--config.{name}={value}" for name, value in values.items()]


def _data_dir(recipe: Recipe, output: str) -> str:
    return f"--config.data.dir={os.path.join(output, f'{recipe.name}-data')}"


def _bert_jax(command: str, flags: Sequence[str]) -> None:
    """Runs a command of this program; what it compiles is not kept, so that all runs compile.

    Raises:
      UserError: it failed.
    """
    if command == "train":
        flags = [*flags, "--compilation_cache=off"]
    words = [sys.executable, "-m", "bert_jax", command, *flags]
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode:
        last = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-1:]
        raise UserError(f"python -m bert_jax {command} failed: {' '.join(last)}")
