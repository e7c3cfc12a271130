"""The race: which recipe learns most in a given time.

    python -m bert_jax benchmark recipe bert=configs/tiny.py fast=configs/fast.py:tiny \\
        --seconds=60 --seeds=3 --output=DIR [--config.data.source=text:PATH ...]

A recipe is NAME=CONFIG or "NAME=CONFIG;FIELD=VALUE;...". Each is trained for as many updates as it
does in that time, so that its schedule ends with it; recipes alternate, one seed at a time.
Held-out masked tokens are those of 15 % of the tokens, whatever a recipe trains on. Seconds are
those of the training loop, compilation included and evaluations left out. The output folder has the
runs, race.json with all curves, and race.svg. Complete runs are kept if the race is started again.

NAME=transformers:bert or NAME=transformers:modernbert is transformers' Trainer with that model, on
the rows of the first recipe and with its sizes. Its fields are arguments of TrainingArguments;
`mlm_probability` (0.15 by default), which its data collator takes; and `tail`, the fraction of the
run in which a constant rate falls to 0, in place of the Trainer's linear schedule.
"""

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence

from bert_jax.files.atomic import write_json, write_text
from bert_jax.files.errors import UserError
from bert_jax.tools.benchmark.curves import Curve, plot, seconds_to
from bert_jax.tools.benchmark.machine import describe_machine, has_trainer
from bert_jax.tools.benchmark.recipe_runs import (
    RIVALS,
    Recipe,
    count_rival_updates,
    count_updates,
    train,
    train_rival,
)
from bert_jax.training.metrics import read_metrics

LOSS, ACCURACY = "masked_lm_loss", "masked_lm_accuracy"
_COLUMNS = "{:20} {:>9} {:>9} {:>18} {:>10} {:>22} {:>8}"


def run(
    recipes: Sequence[Recipe], words: Sequence[str], seconds: float, seeds: int, output: str
) -> None:
    """Runs the race; prints a line for each run, and the table.

    Args:
      recipes: the first is the one that others are compared with.
      words: flags of `python -m bert_jax train` for all of them.
      seconds: of training, for each run.
      seeds: runs of each recipe.
      output: folder of the results.

    Raises:
      UserError: recipes that cannot be compared, or a run failed or does not predict masked tokens.
    """
    names = [recipe.name for recipe in recipes]
    _check(recipes)
    print(describe_machine())
    os.makedirs(output, exist_ok=True)
    ours = [recipe for recipe in recipes if recipe.config not in RIVALS]
    rivals = [recipe for recipe in recipes if recipe.config in RIVALS]
    steps = {r.name: count_updates(r, words, seconds, output) for r in ours}
    reference = ""
    if rivals:  # they take rows, sizes and held-out masks from the first recipe's run
        reference = train(recipes[0], words, steps[names[0]], 0, output)
        steps |= {r.name: count_rival_updates(r, seconds, reference, output) for r in rivals}
    curves: dict[str, list[Curve]] = {name: [] for name in names}
    for seed in range(seeds):
        for recipe in recipes[:: 1 if seed % 2 else -1]:
            if recipe in rivals:
                workdir = train_rival(recipe, steps[recipe.name], seed, reference, output)
            else:
                workdir = train(recipe, words, steps[recipe.name], seed, output)
            curve = read_curve(workdir)
            curves[recipe.name].append(curve)
            end = curve.points[-1]
            print(
                f"{recipe.name}, seed {seed}: {end.step:,} updates, {end.seconds:.1f} s,"
                f" loss {end.loss:.3f}, accuracy {end.accuracy:.1%}",
                flush=True,
            )
    write_json(
        os.path.join(output, "race.json"),
        {name: [curve.to_json() for curve in found] for name, found in curves.items()},
    )
    write_text(os.path.join(output, "race.svg"), plot(curves))
    print("\n".join(table(curves)))


def _check(recipes: Sequence[Recipe]) -> None:
    names = [recipe.name for recipe in recipes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"Two recipes are called {min(twice)}: give them different names.")
    others = [recipe for recipe in recipes if recipe.config.startswith("transformers:")]
    for recipe in others:
        if recipe.config not in RIVALS:
            raise UserError(f"Unknown rival {recipe.config!r}. Available: {', '.join(RIVALS)}.")
    if others and others[0] is recipes[0]:
        raise UserError("The first recipe must be one of ours: rivals take its rows and sizes.")
    if others and not has_trainer():
        raise UserError(
            f"{others[0].config} needs torch, transformers and accelerate:"
            " pip install -c constraints.txt -e '.[parity]'."
        )


def table(curves: Mapping[str, Sequence[Curve]]) -> Iterator[str]:
    """Yields a line for each recipe; the target is the mean final loss of the first one."""
    ends = {name: [curve.points[-1] for curve in found] for name, found in curves.items()}
    target = statistics.mean(end.loss for end in next(iter(ends.values())))
    yield _COLUMNS.format(
        *(
            "",
            "updates",
            "seconds",
            "held-out loss",
            "accuracy",
            f"seconds to {target:.3f}",
            "ratio",
        )
    )
    first = None
    for name, found in curves.items():
        losses = [end.loss for end in ends[name]]
        spread = f" ± {statistics.stdev(losses):.3f}" if len(losses) > 1 else ""
        times = [seconds_to(curve, target) for curve in found]
        reached = [time for time in times if time is not None]
        mean = statistics.mean(reached) if len(reached) == len(times) else None
        first = mean if first is None else first
        missed = f"{len(reached)} of {len(times)} reach it"
        yield _COLUMNS.format(
            name,
            f"{ends[name][0].step:,}",
            f"{statistics.mean(end.seconds for end in ends[name]):.1f}",
            f"{statistics.mean(losses):.3f}{spread}",
            f"{statistics.mean(end.accuracy for end in ends[name]):.1%}",
            missed if mean is None else f"{mean:.1f}",
            f"{mean / first:.2f}" if mean is not None and first else "",
        ).rstrip()


def read_curve(workdir: str) -> Curve:
    """Returns the evaluations of a run.

    Raises:
      UserError: it has none of masked tokens.
    """
    rows = [row for row in read_metrics(workdir) if row["split"] == "validation"]
    if not rows or LOSS not in rows[-1]:
        raise UserError(
            f"{workdir} has no evaluation of masked tokens: a recipe trains on them, with held-out"
            " text (config.data.validation_share)."
        )
    return Curve.from_rows(rows, LOSS, ACCURACY)
