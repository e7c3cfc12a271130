"""Looks at the machine, and at a run before it starts: what will not work, and how to fix it.

    python -m bert_jax doctor
    python -m bert_jax doctor --config=configs/tiny.py --workdir=DIR
    python -m bert_jax doctor --config=configs/ner.py:wikigold --config.init_from=BERT \\
        --config.data.train=train.conll --config.data.eval=dev.conll
    python -m bert_jax doctor --workdir=DIR

Without a configuration: versions, devices, memory, disk. With --config, as for train, or with the
--workdir of a run: also the data, the recipe, and what the run needs of memory, disk and time. A
text that is not prepared is sampled; labelled files are read completely. Nothing is written but a
temporary folder and compiled programs. The exit code is 1 if there is a problem.
"""

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from bert_jax.config.run import RunConfig
from bert_jax.tools.cli.flags import configuration, run_flags
from bert_jax.tools.cli.flags.command_line import Parser, flag_value
from bert_jax.tools.doctor import machine
from bert_jax.tools.doctor.finding import LEVELS, Finding

_WIDTH = max(map(len, LEVELS))


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax doctor", __doc__)
    parser.flag("workdir", "", "Folder of a run, or where it would be; it is not changed.")
    parser.flag("steps", 3, "Steps to measure for each shape of a batch.", least=1)
    parser.switch("time", "Compile, but do not execute steps: no estimate of the time.", True)
    parser.switch("json", "Print one JSON object instead of lines.")
    run_flags.add_cache(parser)
    # The blocks that end remove the temporary folder.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    config, workdir = None, flag_value(argv, "workdir")
    if flag_value(argv, "config") or _sets_fields(argv) or workdir:
        config, flags = configuration.parse_config(parser, argv, workdir_is_enough=True)
    else:
        flags = parser.parse(argv)
    found = report(findings(config, flags), flags.json)
    sys.stdout.flush()
    if any(finding.level == "problem" for _, finding in found):
        sys.exit(1)


def _sets_fields(argv: Sequence[str]) -> bool:
    return any(word.lstrip("-").startswith("config.") for word in argv)


def findings(config: RunConfig | None, flags: argparse.Namespace) -> Iterator[tuple[str, Finding]]:
    """Yields (group, finding) of the machine and, with a configuration, of its run."""
    yield from (("machine", finding) for finding in machine.before_jax(flags.workdir))
    from bert_jax.devices import allocator

    allocator.keep_freed_memory()
    run_flags.use_cache(flags)
    yield from (("machine", finding) for finding in machine.devices())
    if config is not None:
        from bert_jax.tools.doctor.examine import examine

        steps = flags.steps if flags.time else 0
        yield from examine(config, flags.workdir, steps)


def report(found: Iterator[tuple[str, Finding]], as_json: bool) -> list[tuple[str, Finding]]:
    """Prints findings as they come, and their number at the end; returns them."""
    kept, group = [], ""
    for name, finding in found:
        kept.append((name, finding))
        if as_json:
            continue
        if name != group:
            group = name
            print(name, flush=True)
        print(f"  {finding.level:<{_WIDTH}}  {finding.what}", flush=True)
        if finding.fix:
            print(f"  {'':<{_WIDTH}}  -> {finding.fix}", flush=True)
    counts = Counter(finding.level for _, finding in kept)
    if as_json:
        rows = [{"group": g, "level": f.level, "what": f.what, "fix": f.fix} for g, f in kept]
        print(json.dumps({"findings": rows, "counts": counts}, indent=2, ensure_ascii=False))
    else:
        print(summary(counts))
    return kept


def summary(counts: Counter[str]) -> str:
    """Returns the last line."""
    numbers = ", ".join(
        f"{counts[level]:,} {level if level == 'ok' or counts[level] == 1 else level + 's'}"
        for level in reversed(LEVELS)
    )
    return f"{numbers}{': this will not work' if counts['problem'] else ''}"
