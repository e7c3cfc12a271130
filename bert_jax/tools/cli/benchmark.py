"""Measures speed, scores and memory, also of other programs that do the same work.

    python -m bert_jax benchmark step --models=tiny,base      a training step
    python -m bert_jax benchmark finetune --config.init_from=FOLDER \\
        --config.data.train=FILE --config.data.eval=FILE      fine-tuning
    python -m bert_jax benchmark inference --workdir=DIR --input=FILE
                                                              sentence vectors, predictions
    python -m bert_jax benchmark recipe NAME=CONFIG ...       what each learns in a given time
    python -m bert_jax benchmark prepare                      from text to shards
    python -m bert_jax benchmark serve --workdir=DIR          requests of a server

Add --help to one of them for its flags.
"""

from collections.abc import Callable, Sequence

from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags import configuration
from bert_jax.tools.cli.flags.command_line import HELP, Parser, flag_value

_CONFIG = "\n\nTakes also --config=FILE and --config.FIELD=VALUE."


def main(argv: Sequence[str]) -> None:
    name = argv[1] if len(argv) > 1 else ""
    if name in HELP:
        print(__doc__)
        return
    if name not in BENCHMARKS:
        problem = f"Unknown benchmark {name!r}" if name else "The benchmark is missing"
        raise UserError(f"{problem}. Available: {', '.join(BENCHMARKS)}.")
    BENCHMARKS[name](argv[1:])


def step(argv: Sequence[str]) -> None:
    parser = _parser("step", "Times a training step, beside transformers' on the same batch.")
    parser.flag("models", "tiny,mini,small,base", "Of tiny, mini, small, medium, base, large.")
    parser.flag("dtypes", "float32", "Some of float32, bfloat16, bfloat16_products.")
    parser.flag("rounds", 7, "Turns of each program.", least=1)
    parser.flag("batch_size", 0, "Instead of the model's own.", least=0)
    parser.switch("compile", "Also measure transformers' model through torch.compile.")
    flags = parser.parse(argv)

    from bert_jax.tools.benchmark.step import run

    models, dtypes = flags.models.split(","), flags.dtypes.split(",")
    run(models, dtypes, flags.rounds, flags.batch_size, flags.compile)


def finetune(argv: Sequence[str]) -> None:
    parser = _parser(
        "finetune", "Fine-tunes the same model here and with transformers on torch." + _CONFIG
    )
    parser.flag("seeds", 3, "Runs of each program.", least=1)
    flags, words = parser.parse_known(argv)

    from bert_jax.tools.benchmark.finetune import SETTINGS, run

    settings = [f"--config.{name}={value}" for name, value in SETTINGS.items()]
    path = flag_value(words, "config") or "configs/ner.py:wikigold"
    arguments = [f"--config={path}", *settings, *words]
    config, _ = configuration.parse_config(_parser("finetune", ""), ["finetune", *arguments])
    run(config, arguments, flags.seeds)


def inference(argv: Sequence[str]) -> None:
    parser = _parser("inference", "Times sentence vectors, or predictions of a classifier.")
    parser.flag("workdir", "", "Folder of a run, or of imported weights.")
    parser.flag("input", "", "File with a text a line.")
    parser.flag("lines", 10_000, "Maximum number of texts.", least=1)
    parser.flag("rounds", 3, "Turns of each program after the first.", least=1)
    flags = parser.parse(argv)
    for name in ("workdir", "input"):
        if not getattr(flags, name):
            raise UserError(f"--{name} is missing: give --workdir=DIR --input=FILE.")

    from bert_jax.tools.benchmark.inference import run

    run(flags.workdir, flags.input, flags.lines, flags.rounds)


def recipe(argv: Sequence[str]) -> None:
    parser = _parser(
        "recipe", "Trains recipes (NAME=CONFIG;FIELD=VALUE;...) for the same time." + _CONFIG
    )
    parser.flag("seconds", 60.0, "Of training, for each run.")
    parser.flag("seeds", 3, "Runs of each recipe.", least=1)
    parser.flag("output", "race", "Folder of the runs and of race.json and race.svg.")
    flags, words = parser.parse_known(argv)
    recipes = [word for word in words if not word.startswith("-")]
    if not recipes:
        raise UserError("The recipes are missing: NAME=CONFIG, such as fast=configs/fast.py:tiny.")
    if flags.seconds <= 0:
        raise UserError(f"--seconds={flags.seconds} must be above 0.")

    from bert_jax.tools.benchmark.recipe import parse_recipe, run

    rest = [word for word in words if word.startswith("-")]
    run(list(map(parse_recipe, recipes)), rest, flags.seconds, flags.seeds, flags.output)


def prepare(argv: Sequence[str]) -> None:
    parser = _parser("prepare", "Measures the preparation of a corpus, stage by stage." + _CONFIG)
    parser.flag("tasks", "1", "Numbers of programs that divide the work, such as 1,2,4.")
    flags, words = parser.parse_known(argv)
    tasks = flags.tasks.split(",")
    if not all(number.isdecimal() and int(number) for number in tasks):
        raise UserError(f"--tasks={flags.tasks} are not positive integers, such as 1,2,4.")

    from bert_jax.tools.benchmark.prepare import run

    path = flag_value(words, "config") or "configs/base.py"
    arguments = [f"--config={path}", *words]
    configuration.parse_config(_parser("prepare", ""), ["prepare", *arguments])
    run(arguments, list(map(int, tasks)))


def serve(argv: Sequence[str]) -> None:
    parser = _parser("serve", "Loads a server with the requests of 1, 8 and 64 clients.")
    parser.flag("workdir", "", "Folder of a run, or of imported weights.")
    parser.flag("endpoint", "", "Such as features (default: the first that the model has).")
    parser.flag("requests", 2_000, "Of each number of clients.", least=2)
    flags = parser.parse(argv)
    if not flags.workdir:
        raise UserError("--workdir is missing: the folder of a trained run.")

    from bert_jax.tools.benchmark.serve import run

    run(flags.workdir, flags.endpoint, flags.requests)


def _parser(name: str, description: str) -> Parser:
    return Parser(
        f"bert_jax benchmark {name}", f"{description}\n\n    python -m bert_jax benchmark {name}"
    )


BENCHMARKS: dict[str, Callable[[Sequence[str]], None]] = {
    function.__name__: function for function in (step, finetune, inference, recipe, prepare, serve)
}
