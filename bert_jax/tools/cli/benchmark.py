"""Measures speed, scores and memory, also of other programs that do the same work.

    bert_jax benchmark step --models=tiny,base      a training step
    bert_jax benchmark finetune --config.init_from=FOLDER \\
        --config.data.train=FILE --config.data.eval=FILE      fine-tuning
    bert_jax benchmark defaults TRAIN --evaluate=FILE --model=MODEL
                                                              settings of finetune
    bert_jax benchmark inference --model=MODEL --input=FILE
                                                              sentence vectors, predictions
    bert_jax benchmark recipe NAME=CONFIG ...       what each learns in a given time
    bert_jax benchmark entry DIR                    checks an entry of that race
    bert_jax benchmark prepare                      from text to shards
    bert_jax benchmark serve --model=MODEL          requests of a server

Add --help to one of them for its flags.
"""

import argparse
from typing import TYPE_CHECKING

from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import (
    CONFIG,
    MODEL,
    OVERRIDES,
    Flag,
    config_words,
    read_config,
    resolve,
)

if TYPE_CHECKING:
    from bert_jax.config.run import RunConfig

KIND = "benchmark"


def step(flags: argparse.Namespace) -> None:
    """Times a training step, beside transformers' on the same batch.

    bert_jax benchmark step --models=tiny,base
    """
    from bert_jax.tools.benchmark.step import VOCAB_SIZE, run, run_profile

    def config_of(model: str, dtype: str) -> "RunConfig":
        fields = {f"model.{name}": "0.1" for name in ("dropout_rate", "attention_dropout_rate")}
        fixed = {"model.vocab_size": str(VOCAB_SIZE), "dtype": dtype}
        return resolve(f"configs/bert.py:{model}", fields | flags.overrides | fixed)

    dtypes = flags.dtypes.split(",")
    configs = {
        model: [config_of(model, dtype) for dtype in dtypes] for model in flags.models.split(",")
    }
    if flags.profile:
        from bert_jax.tools.compile.step_profile import profile

        run_profile(configs, flags.length, flags.batch_size, profile)
    else:
        run(configs, flags.length, flags.batch_size, flags.rounds, flags.compile)


def finetune(flags: argparse.Namespace) -> None:
    """Fine-tunes the same model here and with transformers on torch.

    bert_jax benchmark finetune --config.init_from=FOLDER
    """
    from bert_jax.tools.benchmark.finetune import SETTINGS, run

    flags.config = flags.config or "configs/ner.py:wikigold"
    flags.overrides = SETTINGS | flags.overrides
    run(read_config(flags), config_words(flags), flags.seeds)


def defaults(flags: argparse.Namespace) -> None:
    """Compares the settings of finetune with a grid, and with transformers' Trainer.

    bert_jax benchmark defaults train.csv --evaluate=dev.csv --model=MODEL
    """
    grid = _numbers("rates", flags.rates), _numbers("epochs", flags.epochs)
    from bert_jax.tools.benchmark.defaults import run

    files = flags.train, flags.evaluate
    run(flags.model, files, flags.task, flags.overrides, grid, flags.seeds, flags.output)


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part]
    except ValueError:
        raise UserError(f"--{name}={text} are not numbers, such as 1e-4,3e-4.") from None


def inference(flags: argparse.Namespace) -> None:
    """Times sentence vectors, or predictions of a classifier.

    bert_jax benchmark inference --model=MODEL --input=FILE
    """
    from bert_jax.tools.benchmark.inference import run

    names = [name.strip() for name in flags.programs.split(",") if name.strip()]
    run(flags.model, flags.input, flags.lines, flags.rounds, flags.compile, names)


def recipe(flags: argparse.Namespace) -> None:
    """Trains recipes (NAME=CONFIG;FIELD=VALUE;...) for the same time.

    bert_jax benchmark recipe bert=configs/tiny.py fast=configs/fast.py:tiny
    """
    if not flags.recipe:
        raise UserError("The recipes are missing: NAME=CONFIG, such as fast=configs/fast.py:tiny.")
    if flags.seconds <= 0:
        raise UserError(f"--seconds={flags.seconds} must be above 0.")

    from bert_jax.tools.benchmark.recipe import parse_recipe, run

    recipes = [parse_recipe(text) for text in flags.recipe]
    run(recipes, config_words(flags), flags.seconds, flags.seeds, flags.part, flags.output)


def entry(flags: argparse.Namespace) -> None:
    """Checks an entry of the race (docs/race.md): the output folder of `benchmark recipe`.

    bert_jax benchmark entry race --seconds=290
    """
    from bert_jax.tools.benchmark.entry import run

    run(flags.folder, flags.seconds)


def prepare(flags: argparse.Namespace) -> None:
    """Measures the preparation of a corpus, stage by stage.

    bert_jax benchmark prepare --tasks=1,2
    """
    tasks = flags.tasks.split(",")
    if not all(number.isdecimal() and int(number) for number in tasks):
        raise UserError(f"--tasks={flags.tasks} are not positive integers, such as 1,2,4.")

    from bert_jax.tools.benchmark.prepare import run

    flags.config = flags.config or "configs/base.py"
    read_config(flags)
    run(config_words(flags), list(map(int, tasks)))


def serve(flags: argparse.Namespace) -> None:
    """Loads a server with the requests of 1, 8 and 64 clients.

    bert_jax benchmark serve --model=MODEL
    """
    from bert_jax.tools.benchmark.serve import run

    run(flags.model, flags.endpoint, flags.requests)


_SEEDS = Flag("seeds", 3, "Runs of each program or recipe.", minimum=1)
COMMANDS = {
    "step": (
        step,
        (
            Flag("models", "tiny,mini,small,base", "Of tiny, mini, small, medium, base, large."),
            Flag("dtypes", "float32", "Some of float32, bfloat16, bfloat16_products."),
            Flag("rounds", 7, "Turns of each program.", minimum=1),
            Flag("length", 128, "Tokens of a sequence.", minimum=8),
            Flag("batch_size", 0, "Sequences of a step, instead of the model's own.", minimum=0),
            Flag("compile", False, "Also measure transformers' model through torch.compile."),
            Flag("profile", False, "Show where the time of our step goes, by part."),
            OVERRIDES,
        ),
    ),
    "finetune": (finetune, (_SEEDS, *CONFIG)),
    "defaults": (
        defaults,
        (
            Flag("TRAIN", "", "file of labelled examples"),
            Flag("evaluate", "", "File to evaluate on.", missing="a file of labelled examples"),
            MODEL,
            Flag("task", "", "As for finetune."),
            Flag("rates", "2e-5,5e-5,1e-4,3e-4,1e-3", "Learning rates of the grid."),
            Flag("epochs", "3,10", "Numbers of epochs of the grid."),
            Flag("seeds", 5, "Runs of each setting.", minimum=1),
            Flag("output", "defaults.jsonl", "File that keeps the scores."),
            OVERRIDES,
        ),
    ),
    "inference": (
        inference,
        (
            MODEL,
            Flag("input", "", "File with a text a line.", missing="a file with a text a line"),
            Flag("lines", 10_000, "Maximum number of texts.", minimum=1),
            Flag("rounds", 3, "Turns of each program after the first.", minimum=1),
            Flag("compile", False, "Also measure transformers' model through torch.compile."),
            Flag("programs", "", "How the names of those to measure begin, such as bert_jax,onnx."),
        ),
    ),
    "recipe": (
        recipe,
        (
            Flag("RECIPE", [], "NAME=CONFIG;FIELD=VALUE;..."),
            Flag("seconds", 60.0, "Of training, for each run."),
            _SEEDS,
            Flag(
                "part",
                "all",
                "Held-out rows: tune (first half), report (second half) or all.",
                choices=("all", "tune", "report"),
            ),
            Flag("output", "race", "Folder of the runs and of race.json and race.svg."),
            OVERRIDES,
        ),
    ),
    "entry": (
        entry,
        (
            Flag("FOLDER", "", "output folder of benchmark recipe"),
            Flag("seconds", 290.0, "Budget of a run."),
        ),
    ),
    "prepare": (
        prepare,
        (
            Flag("tasks", "1", "Numbers of programs that divide the work, such as 1,2,4."),
            *CONFIG,
        ),
    ),
    "serve": (
        serve,
        (
            MODEL,
            Flag("endpoint", "", "Such as encode (default: the first that the model has)."),
            Flag("requests", 2_000, "Of each number of clients.", minimum=2),
        ),
    ),
}
