"""Times sentence vectors or predictions of texts, and transformers' on the same texts and weights.

    python -m bert_jax benchmark inference --workdir=DIR --input=FILE --rounds=3

A classifier's outputs are the probabilities of its classes; those of any other BERT are the mean of
the last hidden states of a text. transformers gets the exported weights, its own fast tokenizer and
SDPA: texts sorted by length in batches of 4,096 tokens, in float32 and in bfloat16, and texts in
the order of the file in batches of 32. A repetition is the way from texts to outputs, tokenization
included; the first one, which compiles, is shown separately.
"""

import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.tools.benchmark.machine import describe_machine, has_transformers
from bert_jax.tools.benchmark.turns import Rival, take_turns

OURS = "bert_jax float32"
# Programs beside it: name -> (module of rivals/, settings of its `build`).
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    OURS: ("inference_jax", {"dtype": "float32"}),
    "bert_jax bfloat16_products": ("inference_jax", {"dtype": "bfloat16_products"}),
    "transformers float32": ("inference_torch", {"dtype": "float32", "sorts": True}),
    "transformers bfloat16": ("inference_torch", {"dtype": "bfloat16", "sorts": True}),
    "transformers float32, in order": ("inference_torch", {"dtype": "float32", "sorts": False}),
}
CLASSIFIER = "BertForSequenceClassification"
# Longer texts are cut, so that all fit into 512 tokens.
_MAX_WORDS = 200
_COLUMNS = "{:34} {:>12} {:>10} {:>8} {:>22}"


def run(workdir: str, path: str, lines: int, rounds: int) -> None:
    """Prints the table.

    Args:
      workdir: workdir of a BERT: imported weights, a pre-training or a classifier.
      path: file with a text a line; blank lines are left out.
      lines: maximum number of texts.
      rounds: repetitions of each program after the first.

    Raises:
      UserError: the weights cannot be exported, or there are no texts.
    """
    with tempfile.TemporaryDirectory() as folder:
        texts = _write_texts(path, lines, f"{folder}/texts.txt")
        exported = f"{folder}/exported"
        words = [sys.executable, "-m", "bert_jax", "convert", "to_hf", workdir, exported]
        done = subprocess.run([*words, "--nocomparison"], capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"convert to_hf {workdir} failed: {done.stderr.strip()}")
        config = json.loads(pathlib.Path(exported, "config.json").read_text())
        classifies = config["architectures"] == [CLASSIFIER]
        print(describe_machine())
        what = "probabilities of classes" if classifies else "means of the last hidden states"
        print(f"{texts:,} texts of {path}, at most {_MAX_WORDS} words each: {what}")
        for line in _measure(workdir, exported, folder, classifies, texts, rounds):
            print(line, flush=True)


def _write_texts(path: str, lines: int, output: str) -> int:
    """Writes the texts that are used; returns their number."""
    with open(path, encoding="utf-8") as file, open(output, "w", encoding="utf-8") as chosen:
        texts = (" ".join(line.split()[:_MAX_WORDS]) for line in file if line.strip())
        count = 0
        for text in itertools.islice(texts, lines):
            chosen.write(f"{text}\n")
            count += 1
    if not count:
        raise UserError(f"--input={path} has no texts.")
    return count


def _measure(
    workdir: str, exported: str, folder: str, classifies: bool, texts: int, rounds: int
) -> Iterator[str]:
    models = {"inference_jax": workdir, "inference_torch": exported}
    if not has_transformers():
        del models["inference_torch"]
    programs = {name: program for name, program in PROGRAMS.items() if program[0] in models}
    outputs = {name: os.path.join(folder, f"{i}.npy") for i, name in enumerate(programs)}
    common = {"texts": f"{folder}/texts.txt", "classifies": classifies}
    rivals = {
        name: Rival(
            f"{__package__}.rivals.{module}",
            "build",
            model=models[module],
            **settings,
            **common,
            output=outputs[name],
        )
        for name, (module, settings) in programs.items()
    }
    try:
        first = {name: rival.measure()[0] for name, rival in rivals.items()}
        turns = take_turns(rivals, rounds)
    finally:
        for rival in rivals.values():
            rival.close()
    seconds = {name: statistics.median(found) for name, found in turns.items()}
    arrays = {name: np.load(path) for name, path in outputs.items()}
    yield from table(seconds, first, arrays, texts)


def table(
    seconds: Mapping[str, float],
    first: Mapping[str, float],
    outputs: Mapping[str, np.ndarray],
    texts: int,
) -> Iterator[str]:
    """Yields a line for each program.

    Args:
      seconds: median seconds of a repetition; `first`: seconds of the first one.
      outputs: float32[texts, ...] of each program.
      texts: number of texts.
    """
    yield _COLUMNS.format("", "texts/s", "x ours", "first s", "largest difference")
    for name, duration in seconds.items():
        difference = np.abs(outputs[name] - outputs[OURS]).max()
        yield _COLUMNS.format(
            name,
            f"{texts / duration:,.1f}",
            f"{seconds[OURS] / duration:.2f}",
            f"{first[name]:.1f}",
            "" if name == OURS else f"{difference:.1e}",
        ).rstrip()
