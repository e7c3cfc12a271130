"""Times one training step, and transformers' on the same batch.

    python -m benchmarks.step --models=tiny,mini,small,base --rounds=7
    python -m benchmarks.step --models=tiny,base --dtypes=bfloat16_products --profile
    python -m benchmarks.step --models=large --length=512 --batch_size=32 --dtypes=bfloat16 \\
        --compile --config.model.attention=cudnn --config.model.attention_dropout_rate=0

A step is forward and backward pass, clipping and the optimizer, with dropout 0.1, a vocabulary of
30,522 and 20 predictions per 128 tokens. Our step also draws the masks, and computes accuracies
and the norm of the gradient. The compared programs, if torch and transformers are installed, are
`BertForPreTraining` unchanged (attention by SDPA, logits at every position, fused AdamW), with
logits at the masked positions only, and with --compile the latter through torch.compile. With
several --dtypes the last line of a model compares the best of both sides; in bfloat16_products only
our step is measured. Fields of the model (`--config.model.*`) apply to our step; sizes and dropout
rates also to transformers'. --profile shows where the time of our step goes instead.
"""

import argparse
import functools
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from benchmarks import command
from benchmarks.side_by_side import (
    OURS,
    THEIRS,
    Program,
    can_compare,
    describe_machine,
    table,
    take_turns,
    time_steps,
)
from benchmarks.step_profile import profile
from bert_jax.config.groups import OptimizerConfig
from bert_jax.config.run import RunConfig
from bert_jax.data.batch import token_fields
from bert_jax.devices import sharding
from bert_jax.devices.allocator import keep_freed_memory
from bert_jax.devices.chips import peak_flops
from bert_jax.models.bert import BertConfig
from bert_jax.optim.make import make_optimizer
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.pretraining.masking import MaskingRule
from bert_jax.tools.cli.command_line import OVERRIDES, Flag, resolve
from bert_jax.training.run import flops_per_token
from bert_jax.training.state import abstract_params, init_state, make_key
from bert_jax.training.step import train_step

VOCAB_SIZE = 30_522
PREDICTED = 20 / 128  # fraction of the tokens, as in the commands of google-research/bert's README
STEPS = 1_000_000  # of the schedule
# Sequences per step, for each model of google-research/bert's README.
BATCH_SIZES = {"tiny": 32, "mini": 16, "small": 16, "medium": 16, "base": 8, "large": 4}
GATHERED = f"{THEIRS}, masked positions"
COMPILED = f"{GATHERED}, compiled"
OWN_DTYPE = "bfloat16_products"  # without a counterpart in torch


FLAGS = (
    Flag("models", "tiny,mini,small,base", "Of tiny, mini, small, medium, base, large."),
    Flag("dtypes", "float32", "Some of float32, bfloat16, bfloat16_products."),
    Flag("rounds", 7, "Turns of each program.", minimum=1),
    Flag("length", 128, "Tokens of a sequence.", minimum=8),
    Flag("batch_size", 0, "Sequences of a step, instead of the model's own.", minimum=0),
    Flag("compile", False, "Also measure transformers' model through torch.compile."),
    Flag("profile", False, "Show where the time of our step goes, by part."),
    OVERRIDES,
)


def run(flags: argparse.Namespace) -> None:
    """Prints a table for each model and dtype."""
    configs = {
        model: [_config(model, dtype, flags.overrides) for dtype in flags.dtypes.split(",")]
        for model in flags.models.split(",")
    }
    print(describe_machine())
    compares = not flags.profile and can_compare()
    for model, of_model in configs.items():
        batch = make_batch(flags.batch_size or BATCH_SIZES[model], flags.length)
        found: dict[tuple[str, str], float] = {}
        for config in of_model:
            rows = len(batch["input_ids"])
            print(f"\nBERT-{model}, batch {rows} x {flags.length}, {config.dtype}")
            if flags.profile:
                head, parts = profile(*_own_step(config, batch), config.dtype)
                columns = ("ms", "share", "floor, ms", "x floor")
                print("\n".join([head, *table(columns, parts)]), flush=True)
                continue
            theirs = compares and config.dtype != OWN_DTYPE
            answers = take_turns(_programs(config, batch, theirs, flags.compile), flags.rounds)
            seconds = {
                name: statistics.median(s for turn in turns for s in turn["seconds"])
                for name, turns in answers.items()
            }
            print("\n".join(lines(seconds, answers[OURS][0], batch["input_ids"].size)), flush=True)
            found |= {(name, config.dtype): duration for name, duration in seconds.items()}
        if len(of_model) > 1 and compares:
            print(best(found, batch["input_ids"].size), flush=True)


def _config(model: str, dtype: str, overrides: dict[str, str]) -> RunConfig:
    fields = {f"model.{name}": "0.1" for name in ("dropout_rate", "attention_dropout_rate")}
    fixed = {"model.vocab_size": str(VOCAB_SIZE), "dtype": dtype}
    return resolve(f"configs/bert.py:{model}", fields | overrides | fixed)


def _programs(
    config: RunConfig, batch: dict[str, np.ndarray], theirs: bool, compiles: bool
) -> dict[str, Program]:
    found: dict[str, Program] = {OURS: (__name__, {"config": config, "batch": batch})}
    if theirs:
        model = config.model
        assert isinstance(model, BertConfig)
        common = {
            "fields": {
                "vocab_size": VOCAB_SIZE,
                "num_hidden_layers": model.num_layers,
                "hidden_size": model.hidden_size,
                "num_attention_heads": model.num_heads,
                "intermediate_size": model.intermediate_size,
                "hidden_dropout_prob": model.dropout_rate,
                "attention_probs_dropout_prob": model.attention_dropout_rate,
            },
            "dtype": config.dtype,
            "batch": batch,
        }
        kinds = {THEIRS: (False, False), GATHERED: (True, False), COMPILED: (True, True)}
        for name, (gather, compiled) in kinds.items():
            if compiles or not compiled:
                settings = common | {"gather": gather, "compiles": compiled}
                found[name] = f"{__package__}.rivals.step_torch", settings
    return found


def make_batch(batch_size: int, length: int) -> dict[str, np.ndarray]:
    """Returns full rows of random tokens, PREDICTED of them masked, as `data/batch.py`."""
    rng = np.random.default_rng(0)
    shape, slots = (batch_size, length), (batch_size, round(PREDICTED * length))
    places = [rng.permutation(np.arange(1, length - 1)) for _ in range(batch_size)]
    ids = rng.integers(1000, VOCAB_SIZE, shape, np.int32)
    starts = length * np.arange(batch_size)[:, None]
    lengths = np.full((batch_size, 1), length)
    return token_fields(ids.ravel(), starts, lengths, lengths, length, pad_id=0) | {
        "next_sentence_labels": rng.integers(0, 2, (batch_size, 1), np.int32),
        "next_sentence_weights": np.ones((batch_size, 1), np.float32),
        "masked_lm_positions": np.sort(np.stack(places)[:, : slots[1]]).astype(np.int32),
        "masked_lm_ids": rng.integers(1000, VOCAB_SIZE, slots, np.int32),
        "masked_lm_weights": np.ones(slots, np.float32),
    }


def masking_rule(batch: Mapping[str, np.ndarray]) -> MaskingRule:
    """Returns the rule that masks as many tokens of a row as `make_batch` has."""
    return MaskingRule(
        masked_lm_prob=PREDICTED,
        max_predictions=batch["masked_lm_ids"].shape[1],
        masking="subword",
        vocab_size=VOCAB_SIZE,
        mask_id=103,
        never_masked=(101, 102),
    )


def unmasked(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the batch without its masks, which our step draws itself."""
    return {name: array for name, array in batch.items() if not name.startswith("masked_lm")}


def build(config: RunConfig, batch: dict[str, np.ndarray]) -> Callable[[], dict[str, Any]]:
    """Our whole step: masks drawn on the device, forward, backward, clipping, Adam, metrics."""
    step, wait, _ = _own_step(config, batch)
    device, (batch_size, length) = jax.devices()[0], batch["input_ids"].shape
    properties = {
        "flops": flops_per_token(_task(config, batch), length) * batch_size * length,
        "peak_flops": peak_flops(),
        "device": f"{jax.device_count()} x {device.device_kind} ({device.platform})",
    }
    return lambda: {"seconds": time_steps(step, wait), **properties}


def _task(config: RunConfig, batch: Mapping[str, np.ndarray]) -> Pretraining:
    return Pretraining(model=config.model, rule=masking_rule(batch))


def _own_step(
    config: RunConfig, batch: dict[str, np.ndarray]
) -> tuple[Callable[[], None], Callable[[], None], jax.stages.Compiled]:
    """Returns what starts a step, what waits for it, and the program; one step has been run."""
    keep_freed_memory()
    mesh, task = sharding.make_mesh(), _task(config, batch)
    tx, _ = make_optimizer(OptimizerConfig(), num_steps=STEPS, warmup_steps=STEPS // 100)
    state = init_state(task, tx, mesh, make_key(0, "init"), _random_params(task, mesh))
    keys = {purpose: make_key(0, purpose) for purpose in ("dropout", "masking")}
    rows = sharding.shard_batch(mesh, unmasked(batch), len(batch["input_ids"]), 0)
    # Between two steps that are logged, as nearly all are.
    whole = functools.partial(train_step, task=task, tx=tx, steps=STEPS, log_every=0)
    update = jax.jit(whole, donate_argnums=0).lower(state, rows, keys).compile()
    metrics = None

    def step() -> None:
        nonlocal state, metrics
        state, metrics = update(state, rows, keys)

    def wait() -> None:
        jax.block_until_ready((state, metrics))

    step()
    wait()
    return step, wait, update


def _random_params(task: Pretraining, mesh: Mesh) -> Any:
    """Returns parameters drawn by the host; jax's program takes a minute to compile for a GPU."""
    rng = np.random.default_rng(0)

    def make(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jax.device_put(rng.normal(0, 0.02, leaf.shape).astype(leaf.dtype), leaf.sharding)

    return jax.tree.map(make, abstract_params(task, mesh))


def lines(
    seconds: Mapping[str, float], properties: Mapping[str, Any], tokens: int
) -> Iterator[str]:
    """Yields a line about the devices, and one for each program.

    Args:
      seconds: median seconds per step of each.
      properties: `flops` of the matrix products of a step, `peak_flops` of the devices (or None),
        and a description `device` of them.
      tokens: number of tokens in a step.
    """
    flops, peak = properties["flops"], properties["peak_flops"]
    yield f"{properties['device']}, {flops / 1e9:.1f} GFLOP a step"
    rows = {
        name: (
            f"{duration * 1e3:.1f}",
            f"{tokens / duration:,.0f}",
            f"{seconds[OURS] / duration:.2f}",
            f"{flops / duration / 1e9:,.0f}",
            f"{flops / duration / peak:.1%}" if peak else "",
        )
        for name, duration in seconds.items()
    }
    yield from table(("ms a step", "tokens/s", "x ours", "GFLOP/s", "MFU"), rows)


def best(seconds: Mapping[tuple[str, str], float], tokens: int) -> str:
    """Returns the line that compares the fastest of both sides.

    Args:
      seconds: seconds per step of each (program, dtype).
      tokens: number of tokens in a step.
    """
    ours = min((pair for pair in seconds if pair[0] == OURS), key=lambda pair: seconds[pair])
    other = min((pair for pair in seconds if pair[0] != OURS), key=lambda pair: seconds[pair])
    speeds = [
        f"{' in '.join(pair)}, {tokens / seconds[pair]:,.0f} tokens/s" for pair in (ours, other)
    ]
    return f"best of both: {speeds[0]}; {speeds[1]}: {seconds[other] / seconds[ours]:.2f} times"


if __name__ == "__main__":
    command.start("step")
