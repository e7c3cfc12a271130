"""The classes of the race, the rules for train.py, and what a log says about its numbers.

A log is a file of JSON lines: what train.py printed, and for each seed a result, such as

    {"class": "cpu-45", "date": "2026-11-28T10:15:00+00:00", "jax": "0.10.2",
     "machine": "AMD EPYC with AVX-512, 2 cores", "train.py": "5f3a...",
     "evaluate.py": "c0de...", "prepare.py": "0b5e...", "data": "ed85...", "wall": 61.2,
     "seed": 0, "steps": 560, "seconds": 44.9, "compiled": 9.1, "part": "report",
     "length": 128, "masked_tokens": 22812, "bits_per_character": 1.52, "accuracy": 0.31}

`train.py` to `data` are SHA-256 sums, `wall` the seconds of the whole process.
"""

import ast
import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bert_jax.files.errors import UserError
from race import prepare

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDS = ROOT / "race" / "records"
FIXED = ("evaluate.py", "prepare.py")
# Seeds of an entry: 0, 1, ..., at least so many.
SEEDS = 3
# A record beats the last one if Welch's two-sided test of their scores has a p-value below this.
P_VALUE = 0.01
# Seconds that a process may take beside its budget: imports, data, evaluation.
BESIDE = 60.0

Result = dict[str, Any]
# What train.py prints at its end, and what the log has in addition, also from the evaluator.
PRINTED = {"seed", "steps", "seconds"}
FIELDS = PRINTED | {"part", "bits_per_character"}
FIELDS |= {"class", "date", "machine", "train.py", *FIXED, "data", "wall"}


@dataclasses.dataclass(frozen=True)
class Class:
    """What entries of a class have in common.

    Attributes:
      seconds: the budget of a run, compilation included.
      platform: jax's name of the hardware, cpu or cuda.
      cores: CPU cores; 0: any number.
      device: part of the name of the accelerator; "": none.
    """

    seconds: float
    platform: str
    cores: int = 0
    device: str = ""


CLASSES = {
    "cpu-290": Class(290.0, "cpu", cores=2),
    "cpu-45": Class(45.0, "cpu", cores=2),
    "softmax-290": Class(290.0, "cpu", cores=2),  # as cpu-290; race/program.md restricts the head
    "h100-290": Class(290.0, "cuda", device="H100"),
}


def sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fixed_sums() -> dict[str, str]:
    """Returns the sums of what nobody edits.

    Raises:
      UserError: the data are not prepared.
    """
    try:
        data = prepare.fingerprint()
    except FileNotFoundError:
        raise UserError(
            "race/data/ is missing or not complete: run python -m race.prepare."
        ) from None
    return {name: sha256(ROOT / "race" / name) for name in FIXED} | {"data": data}


def read_results(folder: pathlib.Path) -> list[Result]:
    """Returns the results in a folder's log, in their order; [] if there is no log.

    Raises:
      UserError: a line is no JSON object.
    """
    path = folder / "log.jsonl"
    results = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UserError(f"{path}:{number} is no JSON object: run python -m race.run again.")
        if "bits_per_character" in found:
            results.append(found)
    return results


def scores(results: Sequence[Result]) -> list[float]:
    return [result["bits_per_character"] for result in results]


# ------------------------------------------------------------------------------------- train.py

MAX_LINES, MAX_LENGTH = 600, 100
# Modules that a train.py may import, with what is in them.
IMPORTS = (
    *("jax", "numpy", "optax", "race.evaluate"),
    *("argparse", "collections", "contextlib", "dataclasses", "functools", "itertools", "json"),
    *("math", "string", "threading", "time", "typing"),
)
# What it may read.
FILES = ("train.npz", "vocab.txt")
# Names with which a program reads files, runs code, or imports something else.
_READS = re.compile(r"(open|load\w*|fromfile|fromregex|genfromtxt|memmap|read_\w+|r?glob|iterdir)$")
_RUNS = {"eval", "exec", "compile", "__import__", "getattr", "globals", "setattr", "vars"}


def refuse(folder: pathlib.Path, problems: Iterable[str]) -> None:
    """Raises UserError if there are problems."""
    if text := "; ".join(problems):
        raise UserError(f"{folder} is not valid: {text}.")


def check_file(path: pathlib.Path) -> Iterator[str]:
    """Yields what is wrong with a train.py, without running it."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        yield f"train.py has {len(lines)} lines, and may have {MAX_LINES}"
    if (longest := max(map(len, lines), default=0)) > MAX_LENGTH:
        yield f"train.py has a line of {longest} characters, and may have {MAX_LENGTH}"
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        yield f"train.py:{error.lineno} is not valid Python: {error.msg}"
        return
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        for name in _imports(node):
            if not any(f"{name}.".startswith(f"{allowed}.") for allowed in IMPORTS):
                yield f"train.py imports {name}, and may import {', '.join(IMPORTS)}"
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if ast.unparse(node).startswith("evaluate."):
                yield f"train.py:{node.lineno} changes {ast.unparse(node)}"
        if isinstance(node, ast.Constant) and "held_out" in str(node.value):
            yield f"train.py:{node.lineno} names the held-out text, which evaluate.py alone reads"
        if isinstance(node, ast.Call):
            yield from _check_call(node, own)


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _check_call(node: ast.Call, own: set[str]) -> Iterator[str]:
    """Yields a problem if a call reads other files, or runs code that is not in the file.

    Args:
      node: the call.
      own: functions that train.py defines.
    """
    text = ast.unparse(node)
    if isinstance(node.func, ast.Name):
        name = node.func.id
        if name in own:
            return
        if name in _RUNS:
            yield f"train.py:{node.lineno} calls {name}, which may run any code"
    elif isinstance(node.func, ast.Attribute):
        name = node.func.attr
    else:
        return
    if _READS.match(name) and not any(file in text for file in FILES):
        yield f"train.py:{node.lineno} calls {name}, and may read {' and '.join(FILES)} only"
