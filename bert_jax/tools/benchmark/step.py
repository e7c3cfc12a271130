"""Times one training step at sequence length 128, and transformers' on the same batch.

    python -m bert_jax benchmark step --models=tiny,mini,small,base --rounds=7

A step is forward and backward pass, clipping and the optimizer, with dropout 0.1, a vocabulary of
30,522 and 20 predictions per sequence. Our step also draws the masks, and computes accuracies
and norms. The compared programs, if torch and transformers are installed, are `BertForPreTraining`
unchanged (attention by SDPA, logits at every position, fused AdamW), with logits at the masked
positions only, and with --compile the latter through torch.compile. With several --dtypes the last
line of a model compares the best of both sides; in bfloat16_products only our step is measured.
With --parts our step is also measured without dropout, without drawing masks, without optimizer and
metrics, and without all of them.
"""

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.tools.benchmark.machine import describe_machine, has_transformers
from bert_jax.tools.benchmark.turns import Rival, take_turns
from bert_jax.tools.benchmark.workload import PARTS, PREDICTIONS, SEQUENCE_LENGTH, SIZES

OURS, PLAIN, GATHERED = "bert_jax", "transformers", "transformers, masked positions"
COMPILED = f"{GATHERED}, compiled"
OWN_DTYPE = "bfloat16_products"  # without a counterpart in torch
BARE = f"{OURS} without all of these"
# Our step, and what is left out of it.
LESSER = {OURS: (), **{f"{OURS} without {part}": (part,) for part in PARTS}, BARE: PARTS}
_COLUMNS = "{:42} {:>10} {:>10} {:>8} {:>13} {:>8} {:>6}"


@dataclasses.dataclass(frozen=True)
class Options:
    """How to measure.

    Attributes:
      rounds: turns of each program.
      batch_size: sequences of a step; 0: the model's own.
      prng_impl: random bit generator of our dropout.
      same_allocator: give transformers our setting of the C library's allocator.
      compile: whether transformers' model is also compiled.
      parts: whether our step is also measured without parts of it.
    """

    rounds: int = 7
    batch_size: int = 0
    prng_impl: str = "threefry4x32"
    same_allocator: bool = False
    compile: bool = False
    parts: bool = False


def run(models: Sequence[str], dtypes: Sequence[str], options: Options) -> None:
    """Prints a table for each model, a row of SIZES, and each dtype."""
    print(describe_machine())
    for model in models:
        size = SIZES[model]
        batch_size = options.batch_size or size.batch_size
        found: dict[tuple[str, str], float] = {}
        for dtype in dtypes:
            print(
                f"\nBERT-{model}: {size.num_layers} layers, hidden {size.hidden_size}, batch"
                f" {batch_size} x {SEQUENCE_LENGTH}, {PREDICTIONS} predictions, {dtype}"
            )
            seconds, lines = measure(options, model, dtype, batch_size)
            print("\n".join(lines), flush=True)
            found |= {(name, dtype): duration for name, duration in seconds.items()}
        if len(dtypes) > 1 and len({name for name, _ in found}) > 1:
            print(best(found, batch_size), flush=True)


def best(seconds: Mapping[tuple[str, str], float], batch_size: int) -> str:
    """Returns the line that compares the fastest of both sides.

    Args:
      seconds: of a step of each (program, dtype).
      batch_size: sequences in a step.
    """
    ours = min((pair for pair in seconds if pair[0] == OURS), key=lambda pair: seconds[pair])
    other = min((pair for pair in seconds if pair[0] != OURS), key=lambda pair: seconds[pair])
    speeds = [
        f"{' in '.join(pair)}, {batch_size * SEQUENCE_LENGTH / seconds[pair]:,.0f} tokens/s"
        for pair in (ours, other)
    ]
    return f"best of both: {speeds[0]}; {speeds[1]}: {seconds[other] / seconds[ours]:.2f} times"


def measure(
    options: Options, model: str, dtype: str, batch_size: int
) -> tuple[dict[str, float], list[str]]:
    """Returns the median seconds of a step of each program, and the lines of the table."""
    common = {"model": model, "dtype": dtype, "batch_size": batch_size}
    here = __package__
    ceiling = Rival(f"{here}.rivals.step_jax", "build_ceiling", **common)
    rivals = {
        name: Rival(
            f"{here}.rivals.step_jax",
            "build_step",
            **common,
            prng_impl=options.prng_impl,
            without=without,
        )
        for name, without in (LESSER if options.parts else {OURS: ()}).items()
    }
    if has_transformers() and dtype != OWN_DTYPE:
        settings = common | {"same_allocator": options.same_allocator}
        others = {PLAIN: (False, False), GATHERED: (True, False)}
        others |= {COMPILED: (True, True)} if options.compile else {}
        for name, (gather, compiles) in others.items():
            rivals[name] = Rival(
                f"{here}.rivals.step_torch",
                "build_step",
                **settings,
                gather=gather,
                compiles=compiles,
            )
    everyone = {"ceiling": ceiling, **rivals}
    try:
        numbers = take_turns(everyone, options.rounds)
    finally:
        for rival in everyone.values():
            rival.close()
    properties = rivals[OURS].properties | ceiling.properties
    seconds = {name: statistics.median(numbers[name]) for name in rivals}
    lines = list(table(seconds, properties, statistics.median(numbers["ceiling"]), batch_size))
    if options.parts:
        share = 1 - seconds[BARE] / seconds[OURS]
        lines.append(f"{', '.join(PARTS)} together: {share:.1%} of a step")
    return {name: seconds[name] for name in seconds if name == OURS or name not in LESSER}, lines


def table(
    seconds: dict[str, float], properties: dict[str, Any], ceiling: float, batch_size: int
) -> Iterator[str]:
    """Yields a line for each program.

    Args:
      seconds: of a step of each, the median.
      properties: `flops` of the matrix products of a step, `peak_flops` of the devices (or None),
        their `device`, `platform` and number `devices`.
      ceiling: FLOP/s of the fastest of these products alone, on one device.
      batch_size: sequences in a step.
    """
    ceiling *= properties["devices"]
    yield (
        f"{properties['devices']} x {properties['device']} ({properties['platform']}),"
        f" {properties['flops'] / 1e9:.1f} GFLOP a step, fastest matrix product"
        f" {ceiling / 1e9:,.0f} GFLOP/s"
    )
    header = ("", "ms a step", "tokens/s", "x ours", "GFLOP/s", "of that", "MFU")
    yield _COLUMNS.format(*header)
    for name, duration in seconds.items():
        speed = properties["flops"] / duration
        peak = properties["peak_flops"]
        yield _COLUMNS.format(
            name,
            f"{duration * 1e3:.1f}",
            f"{batch_size * SEQUENCE_LENGTH / duration:,.0f}",
            f"{duration / seconds[OURS]:.2f}",
            f"{speed / 1e9:,.0f}",
            f"{speed / ceiling:.0%}",
            f"{speed / peak:.1%}" if peak else "",
        ).rstrip()
