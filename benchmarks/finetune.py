"""Fine-tunes the same model here and with transformers on torch: scores and speed.

    python -m benchmarks.finetune --config=configs/ner.py:wikigold --seeds=3 \\
        --config.init_from=FOLDER --config.data.train=FILE --config.data.eval=FILE

Both start from the same folder of Hugging Face and follow the configuration, with AdamW as in torch
(bias correction) and a linear schedule. Our program runs as the command that a user types, without
kept compilations; transformers uses its own tokenizer, pads each batch to its longest row, and is
scored by seqeval, by accuracy, or by the official F1 of SQuAD. Its process stays alive, so that its
time excludes the imports. The programs alternate, one seed at a time. Scores are those of the last
step. With config.dtype=bfloat16 or bfloat16_products transformers computes in bfloat16 by autocast.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks import command
from benchmarks.side_by_side import (
    OURS,
    THEIRS,
    Program,
    can_compare,
    describe_machine,
    run_command,
    table,
    take_turns,
)
from bert_jax.config.run import RunConfig
from bert_jax.files.errors import UserError
from bert_jax.scores.significance import welch
from bert_jax.tools.cli.command_line import CONFIG, Flag, read_config
from bert_jax.training.metrics import read_metrics

# Equal to torch's AdamW and transformers' schedule; evaluation at the end only.
SETTINGS = {
    "optimizer.name": "adamw",
    "optimizer.schedule": "linear",
    "eval.every": "0",
    "checkpoint.every": "0",
    "log.every": "0.2 epochs",
}
# The only settings that the compared program supports.
_ONLY = {
    "task.layers": "last",
    "task.head": "linear",
    "task.document_context": False,
    "task.both_orders": False,
    "task.lm_weight": 0.0,
    "task.published": "",
    "reinit_layers": 0,
    "microbatch_size": 0,
    "optimizer.name": "adamw",
    "optimizer.schedule": "linear",
    "optimizer.layer_decay": 1.0,
    "optimizer.frozen_layers": 0,
}
_ONLY_OF = {
    "tagging": {
        "task.entities": True,
        "task.text_a": "",
        "task.label": "",
        "metrics.0": "f1",
    },
    "classification": {
        "task.problem_type": "single",
        "task.pool": "cls",
        "task.pooler": True,
        "task.label_separator": "",
        "metrics.0": "accuracy",
    },
    "span": {"metrics.0": "f1"},
}


FLAGS = (Flag("seeds", 3, "Runs of each program.", minimum=1), *CONFIG)


def run(flags: argparse.Namespace) -> None:
    """Prints a line for each run, the table, and whether the scores differ.

    Raises:
      UserError: the compared program does not support the configuration.
    """
    flags.config = flags.config or "configs/ner.py:wikigold"
    flags.overrides = SETTINGS | flags.overrides
    config = read_config(flags)
    check(config)
    print(describe_machine())
    metric, files = config.metrics[0], (config["data.train"], config["data.eval"])
    print(f"{files[0]}, scored on {files[1]}: {metric}")
    ours = {"arguments": command.config_words(flags), "metric": metric, "seed": config["seed"]}
    programs: dict[str, Program] = {OURS: (__name__, ours)}
    if can_compare("seqeval"):
        theirs = f"{__package__}.rivals.finetune_torch"
        programs[THEIRS] = theirs, {"config": config.to_dict()}
    print("\n".join(lines(take_turns(programs, flags.seeds, _report))))


def check(config: RunConfig) -> None:
    """Raises UserError for settings that the compared program does not support."""
    if not config.init_from:
        raise UserError("config.init_from is missing: a folder of Hugging Face, for both sides.")
    if config.task.name not in _ONLY_OF:
        raise UserError(
            f"config.task.name={config.task.name!r}: the other program has no such task."
        )
    for name, value in (_ONLY | _ONLY_OF[config.task.name]).items():
        found = config.metrics[0] if name == "metrics.0" else config.get(name, value)
        if found != value:
            raise UserError(f"config.{name}={found!r}: the other program has only {value!r}.")
    if not config.optimizer.warmup.endswith("%"):
        raise UserError(
            f"config.optimizer.warmup={config.optimizer.warmup!r} is not a percentage of the run."
        )


def build(arguments: Sequence[str], metric: str, seed: int) -> Callable[[], dict[str, float]]:
    """This program: each measurement is a run with the next seed.

    Args:
      arguments: arguments of `bert_jax train`, without workdir and seed.
      metric: the score.
      seed: seed of the first run.
    """
    seeds = itertools.count(seed)

    def measure() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as workdir:
            start = time.perf_counter()
            flags = [*arguments, f"--workdir={workdir}", f"--config.seed={next(seeds)}"]
            run_command("train", flags)
            seconds = time.perf_counter() - start
            rows = read_metrics(workdir)
        reports = [row["speed"] for row in rows if row["split"] == "train"]
        evaluation = [row for row in rows if row["split"] == "validation"][-1]
        # The first report includes the compilation.
        speed = statistics.median(report["examples_per_second"] for report in reports[1:])
        return {"score": evaluation[metric], "examples_per_second": speed, "seconds": seconds}

    return measure


def _report(name: str, found: Mapping[str, float]) -> None:
    score, speed, seconds = found["score"], found["examples_per_second"], found["seconds"]
    print(f"{name}: {score:.4f}, {speed:.1f} examples/s, {seconds:.0f} s", flush=True)


def lines(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterator[str]:
    """Yields a line for each program, and whether their scores differ (Welch's test).

    Args:
      runs: `score`, `examples_per_second` and `seconds` of each run of each program.
    """
    scores = {name: [run["score"] for run in found] for name, found in runs.items()}
    speeds, seconds = (
        {name: statistics.median(run[field] for run in found) for name, found in runs.items()}
        for field in ("examples_per_second", "seconds")
    )
    rows = {}
    for name, found in scores.items():
        spread = f" ± {statistics.stdev(found):.4f}" if len(found) > 1 else ""
        rows[name] = (
            f"{statistics.mean(found):.4f}{spread}",
            f"{speeds[name]:.1f}",
            f"{speeds[name] / speeds[OURS]:.2f}",
            f"{seconds[name]:.0f}",
            ", ".join(f"{score:.4f}" for score in found),
        )
    yield from table(("score", "examples/s", "x ours", "s a run", "of each seed"), rows)
    if THEIRS in scores and (test := welch(scores[OURS], scores[THEIRS])):
        yield f"difference of the mean scores {test.difference:+.4f}, Welch's p {test.p_value:.3f}"


if __name__ == "__main__":
    command.start("finetune")
