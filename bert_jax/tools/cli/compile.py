"""Compiles the programs of a run, also for hardware you do not have: memory, FLOPs, links, fit.

    bert_jax compile --config=configs/base.py
    bert_jax compile --config=configs/large.py --topology=v5e:4x4
    bert_jax compile --config=configs/large.py --topology=v5e:4x4 --largest_batch
    bert_jax compile --config=configs/large.py --topology=h100:8 --price=2.5

All numbers are those of one device. A corpus is not read, and nothing is executed or written.
Without --topology the programs are compiled for the devices of this machine. The bound is the
shortest time of a program by the peak rates of the device, and the largest MFU; the whole run's
hours and price are those of its steps at the bound. If a program does not fit into the memory,
settings with which it does are searched and printed as flags, and the exit code is 1. A slice of
TPUs (v5e:4x4, v5e-16, v4-32) needs the extra tpu, NVIDIA GPUs (a100, h100, h200, b200) the extra
nvidia.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.config.run import RunConfig
from bert_jax.tools.cli.command_line import CONFIG, Flag, read_config

if TYPE_CHECKING:
    from bert_jax.tools.compile.program import Compiled
    from bert_jax.tools.compile.target import Target
    from bert_jax.training.run import Run

FLAGS = (
    Flag("workdir", "", "Folder of a run, whose configuration is compiled."),
    Flag("topology", "", "Devices to compile for: v5e:4x4, v5e-16, h100:8."),
    Flag("largest_batch", False, "Search the largest microbatch of each phase that fits."),
    Flag("advice", True, "Search settings that fit if a program does not (--noadvice: not)."),
    Flag("price", 0.0, "USD per chip hour, for the price of the whole run.", minimum=0),
    Flag("json", False, "Print one JSON object instead of lines."),
    *CONFIG,
)


def run(flags: argparse.Namespace) -> None:
    config = read_config(flags)
    if flags.topology:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # no device of this machine is needed
    from bert_jax.tools.compile import target

    def show(*lines: str) -> None:
        if not flags.json:
            print(*lines, sep="\n", flush=True)

    devices = target.find(flags.topology)
    with devices.lowering():
        result, all_fit = _compile(config, devices, flags, show)
    if flags.json:
        print(json.dumps(result, indent=2), flush=True)
    if not all_fit:
        sys.exit(1)


def _compile(
    config: RunConfig, devices: "Target", flags: argparse.Namespace, show: Callable[..., None]
) -> tuple[dict[str, Any], bool]:
    """Compiles and shows the programs; returns them for JSON, and whether all fit."""
    from bert_jax.tools.compile import describe
    from bert_jax.tools.compile.advice import advise

    run = _plan(config, devices, flags.topology, show)
    compiled: list[Compiled] = []
    for program in _largest(run, devices, show) if flags.largest_batch else _all(run):
        compiled.append(program)
        show(*describe.lines(program, devices))
    result: dict[str, Any] = {"programs": [describe.as_json(c, devices) for c in compiled]}
    result["run"] = _cost(run, devices, compiled, flags.price, show)
    refused = [program for program in compiled if not program.fits(devices.room)]
    if refused and flags.advice:
        show("\nsettings with which it fits are searched (--noadvice: not)")
        settings = []
        for setting in advise(run, devices, refused, show):
            settings.append(setting)
            show(*describe.setting_lines(setting, devices))
        if not settings:
            show("none was found: use more devices, or fewer tokens in a row")
        result["settings"] = [describe.setting_as_json(s, devices) for s in settings]
    return result, not refused


def _plan(config: RunConfig, target: "Target", name: str, show: Callable[..., None]) -> "Run":
    from bert_jax.tools.compile.plan import plan
    from bert_jax.training.run import make_checked_mesh

    run = plan(config, make_checked_mesh(config, target.devices))
    mesh = ", ".join(f"{axis}={size}" for axis, size in run.mesh.shape.items())
    if target.topology and target.topology.name != name:
        show(f"{name} is {target.topology.meaning}")
    show(f"{len(target.devices)} x {target.devices[0].device_kind} ({mesh}); {config.dtype}")
    return run


def _all(run: "Run") -> Iterator["Compiled"]:
    """Yields the programs of a run, as soon as each is compiled."""
    from bert_jax.tools.compile.plan import programs
    from bert_jax.tools.compile.program import compile_program

    yield from map(compile_program, programs(run))


def _largest(run: "Run", target: "Target", show: Callable[..., None]) -> Iterator["Compiled"]:
    """Yields the step of each phase with the largest microbatch that fits."""
    from bert_jax.tools.compile.program import largest_microbatch

    for phase in (phase for phase in run.phases if phase.share):
        show(f"\nphase of {phase.sequence_length} tokens, batches of {phase.batch_size:,} rows")
        yield largest_microbatch(run, phase, target.room, show)


def _cost(
    run: "Run",
    target: "Target",
    compiled: Sequence["Compiled"],
    price: float,
    show: Callable[..., None],
) -> dict[str, Any] | None:
    """Shows what the whole run costs at least, and returns it for JSON; None: it is not known."""
    from bert_jax.tools.compile import describe
    from bert_jax.tools.compile.cost import cost
    from bert_jax.tools.compile.plan import knows_steps

    if (found := cost(run, target, compiled)) is None:
        return None
    if not knows_steps(run):
        show(
            "\nwhole run    not known: config.epochs are steps only with the data; set config.steps"
        )
        return None
    show("", describe.cost_line(found, price))
    return describe.cost_as_json(found, price)
