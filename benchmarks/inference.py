"""Times sentence vectors or predictions of texts, and those of other programs with equal weights.

    python -m benchmarks.inference --model=MODEL --input=FILE --rounds=3

A classifier's outputs are the probabilities of its classes; those of any other BERT are the mean of
the last hidden states of a text. All have the same weights and texts, tokenization included. The
others are in their best form: the fast tokenizer, and texts sorted by length in batches of 1,024
and of 4,096 tokens, of which the faster size counts; transformers with SDPA, in float32, with
autocast to bfloat16 and with weights cast to it, with --compile also through torch.compile;
onnxruntime in float32 and int8; OpenVINO in float32, bfloat16 and int8; and sentence-transformers
as people call it. A turn is all texts in one call, then 100 of them one at a time; the first, which
compiles, is shown separately.

Cosines are those of a text's output and transformers' in float32. The last lines compare the
fastest programs of each class: those whose mean cosine is at least that of the class.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import command
from benchmarks.side_by_side import (
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
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.texts import Text
from bert_jax.devices import processor
from bert_jax.devices.allocator import keep_freed_memory
from bert_jax.files.errors import UserError
from bert_jax.formats import format_of
from bert_jax.formats.sentence_transformers import read_sentence_vectors
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.loading import load_model
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.tools.cli.command_line import MODEL, Flag

# Packages of the other programs, and what onnxruntime needs to get a model from torch.
RIVALS = ("onnxruntime", "openvino", "sentence_transformers")
ONNX = ("onnxruntime", "onnx", "onnxscript")
OPENVINO = ("openvino", "onnx", "onnxscript")
# Forms of transformers: setting of rivals/inference_torch.py -> name.
TORCH_DTYPES = {
    "float32": "float32",
    "autocast": "bfloat16 by autocast",
    "bfloat16": "bfloat16 weights",
}
CLASSIFIER = "BertForSequenceClassification"
# Minimum mean cosine of the classes in which programs are compared.
CLASSES = {"float32": 0.999999, "0.9999": 0.9999, "0.99": 0.99}
# Longer texts are cut, so that all fit into 512 tokens.
_MAX_WORDS = 200


FLAGS = (
    MODEL,
    Flag("input", "", "File with one text per line.", missing="a file with one text per line"),
    Flag("lines", 10_000, "Maximum number of texts.", minimum=1),
    Flag("rounds", 3, "Turns of each program after the first.", minimum=1),
    Flag("compile", False, "Also measure transformers' model through torch.compile."),
    Flag("programs", "", "How the names of those to measure begin, such as bert_jax,onnx."),
)


def run(flags: argparse.Namespace) -> None:
    """Prints the table.

    The model is a BERT: a workdir of imported weights, of a pre-training or of a classifier, or a
    folder of transformers.

    Raises:
      UserError: the weights cannot be exported, there are no texts, or no program has such a name.
    """
    texts, folder = read_texts(flags.input, flags.lines), flags.model
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
        print(f"{len(texts):,} texts of {flags.input}, at most {_MAX_WORDS} words each: {what}")
        shared = {"texts": texts, "max_length": longest}
        ours = {"model": folder, "classifies": classifies, **shared}
        programs: dict[str, Program] = {
            f"{OURS} {dtype}": (__name__, {**ours, "dtype": dtype})
            for dtype in ("float32", "bfloat16_products")
        }
        if can_compare():
            programs |= _rivals(exported, classifies, shared, flags.compile)
        names = [name.strip() for name in flags.programs.split(",") if name.strip()]
        answers = take_turns(_chosen(programs, names), flags.rounds + 1)
        print("\n".join([*rows(answers), *best_of_classes(answers)]))


def _chosen(programs: dict[str, Program], names: Collection[str]) -> dict[str, Program]:
    """Returns the first program and those whose names begin with one of `names`; without any, all.

    Raises:
      UserError: no program's name begins with one of `names`.
    """
    for name in names:
        if not any(program.startswith(name) for program in programs):
            raise UserError(f"--programs={name} begins none of {', '.join(programs)}.")
    first, beginnings = next(iter(programs)), tuple(names or ("",))
    return {n: p for n, p in programs.items() if n == first or n.startswith(beginnings)}


def _rivals(
    model: str, classifies: bool, shared: dict[str, Any], compiles: bool
) -> dict[str, Program]:
    """Returns the other programs that are installed; says which are not."""
    rivals, settings = f"{__package__}.rivals", {"model": model, **shared}
    kinds = {"classifies": classifies}
    programs: dict[str, Program] = {}
    for is_compiled in (False, True) if compiles else (False,):
        for dtype, title in TORCH_DTYPES.items():
            name = f"{THEIRS}{' compiled' if is_compiled else ''} {title}"
            more = {"dtype": dtype, "compiles": is_compiled}
            programs[name] = f"{rivals}.inference_torch", settings | kinds | more
    if _has("onnxruntime", ONNX):
        for int8 in (False, True):
            name = f"onnxruntime {'int8' if int8 else 'float32'}"
            programs[name] = f"{rivals}.inference_onnx", settings | kinds | {"int8": int8}
    if _has("OpenVINO", OPENVINO):
        for precision in _openvino_precisions():
            name = f"OpenVINO {precision}"
            more = {"precision": precision}
            programs[name] = f"{rivals}.inference_openvino", settings | kinds | more
    if not classifies and installed("sentence_transformers"):
        name = "sentence-transformers float32"
        programs[name] = f"{rivals}.inference_sentence", settings
    elif not classifies:
        print("sentence-transformers is left out: pip install sentence-transformers")
    return programs


def _has(name: str, packages: Sequence[str]) -> bool:
    """Returns whether packages are installed; says that `name` is left out if not."""
    if missing := sorted(set(packages) - set(installed(*packages))):
        print(f"{name} is left out: pip install {' '.join(missing)}")
    return not missing


def _openvino_precisions() -> Iterator[str]:
    """Yields the precisions that OpenVINO has here; says which it lacks."""
    yield "float32"
    if not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(processor.features()):
        yield "bfloat16"
    else:
        print("OpenVINO bfloat16 is left out: this processor has no instructions for it")
    if _has("OpenVINO int8", ("nncf",)):
        yield "int8"


def read_texts(path: str, count: int) -> list[str]:
    """Returns the first texts of a file, cut to 200 words; blank lines are skipped."""
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
      max_length: maximum number of tokens of a text; that of the folder.
      dtype: value of config.dtype.
    """
    del max_length  # read from the folder
    keep_freed_memory()
    predictor = Predictor(load_model(model, lambda config: config.replace({"dtype": dtype})))
    compute = (_classes if classifies else _vectors)(predictor)
    return lambda: time_texts(compute, texts)


def _vectors(predictor: Predictor) -> Callable[[list[str], int], Any]:
    choice = Choice(
        level="sentence", pooling="mean", normalize=False, long="truncate", keeps_dtype=True
    )
    extractor = FeatureExtractor(predictor, choice)

    def compute(texts: list[str], _: int) -> list[np.ndarray]:
        found = extractor.run(extractor.row(Text(text)) for text in texts)
        return [features["embeddings"] for _, features in found]

    return compute


def _classes(predictor: Predictor) -> Callable[[list[str], int], Any]:
    task = TaskPredictor(predictor)

    def compute(texts: list[str], _: int) -> list[list[float]]:
        examples = [TextExample("", str(i), text) for i, text in enumerate(texts)]
        windows = task.predict(examples)
        return [list(p["probabilities"].values()) for window in windows for p in window]

    return compute


def rows(answers: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yields a line for each program; the first one is what the others are compared with.

    Args:
      answers: what `time_texts` returned in each turn of each program.
    """
    ours = next(iter(answers))
    expected = _outputs(answers, _reference(answers))
    speeds, cells = {name: _fastest(turns) for name, turns in answers.items()}, {}
    for name, turns in answers.items():
        latencies = [1000 * seconds for turn in turns[1:] for seconds in turn["latencies"]]
        p50, p99 = np.percentile(latencies, [50, 99])
        outputs, (size, speed) = _outputs(answers, name), speeds[name]
        cosines = _cosines(outputs, expected)
        cells[name] = (
            f"{speed:,.1f}",
            f"{speed / speeds[ours][1]:.2f}",
            f"{size:,}" if size else "",
            f"{turns[0]['seconds'][size]:.1f}",
            f"{p50:.1f}",
            f"{p99:.1f}",
            f"{cosines.mean():.6f}",
            f"{cosines.min():.6f}",
            f"{np.abs(outputs - expected).max():.1e}",
        )
    header = (
        "texts/s",
        "x ours",
        "batch",
        "first s",
        "p50 ms",
        "p99 ms",
        "mean cosine",
        "least",
        "largest difference",
    )
    yield from table(header, cells)


def best_of_classes(answers: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yields a line for each class of cosine with programs of both sides."""
    expected = _outputs(answers, _reference(answers))
    means = {name: _cosines(_outputs(answers, name), expected).mean() for name in answers}
    for title, least in CLASSES.items():
        speeds = {n: _fastest(answers[n])[1] for n, mean in means.items() if mean >= least}
        ours = [name for name in speeds if name.startswith(OURS)]
        others = speeds.keys() - ours
        if ours and others:
            mine, best = max(ours, key=speeds.__getitem__), max(others, key=speeds.__getitem__)
            ratio = speeds[mine] / speeds[best]
            yield f"cosine of {title}: {mine} {ratio:.2f} times as fast as {best}"


def _reference(answers: Mapping[str, Any]) -> str:
    """Returns the name of the program whose outputs are the reference."""
    theirs = f"{THEIRS} float32"
    return theirs if theirs in answers else next(iter(answers))


def _outputs(answers: Mapping[str, list[dict[str, Any]]], name: str) -> np.ndarray:
    return answers[name][-1]["outputs"]


def _cosines(outputs: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """float32[texts, size] of two programs -> float64[texts]."""
    a, b = outputs.astype(np.float64), expected.astype(np.float64)
    return (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def _fastest(turns: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    """Returns the fastest batch size and its texts/s, medians of all turns but the first."""
    medians = {
        size: statistics.median(turn["seconds"][size] for turn in turns[1:])
        for size in turns[0]["seconds"]
    }
    size = min(medians, key=medians.__getitem__)
    return size, len(turns[0]["outputs"]) / medians[size]


if __name__ == "__main__":
    command.start("inference")
