"""Measures speed and memory, also of other programs that do the same work.

    python -m bert_jax benchmark step --models=tiny,base      a training step
    python -m bert_jax benchmark train --steps=300            training, as a user runs it
    python -m bert_jax benchmark pack --config.data.max_examples_per_row=8    packed rows against
    single ones python -m bert_jax benchmark prepare --times=1,10         from text to shards
    python -m bert_jax benchmark finetune --config.init_from=FOLDER \\
        --config.data.train=FILE --config.data.eval=FILE      fine-tuning
    python -m bert_jax benchmark recipe NAME=CONFIG ...       what each learns in a given time
    python -m bert_jax benchmark inference --workdir=DIR --input=FILE
                                                              sentence vectors, predictions
    python -m bert_jax benchmark serve --workdir=DIR          requests of a server, wrong ones too

Add --help to one of them for its flags.
"""

from collections.abc import Callable, Collection, Sequence

from bert_jax.files.errors import UserError
from bert_jax.tools.benchmark.workload import SIZES
from bert_jax.tools.cli.flags import configuration
from bert_jax.tools.cli.flags.command_line import HELP, Parser, flag_value

_DTYPES = ("float32", "bfloat16", "bfloat16_products")
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
    parser.flag("models", "tiny,mini,small,base", f"Some of {', '.join(SIZES)}.")
    parser.flag("dtypes", "float32", f"Some of {', '.join(_DTYPES)}.")
    parser.flag("rounds", 7, "Turns of each program.", least=1)
    parser.flag("batch_size", 0, "Instead of the model's own.", least=0)
    parser.flag("prng_impl", "threefry4x32", "Random bit generator of our dropout.")
    parser.switch("same_allocator", "Give transformers our setting of the C library's allocator.")
    parser.switch("compile", "Also measure transformers' model through torch.compile.")
    parser.switch("parts", "Also measure our step without dropout, masks, optimizer and metrics.")
    flags = parser.parse(argv)
    models, dtypes = flags.models.split(","), flags.dtypes.split(",")
    _check_known("model", models, SIZES)
    _check_known("dtype", dtypes, _DTYPES)

    from bert_jax.tools.benchmark.step import Options, run

    options = Options(
        flags.rounds,
        flags.batch_size,
        flags.prng_impl,
        flags.same_allocator,
        flags.compile,
        flags.parts,
    )
    run(models, dtypes, options)


def train(argv: Sequence[str]) -> None:
    parser = _parser(
        "train", "Measures training: tokens/s, waiting for data, peak memory." + _CONFIG
    )
    parser.flag("steps", 300, "Steps of the run.", least=1)
    flags, words = parser.parse_known(argv)
    config = flag_value(words, "config") or "configs/tiny.py"

    from bert_jax.tools.benchmark.train import run

    run(config, words, flags.steps)


def pack(argv: Sequence[str]) -> None:
    parser = _parser("pack", "Measures packed rows against rows of one example." + _CONFIG)
    parser.flag("steps", 100, "Updates measured, after as many that are not.", least=1)
    parser.flag("rounds", 3, "Runs of each.", least=1)
    flags, words = parser.parse_known(argv)

    from bert_jax.tools.benchmark.pack import run

    path = flag_value(words, "config") or "configs/tiny.py"
    arguments = [f"--config={path}", *words]
    config, _ = configuration.parse_config(_parser("pack", ""), ["pack", *arguments])
    run(config, arguments, flags.steps, flags.rounds)


def prepare(argv: Sequence[str]) -> None:
    parser = _parser("prepare", "Measures the preparation of a corpus, stage by stage.")
    parser.flag("text", "", "Paragraphs with blank lines between documents (default: our own).")
    parser.flag("times", "1,10", "Number of copies of the text, for each run.")
    parser.flag("vocab", "train:wordpiece", "As config.data.vocab.")
    parser.flag("mode", "dynamic", "As config.data.mode.")
    parser.flag("processes", 0, "As config.data.num_processes.", least=0)
    parser.flag("tasks", "", "Numbers of programs that divide the work, such as 1,2,4.")
    flags = parser.parse(argv)
    times = _positive("times", flags.times)
    tasks = _positive("tasks", flags.tasks) if flags.tasks else []

    from bert_jax.tools.benchmark.prepare import run

    run(flags.text, times, flags.vocab, flags.mode, flags.processes, tasks)


def _positive(name: str, text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise UserError(f"--{name}={text} are not positive integers, such as 1,10.")
    return [int(number) for number in numbers]


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

    from bert_jax.tools.benchmark.recipe import run
    from bert_jax.tools.benchmark.recipe_runs import parse_recipe

    rest = [word for word in words if word.startswith("-")]
    run(list(map(parse_recipe, recipes)), rest, flags.seconds, flags.seeds, flags.output)


def inference(argv: Sequence[str]) -> None:
    parser = _parser("inference", "Times sentence vectors, or predictions of a classifier.")
    parser.flag("workdir", "", "Folder of a run, or of imported weights.")
    parser.flag("input", "", "File with a text a line.")
    parser.flag("lines", 10_000, "Most texts.", least=1)
    parser.flag("rounds", 3, "Turns of each program after the first.", least=1)
    flags = parser.parse(argv)
    for name in ("workdir", "input"):
        if not getattr(flags, name):
            raise UserError(f"--{name} is missing: give --workdir=DIR --input=FILE.")

    from bert_jax.tools.benchmark.inference import run

    run(flags.workdir, flags.input, flags.lines, flags.rounds)


def serve(argv: Sequence[str]) -> None:
    parser = _parser("serve", "Loads a server with requests of 1, 8 and 64 clients, and ends it.")
    parser.flag("workdir", "", "Folder of a run, or of imported weights.")
    parser.flag("ability", "", "Such as features (default: the first that the model has).")
    parser.flag("requests", 2_000, "Of each number of clients.", least=1)
    parser.flag("many", 10_000, "Requests that memory is watched over, and wrong ones.", least=1)
    flags = parser.parse(argv)
    if not flags.workdir:
        raise UserError("--workdir is missing: the folder of a trained run.")

    from bert_jax.tools.benchmark.serve import run

    run(flags.workdir, flags.ability, flags.requests, flags.many)


def _parser(name: str, description: str) -> Parser:
    return Parser(
        f"bert_jax benchmark {name}", f"{description}\n\n    python -m bert_jax benchmark {name}"
    )


def _check_known(what: str, names: Sequence[str], known: Collection[str]) -> None:
    if unknown := sorted(set(names) - set(known)):
        raise UserError(f"Unknown {what} {', '.join(unknown)}. Available: {', '.join(known)}.")


BENCHMARKS: dict[str, Callable[[Sequence[str]], None]] = {
    function.__name__: function
    for function in (step, train, pack, prepare, finetune, recipe, inference, serve)
}
