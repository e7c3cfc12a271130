"""The classes of the race, and what a log says about where its numbers are from.

A log is a file of JSON lines: what train.py printed, and for each seed a result, such as

    {"class": "cpu-45", "date": "2026-11-28T10:15:00+00:00", "jax": "0.10.2",
     "machine": "AMD EPYC 9B14, 2 cores", "train.py": "5f3a...", "evaluate.py": "c0de...",
     "prepare.py": "0b5e...", "data": "ed85...", "wall": 61.2, "seed": 0, "steps": 560,
     "seconds": 44.9, "compiled": 9.1, "part": "report", "length": 128, "masked_tokens": 22812,
     "bits_per_character": 1.52, "accuracy": 0.31}

`train.py` to `data` are SHA-256 sums, `wall` the seconds of the whole process.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Sequence
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
