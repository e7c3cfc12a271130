"""Looks at the machine, and at a run before it starts: what will not work, and how to fix it.

    bert_jax doctor
    bert_jax doctor --config=configs/tiny.py --workdir=DIR
    bert_jax doctor --config=configs/ner.py:wikigold --config.init_from=BERT \\
        --config.data.train=train.conll --config.data.eval=dev.conll
    bert_jax doctor --workdir=DIR
    bert_jax doctor --config=configs/large.py --topology=v5e:4x4 --price=1.2

Without a configuration: versions, devices, memory, disk. With --config, as for train, or with the
--workdir of a run: also the data, the recipe, and what the run needs of memory, disk and time. A
text that is not prepared is sampled; labelled files are read completely. Nothing is written but a
temporary folder and compiled programs. The exit code is 1 if there is a problem.

With --topology the programs are compiled for hardware that this machine lacks: their memory, FLOPs,
collectives and least time, and the hours and price of the whole run. A corpus is not read, and
nothing is executed. If a program does not fit, settings with which it does are searched. A slice of
TPUs (v5e:4x4, v5e-16, v4-32) needs the extra tpu, NVIDIA GPUs (a100, h100, h200, b200) the extra
nvidia.
"""

import argparse
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator

from bert_jax.tools.cli.command_line import RUN, TRACKERS, Flag, prepare_process, read_config
from bert_jax.tools.doctor import machine
from bert_jax.tools.doctor.finding import LEVELS, Finding, ok

FLAGS = (
    Flag("workdir", "", "Folder of a run, or where it would be; it is not changed."),
    Flag("steps", 3, "Steps to measure for each shape of a batch.", minimum=1),
    Flag("time", True, "Compile, but do not execute steps: no estimate of the time."),
    Flag("data", True, "Look at the machine and the settings only."),
    Flag("details", False, "Print what each program computes and moves, as with --topology."),
    Flag("topology", "", "Hardware that this machine lacks: v5e:4x4, v5e-16, h100:8."),
    Flag("advice", True, "Search settings that fit that hardware (--noadvice: not)."),
    Flag("price", 0.0, "USD of a chip hour of that hardware.", minimum=0),
    Flag("json", False, "Print one JSON object instead of lines."),
    *(flag for flag in (*RUN, TRACKERS) if flag.name != "workdir"),  # of `train`
)


def run(flags: argparse.Namespace) -> None:
    # The blocks that end remove the temporary folder.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    found = report(findings(flags), flags.json)
    sys.stdout.flush()
    if any(finding.level == "problem" for _, finding in found):
        sys.exit(1)


def findings(flags: argparse.Namespace) -> Iterator[tuple[str, Finding]]:
    """Yields (group, finding) of the machine and, with a configuration, of its run."""
    has_run = flags.config or flags.overrides or flags.workdir
    config = read_config(flags) if has_run else None
    if flags.topology:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # no device of this machine is needed
        from bert_jax.tools.doctor.examine import examine_elsewhere
        from bert_jax.tools.doctor.target import find_target

        target = find_target(flags.topology)
        yield "machine", ok(f"Devices: {target.meaning}.")
        if config is not None:
            options = {"compiles": flags.data, "advises": flags.advice, "price": flags.price}
            yield from examine_elsewhere(config, flags.workdir, target, **options)
        return
    yield from (("machine", finding) for finding in machine.before_jax(flags.workdir))
    prepare_process(flags.compilation_cache)
    yield from (("machine", finding) for finding in machine.devices())
    if config is not None:
        from bert_jax.tools.doctor.examine import examine

        steps = flags.steps if flags.time else 0
        yield from examine(config, flags.workdir, steps, flags.data, flags.details)


def report(found: Iterator[tuple[str, Finding]], as_json: bool) -> list[tuple[str, Finding]]:
    """Prints findings as they come, and their number at the end; returns them."""
    kept, last, width = [], "", max(map(len, LEVELS))
    for group, finding in found:
        kept.append((group, finding))
        if as_json:
            continue
        if group != last:
            print(group, flush=True)
        last = group
        print(f"  {finding.level:<{width}}  {finding.what}", flush=True)
        for line in finding.lines:
            print(f"  {'':<{width}}    {line}", flush=True)
        if finding.fix:
            print(f"  {'':<{width}}  -> {finding.fix}", flush=True)
    counts = Counter(finding.level for _, finding in kept)
    if as_json:
        rows = [
            {"group": group, "level": f.level, "what": f.what, "fix": f.fix}
            | ({"values": f.values} if f.values else {})
            for group, f in kept
        ]
        print(json.dumps({"findings": rows, "counts": counts}, indent=2, ensure_ascii=False))
        return kept
    numbers = ", ".join(
        f"{counts[level]:,} {level if level == 'ok' or counts[level] == 1 else level + 's'}"
        for level in reversed(LEVELS)
    )
    print(f"{numbers}{': this will not work' if counts['problem'] else ''}")
    return kept
