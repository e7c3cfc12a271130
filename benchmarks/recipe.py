"""The race: which recipe learns most in a given time.

    python -m benchmarks.recipe bert=configs/tiny.py fast=configs/fast.py:tiny \\
        --seconds=60 --seeds=3 --output=DIR [--config.data.source=text:PATH ...]

A recipe is NAME=CONFIG or "NAME=CONFIG;FIELD=VALUE;...". Each is trained for as many steps as it
does in that time, so that its schedule ends with it; recipes alternate, one seed at a time.
Held-out masked tokens are those of 15 % of the tokens, whatever a recipe trains on. --part=tune
evaluates on the first half of the held-out rows, --part=report on the second: settings are chosen
on one and reported on the other. Seconds are those of the training loop, compilation included and
evaluations left out. The output folder has the runs, race.json with all curves, and race.svg.
Complete runs are kept if the race is started again. docs/race.md has the rules and the records;
`entry.py` checks an entry.

NAME=transformers:bert or NAME=transformers:modernbert is transformers' Trainer with that model, on
the rows of the first recipe and with its sizes. Its fields are arguments of TrainingArguments;
`mlm_probability` (0.15 by default), which its data collator takes; and `tail`, the fraction of the
run in which a constant rate falls to 0, in place of the Trainer's linear schedule. NAME=keras:bert
is keras-hub's BERT, on Keras with jax. Its fields are arguments of keras's AdamW; `warmup` and
`tail`, fractions of the run; `mlm_probability`, `dropout`, and `dtype`, a policy of Keras.
"""

import argparse
import ast
import dataclasses
import itertools
import os
import shutil
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks import command
from benchmarks.curves import Curve, lines, plot, read_curve
from benchmarks.side_by_side import (
    describe_machine,
    installed,
    run_command,
    take_turns,
)
from bert_jax.config import store
from bert_jax.files.atomic import read_json, write_json, write_text
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import OVERRIDES, Flag

# Other programs, instead of a configuration file: module in rivals/, model.
RIVALS = {
    "transformers:bert": ("recipe_torch", "bert"),
    "transformers:modernbert": ("recipe_torch", "modernbert"),
    "keras:bert": ("recipe_keras", "bert"),
}
# Module -> packages that it needs, how to install them.
_NEEDED = {
    "recipe_torch": (
        ("torch", "transformers", "accelerate"),
        "pip install -c constraints.txt -e '.[parity]'",
    ),
    "recipe_keras": (("keras", "keras_hub"), "pip install keras-hub"),
}
# The part of the held-out rows that is evaluated.
PARTS = {"all": (0.0, 1.0), "tune": (0.0, 0.5), "report": (0.5, 1.0)}
# Steps over which the speed of a recipe is measured, and the steps from one evaluation to the next.
# With fewer, the first step after an evaluation, when no work is queued, would count for too much.
_CALIBRATION_STEPS, _CALIBRATION_PART = 120, 10
# Fraction of the time that is planned for: the speed of a host varies by a few percent.
_PLANNED = 0.97


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A configuration under a name.

    Attributes:
      name: name of its rows and files.
      config: configuration file, with its argument; or one of RIVALS.
      overrides: (field, value) of the configuration, or of the rival.
    """

    name: str
    config: str
    overrides: tuple[tuple[str, str], ...] = ()

    def flags(self) -> list[str]:
        fields = (f"--config.{name}={value}" for name, value in self.overrides)
        return [f"--config={self.config}", *fields]

    def arguments(self) -> dict[str, Any]:
        """Returns the fields of a rival."""
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


FLAGS = (
    Flag("RECIPE", [], "NAME=CONFIG;FIELD=VALUE;..."),
    Flag("seconds", 60.0, "Of training, for each run."),
    Flag("seeds", 3, "Runs of each recipe.", minimum=1),
    Flag(
        "part",
        "all",
        "Held-out rows: tune (first half), report (second half) or all.",
        choices=("all", "tune", "report"),
    ),
    Flag("output", "race", "Folder of the runs and of race.json and race.svg."),
    OVERRIDES,
)


def run(flags: argparse.Namespace) -> None:
    """Runs the race; prints a line for each run, and the table.

    Raises:
      UserError: the recipes cannot be compared, or a run failed or does not predict masked tokens.
    """
    if flags.seconds <= 0:
        raise UserError(f"--seconds={flags.seconds} must be above 0.")
    recipes, output = list(map(parse_recipe, flags.recipe)), flags.output
    _check(recipes)
    print(describe_machine())
    os.makedirs(output, exist_ok=True)
    words = [f"--config.eval.part={PARTS[flags.part]}", *command.config_words(flags)]
    race = _Race(words, flags.seconds, output)
    steps: dict[str, int] = {}
    # Rivals take rows, sizes and held-out masks from the first recipe's run: ours come first.
    for recipe in sorted(recipes, key=lambda recipe: recipe.config in RIVALS):
        steps[recipe.name] = race.count_updates(recipe)
        if not race.reference:
            race.reference = race.train(recipe, steps[recipe.name], 0)
    curves: dict[str, list[Curve]] = {recipe.name: [] for recipe in recipes}
    for seed in range(flags.seeds):
        for recipe in recipes[:: 1 if seed % 2 else -1]:
            curve = read_curve(race.train(recipe, steps[recipe.name], seed))
            curves[recipe.name].append(curve)
            end = curve[-1]
            print(
                f"{recipe.name}, seed {seed}: {end['step']:,} steps, {end['seconds']:.1f} s,"
                f" {end['bits_per_character']:.3f} bits/character, loss {end['loss']:.3f},"
                f" accuracy {end['accuracy']:.1%}",
                flush=True,
            )
    write_json(os.path.join(output, "race.json"), curves)
    write_text(os.path.join(output, "race.svg"), plot(curves))
    print("\n".join(lines(curves)))


def _check(recipes: Sequence[Recipe]) -> None:
    if not recipes:
        raise UserError("The recipes are missing: NAME=CONFIG, such as fast=configs/fast.py:tiny.")
    names = [recipe.name for recipe in recipes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"Two recipes are called {min(twice)}: give them different names.")
    programs = tuple({name.partition(":")[0] + ":" for name in RIVALS})
    others = [recipe for recipe in recipes if recipe.config.startswith(programs)]
    for recipe in others:
        if recipe.config not in RIVALS:
            raise UserError(f"Unknown rival {recipe.config!r}. Available: {', '.join(RIVALS)}.")
    if others and others[0] is recipes[0]:
        raise UserError("The first recipe must be one of ours: rivals take its rows and sizes.")
    for recipe in others:
        needed, command_line = _NEEDED[RIVALS[recipe.config][0]]
        if len(installed(*needed)) < len(needed):
            raise UserError(f"{recipe.config} needs {', '.join(needed)}: {command_line}.")


def run_folder(output: str, name: str, seed: int) -> str:
    """Returns the workdir for recipe `name`."""
    return os.path.join(output, f"{name}-seed{seed}")


def data_folder(output: str, name: str) -> str:
    """Returns the folder of the prepared data of the recipe `name`."""
    return os.path.join(output, f"{name}-data")


@dataclasses.dataclass
class _Race:
    """The runs of a race.

    Attributes:
      words: flags of `bert_jax train` for all of ours.
      seconds: training time of each run.
      output: folder of the results.
      reference: workdir that rivals take their rows from.
    """

    words: Sequence[str]
    seconds: float
    output: str
    reference: str = ""

    def count_updates(self, recipe: Recipe) -> int:
        """Prepares the data and returns the number of steps that fit into the time."""
        path = os.path.join(self.output, f"{recipe.name}.json")
        settings = {"seconds": self.seconds, "flags": [*recipe.flags(), *self.words]}
        if os.path.isfile(path):  # the race was started before
            known = read_json(path)
            if known != settings | {"steps": known["steps"]}:
                raise UserError(
                    f"{self.output} has a race with other settings of {recipe.name}: choose"
                    " another --output."
                )
            return known["steps"]
        part = _CALIBRATION_PART
        workdir = os.path.join(self.output, f"{recipe.name}-calibration")
        shutil.rmtree(workdir, ignore_errors=True)
        if recipe.config in RIVALS:
            self._check_rows(recipe)
            self._train_rival(recipe, workdir, _CALIBRATION_STEPS, part, 0, eval_batches=1)
        else:
            run_command("prepare", [*settings["flags"], self._data_dir(recipe)])
            self._train_ours(recipe, workdir, _CALIBRATION_STEPS, part, ["eval.max_batches=1"])
        ends = [0.0, *(point["seconds"] for point in read_curve(workdir))]
        parts = [end - begin for begin, end in itertools.pairwise(ends)]
        # Some parts include a compilation.
        usual = [seconds for seconds in parts if seconds < 2 * statistics.median(parts)]
        mean = statistics.mean(usual)
        compilation = sum(parts) - mean * len(parts)
        steps = max(20, int((self.seconds * _PLANNED - compilation) * part / mean))
        write_json(path, settings | {"steps": steps})
        shutil.rmtree(workdir)
        return steps

    def train(self, recipe: Recipe, steps: int, seed: int) -> str:
        """Trains with a seed, unless that is done; returns the folder of the run."""
        workdir = run_folder(self.output, recipe.name, seed)
        every = max(1, steps // 20)
        if recipe.config not in RIVALS:
            self._train_ours(recipe, workdir, steps, every, [f"seed={seed}"])
        elif not os.path.isdir(workdir) or read_curve(workdir)[-1]["step"] < steps:
            shutil.rmtree(workdir, ignore_errors=True)
            self._train_rival(recipe, workdir, steps, every, seed)
        return workdir

    def _train_ours(
        self, recipe: Recipe, workdir: str, steps: int, every: int, more: Sequence[str]
    ) -> None:
        lengths = [f"steps={steps}", "epochs=0.0", "examples=0", "tokens=0", "checkpoint.every=0"]
        values = [*lengths, f"log.every={every}", f"eval.every={every}", *more]
        flags = [*recipe.flags(), *self.words, *(f"--config.{value}" for value in values)]
        run_command("train", [*flags, f"--workdir={workdir}", self._data_dir(recipe)])

    def _train_rival(
        self,
        recipe: Recipe,
        workdir: str,
        steps: int,
        every: int,
        seed: int,
        eval_batches: int | None = None,
    ) -> None:
        os.makedirs(workdir)
        module, model = RIVALS[recipe.config]
        settings = {
            "reference": self.reference,
            "workdir": workdir,
            "model": model,
            "steps": steps,
            "every": every,
            "seed": seed,
            "eval_batches": eval_batches,
            "arguments": recipe.arguments(),
        }
        take_turns({recipe.name: (f"{__package__}.rivals.{module}", settings)}, 1)

    def _check_rows(self, recipe: Recipe) -> None:
        config = store.load(self.reference)
        if (
            len(config.phase_entries) > 1
            or config.data.max_examples_per_row > 1
            or not config["data.validation_share"]
        ):
            raise UserError(
                f"{recipe.config} takes the rows of the first recipe, which must have one phase,"
                " config.data.max_examples_per_row=1 and held-out text."
            )

    def _data_dir(self, recipe: Recipe) -> str:
        return f"--config.data.dir={data_folder(self.output, recipe.name)}"


if __name__ == "__main__":
    command.start("recipe")
