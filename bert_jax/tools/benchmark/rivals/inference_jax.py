"""This program in the inference benchmark: texts through a trained model."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bert_jax.config import store
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.texts import Text
from bert_jax.devices.allocator import keep_freed_memory
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.loading import load_workdir
from bert_jax.inference.predictor import Predictor, TaskPredictor


def build(
    model: str, texts: str, classifies: bool, dtype: str, output: str
) -> tuple[dict[str, Any], Callable[[], list[float]]]:
    """Returns a measurement of the seconds from all texts to their outputs, which are then saved.

    Args:
      model: workdir of the model.
      texts: file with a text a line.
      classifies: whether outputs are probabilities of classes, instead of sentence vectors.
      dtype: as config.dtype.
      output: .npy file to write.
    """
    keep_freed_memory()
    with open(texts, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    config = store.load(model).replace({"dtype": dtype})
    compute = _classes(config, model) if classifies else _vectors(config, model)

    def measure() -> list[float]:
        start = time.perf_counter()
        values = compute(lines)
        seconds = time.perf_counter() - start
        np.save(output, np.array(values, np.float32))
        return [seconds]

    return {}, measure


def _vectors(config: Any, workdir: str) -> Callable[[list[str]], Any]:
    predictor = Predictor(load_workdir(config, workdir))
    extractor = FeatureExtractor(predictor, Choice(level="sentence"))

    def compute(lines: list[str]) -> list[np.ndarray]:
        found = extractor.run(extractor.row(Text(line)) for line in lines)
        return [features["embeddings"] for _, features in found]

    return compute


def _classes(config: Any, workdir: str) -> Callable[[list[str]], Any]:
    predictor = TaskPredictor(Predictor(load_workdir(config, workdir)))

    def compute(lines: list[str]) -> list[list[float]]:
        examples = [TextExample("", str(i), line) for i, line in enumerate(lines)]
        windows = predictor.predict(examples)
        return [list(p["probabilities"].values()) for window in windows for p in window]

    return compute
