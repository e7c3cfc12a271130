"""Times sentence vectors or predictions of texts, and transformers' on the same texts and weights.

    python -m bert_jax benchmark inference --model=MODEL --input=FILE --rounds=3

A classifier's outputs are the probabilities of its classes; those of any other BERT are the mean of
the last hidden states of a text. transformers gets the exported weights, its own fast tokenizer,
SDPA, and texts sorted by length in batches of 4,096 tokens, in float32 and in bfloat16. A turn is
the way from texts to outputs, tokenization included; the first, which compiles, is shown
separately.
"""

import itertools
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_jax.config import store
from bert_jax.config.run import RunConfig
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.texts import Text
from bert_jax.devices.allocator import keep_freed_memory
from bert_jax.files.errors import UserError
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.loading import load_workdir
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.tools.benchmark.side_by_side import (
    OURS,
    THEIRS,
    Program,
    can_compare,
    describe_machine,
    run_command,
    table,
    take_turns,
)

CLASSIFIER = "BertForSequenceClassification"
# Longer texts are cut, so that all fit into 512 tokens.
_MAX_WORDS = 200


def run(workdir: str, path: str, lines: int, rounds: int) -> None:
    """Prints the table.

    Args:
      workdir: workdir of a BERT: imported weights, a pre-training or a classifier.
      path: file with a text a line; blank lines are left out.
      lines: maximum number of texts.
      rounds: turns of each program after the first.

    Raises:
      UserError: the weights cannot be exported, or there are no texts.
    """
    texts = read_texts(path, lines)
    with tempfile.TemporaryDirectory() as folder:
        exported = os.path.join(folder, "exported")
        run_command("convert to_hf", [workdir, exported, "--nocomparison"])
        config = json.loads(pathlib.Path(exported, "config.json").read_text())
        classifies = config["architectures"] == [CLASSIFIER]
        print(describe_machine())
        what = "probabilities of classes" if classifies else "means of the last hidden states"
        print(f"{len(texts):,} texts of {path}, at most {_MAX_WORDS} words each: {what}")
        sides = [
            (OURS, __name__, workdir, "float32"),
            (OURS, __name__, workdir, "bfloat16_products"),
        ]
        if can_compare():
            torch = f"{__package__}.rivals.inference_torch"
            sides += [(THEIRS, torch, exported, dtype) for dtype in ("float32", "bfloat16")]
        programs: dict[str, Program] = {}
        for name, module, model, dtype in sides:
            settings = {"model": model, "texts": texts, "classifies": classifies, "dtype": dtype}
            programs[f"{name} {dtype}"] = module, settings
        print("\n".join(rows(take_turns(programs, rounds + 1))))


def read_texts(path: str, count: int) -> list[str]:
    """Returns the first texts of a file, cut to 200 words; blank lines are none."""
    with open(path, encoding="utf-8") as file:
        texts = (" ".join(line.split()[:_MAX_WORDS]) for line in file if line.strip())
        found = list(itertools.islice(texts, count))
    if not found:
        raise UserError(f"--input={path} has no texts.")
    return found


def build(
    model: str, texts: list[str], classifies: bool, dtype: str
) -> Callable[[], dict[str, Any]]:
    """Measures the seconds from all texts to their outputs, float32[texts, ...].

    Args:
      model: workdir of the model.
      texts: texts to compute.
      classifies: whether outputs are probabilities of classes, instead of sentence vectors.
      dtype: value of config.dtype.
    """
    keep_freed_memory()
    config = store.load(model).replace({"dtype": dtype})
    compute = (_classes if classifies else _vectors)(config, model)

    def measure() -> dict[str, Any]:
        start = time.perf_counter()
        values = compute(texts)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "outputs": np.array(values, np.float32)}

    return measure


def _vectors(config: RunConfig, workdir: str) -> Callable[[list[str]], Any]:
    predictor = Predictor(load_workdir(config, workdir))
    extractor = FeatureExtractor(predictor, Choice(level="sentence"))

    def compute(texts: list[str]) -> list[np.ndarray]:
        found = extractor.run(extractor.row(Text(text)) for text in texts)
        return [features["embeddings"] for _, features in found]

    return compute


def _classes(config: RunConfig, workdir: str) -> Callable[[list[str]], Any]:
    predictor = TaskPredictor(Predictor(load_workdir(config, workdir)))

    def compute(texts: list[str]) -> list[list[float]]:
        examples = [TextExample("", str(i), text) for i, text in enumerate(texts)]
        windows = predictor.predict(examples)
        return [list(p["probabilities"].values()) for window in windows for p in window]

    return compute


def rows(answers: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yields a line for each program; the first one is what the others are compared with.

    Args:
      answers: `seconds` and `outputs`, float32[texts, ...], of each turn of each program.
    """
    medians = {
        name: statistics.median(turn["seconds"] for turn in turns[1:])
        for name, turns in answers.items()
    }
    ours = next(iter(answers))
    expected = answers[ours][-1]["outputs"]
    cells = {}
    for name, turns in answers.items():
        outputs = turns[-1]["outputs"]
        cells[name] = (
            f"{len(outputs) / medians[name]:,.1f}",
            f"{medians[ours] / medians[name]:.2f}",
            f"{turns[0]['seconds']:.1f}",
            "" if name == ours else f"{np.abs(outputs - expected).max():.1e}",
        )
    yield from table(("texts/s", "x ours", "first s", "largest difference"), cells)
