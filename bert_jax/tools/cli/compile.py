"""Compiles the programs of a run, also for hardware you do not have: memory, FLOPs, links, fit.

    bert_jax compile --config=configs/base.py
    bert_jax compile --config=configs/large.py --topology=v5e:4x4
    bert_jax compile --config=configs/large.py --topology=v5e:4x4 --largest_batch
    bert_jax compile --config=configs/large.py --topology=h100:8

All numbers are those of one device. A corpus is not read, and nothing is executed or written.
Without --topology the programs are compiled for the devices of this machine. The bound is the
shortest time of a program by the peak rates of the device, and the largest MFU. The exit code is 1
if a program does not fit into the memory. A slice of TPUs needs the extra tpu, NVIDIA GPUs (a100,
h100, h200, b200) the extra nvidia.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from bert_jax.config.run import RunConfig
from bert_jax.tools.cli.command_line import CONFIG, Flag, read_config

FLAGS = (
    Flag("workdir", "", "Folder of a run, whose configuration is compiled."),
    Flag("topology", "", "Devices to compile for: v5e:4x4, h100:8."),
    Flag("largest_batch", False, "Search the largest microbatch of each phase that fits."),
    Flag("json", False, "Print one JSON object instead of lines."),
    *CONFIG,
)


def run(flags: argparse.Namespace) -> None:
    config = read_config(flags)
    if flags.topology:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # no device of this machine is needed
    from bert_jax.tools.compile import describe, target

    devices, all_fit, found = target.find(flags.topology), True, []
    for compiled in _compile(config, devices, flags):
        all_fit = all_fit and compiled.fits(devices.room)
        found.append(describe.as_json(compiled, devices))
        if not flags.json:
            print("\n".join(describe.lines(compiled, devices)), flush=True)
    if flags.json:
        print(json.dumps({"programs": found}, indent=2), flush=True)
    if not all_fit:
        sys.exit(1)


def _compile(config: RunConfig, target: Any, flags: argparse.Namespace) -> Iterator[Any]:
    """Yields what was compiled, as soon as it is."""
    from bert_jax.tools.compile.plan import plan, programs
    from bert_jax.tools.compile.program import compile_program, largest_microbatch
    from bert_jax.training.run import make_checked_mesh

    def show(line: str) -> None:
        if not flags.json:
            print(line, flush=True)

    run = plan(config, make_checked_mesh(config, target.devices))
    mesh = ", ".join(f"{axis}={size}" for axis, size in run.mesh.shape.items())
    show(f"{len(target.devices)} x {target.devices[0].device_kind} ({mesh}); {config.dtype}")
    if not flags.largest_batch:
        yield from map(compile_program, programs(run))
        return
    for phase in (phase for phase in run.phases if phase.share):
        show(f"\nphase of {phase.sequence_length} tokens, batches of {phase.batch_size:,} rows")
        yield largest_microbatch(run, phase, target.room, show)
