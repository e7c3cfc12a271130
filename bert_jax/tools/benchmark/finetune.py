"""Fine-tunes the same model here and with transformers on torch: scores, speed and losses.

    python -m bert_jax benchmark finetune --config=configs/ner.py:wikigold --seeds=3 \\
        --config.init_from=FOLDER --config.data.train=FILE --config.data.eval=FILE

Both start from the same folder of Hugging Face and follow the configuration, with AdamW as in torch
(bias correction) and a linear schedule. Our program runs as the command that a user types, without
kept compilations; transformers uses its own tokenizer, pads each batch to its longest row, and is
scored by seqeval, by accuracy, or by the official F1 of SQuAD. Its process stays alive, so that its
time excludes the imports. The programs alternate, one seed at a time. Scores are those of the last
step. One more run of one epoch each, padded to the maximum length, shows how much batches by length
save. With config.dtype=bfloat16 or bfloat16_products transformers computes in bfloat16 by autocast.
"""

import importlib.util
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.config.run import RunConfig
from bert_jax.files.errors import UserError
from bert_jax.scores.significance import welch
from bert_jax.tools.benchmark.machine import describe_machine, has_transformers
from bert_jax.tools.benchmark.turns import Rival, take_turns

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
    "head.layers": "last",
    "data.published": "",
    "reinit_layers": 0,
    "microbatch_size": 0,
    "optimizer.name": "adamw",
    "optimizer.schedule": "linear",
    "optimizer.layer_decay": 1.0,
    "optimizer.frozen_layers": 0,
}
# The same for each task.
_ONLY_OF = {
    "tagging": {
        "head.tagging": "linear",
        "head.entities": True,
        "head.document_context": False,
        "data.text_a": "",
        "data.label": "",
        "metrics.0": "f1",
    },
    "classification": {
        "head.classification": "linear",
        "head.problem_type": "single",
        "head.pool": "cls",
        "head.pooler": True,
        "head.both_orders": False,
        "head.lm_weight": 0.0,
        "data.label_separator": "",
        "metrics.0": "accuracy",
    },
    "multiple_choice": {
        "head.multiple_choice": "linear",
        "head.pool": "cls",
        "head.pooler": True,
        "data.endings": (),
        "metrics.0": "accuracy",
    },
    "span": {"head.span": "linear", "metrics.0": "f1"},
}
OURS, THEIRS = "bert_jax", "transformers"
# What a turn measures, before the mean training loss of each epoch.
NUMBERS = ("score", "examples_per_second", "seconds")
_COLUMNS = "{:32} {:>18} {:>10} {:>8} {:>10}  {}"


def run(config: RunConfig, arguments: Sequence[str], seeds: int) -> None:
    """Prints the table.

    Args:
      config: resolved, with SETTINGS.
      arguments: the flags of `python -m bert_jax train` that it was resolved from.
      seeds: number of runs of each program.

    Raises:
      UserError: the compared program does not support the configuration.
    """
    check(config)
    print(describe_machine())
    files = config["data.train"], config["data.eval"]
    print(f"{files[0]}, scored on {files[1]}: {config.metrics[0]}")
    for line in measure(config.to_dict(), arguments, seeds):
        print(line, flush=True)


def check(config: RunConfig) -> None:
    """Raises UserError for settings that the compared program does not support."""
    if not config.init_from:
        raise UserError("config.init_from is missing: a folder of Hugging Face, for both sides.")
    if config.task not in _ONLY_OF:
        raise UserError(f"config.task={config.task!r}: the other program has no such task.")
    for name, value in (_ONLY | _ONLY_OF[config.task]).items():
        found = config.metrics[0] if name == "metrics.0" else config[name]
        if found != value:
            raise UserError(f"config.{name}={found!r}: the other program has only {value!r}.")
    if not config.optimizer.warmup.endswith("%"):
        raise UserError(
            f"config.optimizer.warmup={config.optimizer.warmup!r} is not a percentage of the run."
        )


def measure(config: dict[str, Any], arguments: Sequence[str], seeds: int) -> Iterator[str]:
    """Yields the lines of the table, once all runs are done, after the programs left out."""
    here, seed, longest = __package__, config["seed"], config["max_length"]
    padded = [*arguments, "--config.epochs=1", f"--config.data.bucket_lengths=({longest},)"]
    one_epoch = config | {"epochs": 1.0}
    common = {"metric": config["metrics"][0], "seed": seed}
    ours = f"{here}.rivals.finetune_jax"
    rivals = {OURS: Rival(ours, "build", arguments=arguments, epochs=config["epochs"], **common)}
    once = {
        f"{OURS}, padded to {longest}": Rival(ours, "build", arguments=padded, epochs=1.0, **common)
    }
    if has_transformers() and importlib.util.find_spec("seqeval"):
        rivals[THEIRS] = Rival(f"{here}.rivals.finetune_torch", "build", config=config, pad=False)
        once[f"{THEIRS}, padded to {longest}"] = Rival(
            f"{here}.rivals.finetune_torch", "build", config=one_epoch, pad=True
        )
    else:
        yield f"{THEIRS} is left out: pip install -c constraints.txt -e '.[parity,test]'"
    try:
        turns = take_turns(rivals, seeds, _report) | take_turns(once, 1, _report)
    finally:
        for rival in (rivals | once).values():
            rival.close()
    runs = {}
    for name, found in turns.items():
        epochs = 1 if name in once else math.ceil(config["epochs"])
        runs[name] = np.reshape(found, (-1, len(NUMBERS) + epochs))
    yield from table(runs)
    yield from losses_and_test(runs)


def _report(name: str, numbers: list[float]) -> None:
    score, speed, seconds, *losses = numbers
    shown = " ".join(f"{loss:.4f}" for loss in losses)
    print(
        f"{name}: {score:.4f}, {speed:.1f} examples/s, {seconds:.0f} s, losses {shown}", flush=True
    )


def table(runs: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Yields a line for each program.

    Args:
      runs: float64[runs, 3 + epochs] of each, NUMBERS and losses a run; padded ones have no score
        to compare.
    """
    yield _COLUMNS.format("", "mean and deviation", "examples/s", "x ours", "s a run", "scores")
    ours = statistics.median(runs[OURS][:, 1])
    for name, numbers in runs.items():
        scores, speed = numbers[:, 0], statistics.median(numbers[:, 1])
        is_scored = "padded" not in name
        spread = f"{statistics.stdev(scores):.4f}" if len(scores) > 1 else ""
        yield _COLUMNS.format(
            name,
            f"{scores.mean():.4f} {spread}" if is_scored else "",
            f"{speed:.1f}",
            f"{speed / ours:.2f}",
            f"{statistics.median(numbers[:, 2]):.0f}",
            ", ".join(f"{score:.4f}" for score in scores) if is_scored else "",
        ).rstrip()


def losses_and_test(runs: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Yields the mean training losses by epoch, and whether the scores differ (Welch's test)."""
    compared = [name for name in (OURS, THEIRS) if name in runs]
    for name in compared:
        losses = runs[name][:, len(NUMBERS) :].mean(axis=0)
        yield f"training loss of each epoch, {name}: " + " ".join(f"{loss:.4f}" for loss in losses)
    if len(compared) == 2 and (test := welch(*(runs[name][:, 0].tolist() for name in compared))):
        yield f"difference of the mean scores {test.difference:+.4f}, Welch's p {test.p_value:.3f}"
