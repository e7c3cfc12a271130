"""Checks an entry of the race (docs/race.md): the output folder of `benchmarks.recipe`.

    python -m benchmarks.entry DIR --seconds=290

For each recipe of the folder, except those of transformers' Trainer: the runs of three seeds are
complete and within the budget, they follow the rules, their text is that of this installation, and
the last checkpoint scores what the run says.
"""

import argparse
import os
from collections.abc import Iterator

from benchmarks import command
from benchmarks.curves import Curve, mean_of, read_curve
from benchmarks.recipe import PARTS, data_folder, run_folder
from bert_jax.config import store
from bert_jax.config.data import DataConfig
from bert_jax.config.run import RunConfig
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.files.atomic import read_json
from bert_jax.files.errors import UserError
from bert_jax.text.installed_docs import InstalledDocs
from bert_jax.tools.cli.command_line import Flag
from bert_jax.training.evaluate import evaluate

SEEDS = 3
# What all entries have in common; everything else is the recipe's.
RULES = {
    "task": "pretraining",
    "init_from": "",
    "data.source": "installed_docs",
    "data.validation_share": 0.05,
    "data.held_out": "",
    "data.eval_masked_lm_prob": 0.15,
    "eval.part": PARTS["report"],
    "eval.max_batches": 0,
    **{
        f"data.{name}": getattr(DataConfig(), name)
        for name in ("masking", "mask_share", "keep_share", "random_share")
    },
}
# Maximum relative difference of a score that is computed again on another processor.
_TOLERANCE = 1e-3


FLAGS = (
    Flag("FOLDER", "", "output folder of benchmarks.recipe"),
    Flag("seconds", 290.0, "Budget of a run."),
)


def run(flags: argparse.Namespace) -> None:
    """Prints a line for each recipe: its score, or what is wrong.

    Raises:
      UserError: the folder has no race, or an entry is not valid.
    """
    folder = flags.folder
    path = os.path.join(folder, "race.json")
    if not os.path.isfile(path):
        raise UserError(f"{folder} has no race.json: is it the --output of a finished race?")
    invalid = []
    for name in read_json(path):
        if not store.is_run(run_folder(folder, name, 0)):
            print(f"{name}: not checked, since it is not a run of this program")
            continue
        if problems := list(find_problems(folder, name, flags.seconds)):
            invalid.append(name)
            print("\n".join(f"{name}: {problem}" for problem in problems))
            continue
        ends = [read_curve(run_folder(folder, name, seed))[-1] for seed in range(SEEDS)]
        print(f"{name}: valid, {mean_of(ends, 'bits_per_character')} bits per character")
    if invalid:
        raise UserError(f"Not valid by the rules of docs/race.md: {', '.join(invalid)}.")


def find_problems(folder: str, name: str, seconds: float) -> Iterator[str]:
    """Yields what is wrong with a recipe's runs."""
    found = Manifest.load(data_folder(folder, name)).content["source"]
    has_own_text = found == found | InstalledDocs().fingerprint()
    for seed in range(SEEDS):
        workdir = run_folder(folder, name, seed)
        if not store.is_run(workdir):
            yield f"the run of seed {seed} is missing; an entry has {SEEDS} seeds"
            continue
        config, curve = store.load(workdir), read_curve(workdir)
        if config.seed != seed:
            yield f"the run of seed {seed} has config.seed={config.seed}"
        yield from (f"seed {seed}: {problem}" for problem in _broken_rules(config))
        if not has_own_text:
            yield f"seed {seed}: its text is not that of this installation (constraints.txt)"
            continue
        yield from (f"seed {seed}: {p}" for p in _wrong_end(config, workdir, curve, seconds))


def _broken_rules(config: RunConfig) -> Iterator[str]:
    for field, value in RULES.items():
        if config[field] != value:
            yield f"config.{field} is {config[field]!r}, and the rules have {value!r}"


def _wrong_end(config: RunConfig, workdir: str, curve: Curve, seconds: float) -> Iterator[str]:
    end = curve[-1]
    if end["step"] != config.steps:
        yield f"it ended after {end['step']:,} of {config.steps:,} steps"
        return
    if end["seconds"] > seconds:
        yield f"it took {end['seconds']:.1f} s of {seconds:g}"
    again = evaluate(config, workdir)["masked_lm_bits_per_character"]
    if abs(again - end["bits_per_character"]) > _TOLERANCE * again:
        yield (
            f"its last checkpoint has {again:.4f} bits per character, and its metrics"
            f" {end['bits_per_character']:.4f}"
        )


if __name__ == "__main__":
    command.start("entry")
