"""Times sentence vectors or predictions of texts, and those of other programs with equal weights.

    bert_jax benchmark inference --model=MODEL --input=FILE --rounds=3

A classifier's outputs are the probabilities of its classes; those of any other BERT are the mean of
the last hidden states of a text. All have the same weights and texts, tokenization included. The
others are in their best form: transformers with its fast tokenizer, SDPA, and texts sorted by
length in batches of 1,024 tokens, in float32 and with autocast to bfloat16, with --compile also
through torch.compile; onnxruntime with the same batches; and sentence-transformers as people call
it. A turn is all texts in one call, then 100 of them one at a time; the first, which compiles, is
shown separately.
"""

import itertools
import json
import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.texts import Text
from bert_jax.devices.allocator import keep_freed_memory
from bert_jax.files.errors import UserError
from bert_jax.formats import format_of
from bert_jax.formats.sentence_transformers import read_sentence_vectors
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.loading import load_model
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.tools.benchmark.side_by_side import (
    OURS,
    THEIRS,
    Program,
    can_compare,
    describe_machine,
    installed,
    run_command,
    table,
    take_turns,
    time_texts,
)

# Packages of the other programs, and what onnxruntime needs to get a model from torch.
RIVALS = ("onnxruntime", "sentence_transformers")
ONNX = ("onnxruntime", "onnx", "onnxscript")
CLASSIFIER = "BertForSequenceClassification"
# Longer texts are cut, so that all fit into 512 tokens.
_MAX_WORDS = 200


def run(folder: str, path: str, lines: int, rounds: int, compiles: bool = False) -> None:
    """Prints the table.

    Args:
      folder: a BERT: a workdir of imported weights, of a pre-training or of a classifier, or a
        folder of transformers.
      path: file with a text a line; blank lines are left out.
      lines: maximum number of texts.
      rounds: turns of each program after the first.
      compiles: whether torch.compile is measured, too.

    Raises:
      UserError: the weights cannot be exported, or there are no texts.
    """
    texts = read_texts(path, lines)
    with tempfile.TemporaryDirectory() as scratch:
        exported = folder
        if format_of(folder) != "huggingface":
            exported = os.path.join(scratch, "exported")
            run_command("convert to_hf", [folder, exported, "--nocomparison"])
        config = json.loads(pathlib.Path(exported, "config.json").read_text())
        classifies = config["architectures"] == [CLASSIFIER]
        longest = read_sentence_vectors(folder).max_length or config["max_position_embeddings"]
        print(describe_machine(*RIVALS))
        what = "probabilities of classes" if classifies else "means of the last hidden states"
        print(f"{len(texts):,} texts of {path}, at most {_MAX_WORDS} words each: {what}")
        shared = {"texts": texts, "max_length": longest}
        ours = {"model": folder, "classifies": classifies, **shared}
        programs: dict[str, Program] = {
            f"{OURS} {dtype}": (__name__, {**ours, "dtype": dtype})
            for dtype in ("float32", "bfloat16_products")
        }
        if can_compare():
            programs |= _rivals(exported, classifies, shared, compiles)
        print("\n".join(rows(take_turns(programs, rounds + 1))))


def _rivals(
    model: str, classifies: bool, shared: dict[str, Any], compiles: bool
) -> dict[str, Program]:
    """Returns the other programs that are installed; says which are not."""
    rivals, settings = f"{__package__}.rivals", {"model": model, **shared}
    kinds = {"classifies": classifies}
    programs: dict[str, Program] = {}
    for is_compiled in (False, True) if compiles else (False,):
        for dtype in ("float32", "bfloat16"):
            name = f"{THEIRS}{' compiled' if is_compiled else ''} {dtype}"
            more = {"dtype": dtype, "compiles": is_compiled}
            programs[name] = f"{rivals}.inference_torch", settings | kinds | more
    if not (missing := set(ONNX) - set(installed(*ONNX))):
        programs["onnxruntime float32"] = f"{rivals}.inference_onnx", settings | kinds
    else:
        print(f"onnxruntime is left out: pip install {' '.join(sorted(missing))}")
    if not classifies and installed("sentence_transformers"):
        name = "sentence-transformers float32"
        programs[name] = f"{rivals}.inference_sentence", settings
    elif not classifies:
        print("sentence-transformers is left out: pip install sentence-transformers")
    return programs


def read_texts(path: str, count: int) -> list[str]:
    """Returns the first texts of a file, cut to 200 words; blank lines are none."""
    with open(path, encoding="utf-8") as file:
        texts = (" ".join(line.split()[:_MAX_WORDS]) for line in file if line.strip())
        found = list(itertools.islice(texts, count))
    if not found:
        raise UserError(f"--input={path} has no texts.")
    return found


def build(
    model: str, texts: list[str], classifies: bool, max_length: int, dtype: str
) -> Callable[[], dict[str, Any]]:
    """Measures the seconds from all texts to their outputs; see `side_by_side.time_texts`.

    Args:
      model: folder of the model.
      texts: texts to compute.
      classifies: whether outputs are probabilities of classes, instead of sentence vectors.
      max_length: tokens of a text, at most; that of the folder.
      dtype: value of config.dtype.
    """
    del max_length  # read from the folder
    keep_freed_memory()
    predictor = Predictor(load_model(model, lambda config: config.replace({"dtype": dtype})))
    compute = (_classes if classifies else _vectors)(predictor)
    return lambda: time_texts(compute, texts)


def _vectors(predictor: Predictor) -> Callable[[list[str]], Any]:
    choice = Choice(level="sentence", pooling="mean", normalize=False, long="truncate", exact=True)
    extractor = FeatureExtractor(predictor, choice)

    def compute(texts: list[str]) -> list[np.ndarray]:
        found = extractor.run(extractor.row(Text(text)) for text in texts)
        return [features["embeddings"] for _, features in found]

    return compute


def _classes(predictor: Predictor) -> Callable[[list[str]], Any]:
    task = TaskPredictor(predictor)

    def compute(texts: list[str]) -> list[list[float]]:
        examples = [TextExample("", str(i), text) for i, text in enumerate(texts)]
        windows = task.predict(examples)
        return [list(p["probabilities"].values()) for window in windows for p in window]

    return compute


def rows(answers: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yields a line for each program; the first one is what the others are compared with.

    Args:
      answers: what `time_texts` returned in each turn of each program.
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
        latencies = [1000 * seconds for turn in turns[1:] for seconds in turn["latencies"]]
        p50, p99 = np.percentile(latencies, [50, 99])
        norms = np.linalg.norm(outputs, axis=1) * np.linalg.norm(expected, axis=1)
        cosine = ((outputs * expected).sum(axis=1) / norms).min()
        cells[name] = (
            f"{len(outputs) / medians[name]:,.1f}",
            f"{medians[ours] / medians[name]:.2f}",
            f"{turns[0]['seconds']:.1f}",
            f"{p50:.1f}",
            f"{p99:.1f}",
            "" if name == ours else f"{cosine:.6f}",
            "" if name == ours else f"{np.abs(outputs - expected).max():.1e}",
        )
    header = (
        "texts/s",
        "x ours",
        "first s",
        "p50 ms",
        "p99 ms",
        "least cosine",
        "largest difference",
    )
    yield from table(header, cells)
