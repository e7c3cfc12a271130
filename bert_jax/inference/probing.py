"""What the layers of an encoder know: linear classifiers on their frozen vectors.

For each file, a logistic regression learns the classes of texts from the vectors of one layer,
averaged over all tokens, and is scored on other texts (Conneau & Kiela 2018, SentEval; Tenney et
al. 2019). The encoder is not trained. A file is a table of texts and classes, as `finetune` reads
it, with a fifth held out; or one of SentEval's probing sets, with lines such as

    tr  PRES  She sees a cat .

which give the part (tr, va or te; va is not used), the class and the text, separated by tabs.
"""

import dataclasses
import os
import pathlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.config.task import default_config
from bert_jax.data.labelled.detection import detect
from bert_jax.data.labelled.split import held_out
from bert_jax.files.errors import UserError
from bert_jax.scores.bag_of_words import classify, tf_idf

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

# Share of the examples of a table that are held out.
HELD_OUT = 0.2
# Maximum number of steps of a classifier, which converges in fewer.
_MAX_STEPS = 1000
# Number of texts whose hidden states are in memory at a time.
_WINDOW = 256
_PARTS = ("tr", "va", "te")
# The task that tables must be for.
_TASK = "classification"
# A text or a pair, and its class.
_Labelled = tuple[Sequence[str], str]
_ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".parquet")


@dataclasses.dataclass(frozen=True)
class Probe:
    """How well linear classifiers do on the held-out texts of a file.

    Attributes:
      name: name of the file without its ending.
      classes: number of classes.
      train, test: number of texts that they learn from, and are scored on.
      constant: accuracy of the majority-class baseline, from the training texts.
      bag_of_words: accuracy of logistic regression on TF-IDF.
      layers: accuracy with the vectors of each layer, from 0, the output of the embeddings.
    """

    name: str
    classes: int
    train: int
    test: int
    constant: float
    bag_of_words: float
    layers: tuple[float, ...]


def probe(model: "Model", data: str | os.PathLike[str], max_texts: int = 0) -> list[Probe]:
    """Returns the scores of linear classifiers on each layer's vectors, for each file.

    Args:
      model: any model with an encoder.
      data: a labelled file, or a folder of such files.
      max_texts: number of texts used from each file, or from each part of a file of SentEval,
        chosen at random with one seed; 0: all.

    Raises:
      UserError: there is no such file, or one that has no texts with one class each.

    >>> [probe] = bert_jax.probe(model, "past_present.txt")
    >>> probe.layers
    (0.71, 0.84, 0.82)
    """
    path = pathlib.Path(data)
    paths = sorted(p for p in path.iterdir() if p.suffix in _ENDINGS) if path.is_dir() else [path]
    if not paths:
        raise UserError(f"{path} has no files that end in {', '.join(_ENDINGS)}.")
    return [_probe(model, str(each), max_texts) for each in paths]


def _probe(model: "Model", path: str, max_texts: int) -> Probe:
    train, test = _read(path, max_texts)
    names = {label: number for number, label in enumerate(sorted({label for _, label in train}))}
    if len(names) < 2 or not test:
        raise UserError(
            f"{path} has {len(names)} classes in {len(train)} texts to learn from, and {len(test)}"
            " other texts: probing needs two classes, and other texts."
        )
    gold, gold_of_test = (
        np.array([names.get(label, -1) for _, label in part]) for part in (train, test)
    )

    def accuracy(x: Any, other: Any) -> float:
        one_hot = np.eye(len(names), dtype=bool)[gold]
        found = classify(x, one_hot, other, is_exclusive=True, max_steps=_MAX_STEPS)
        return float((found.argmax(1) == gold_of_test).mean())

    texts, texts_of_test = ([text for text, _ in part] for part in (train, test))
    bag = accuracy(*tf_idf(texts, texts_of_test))
    layers = []
    for vectors in _encode(model, texts + texts_of_test):
        x, other = np.split(vectors, [len(train)])
        mean, spread = x.mean(0), np.maximum(x.std(0), 1e-9)
        layers.append(accuracy((x - mean) / spread, (other - mean) / spread))
    return Probe(
        name=pathlib.Path(path).stem,
        classes=len(names),
        train=len(train),
        test=len(test),
        constant=float((gold_of_test == np.bincount(gold).argmax()).mean()),
        bag_of_words=bag,
        layers=tuple(layers),
    )


def _encode(model: "Model", texts: Sequence[Sequence[str]]) -> np.ndarray:
    """float64[layers + 1, texts, hidden]: means over the tokens, in one pass for all layers."""
    pairs: Any = [tuple(text) if len(text) > 1 else text[0] for text in texts]
    vectors = [
        found["hidden_states"].mean(axis=1)  # of [layers + 1, tokens, hidden]
        for first in range(0, len(pairs), _WINDOW)
        for found in model.hidden_states(pairs[first : first + _WINDOW], "all", long="truncate")
    ]
    return np.stack(vectors, axis=1).astype(np.float64)


def _read(path: str, max_texts: int) -> tuple[list[_Labelled], list[_Labelled]]:
    """Returns the texts with their classes to learn from, and others to be scored on."""
    if parts := _sentence_eval(path):
        train, test = parts
    else:
        found = detect(path, {}, _TASK)  # refuses other tasks, several classes, and numbers
        task: Any = default_config(_TASK).replace(dict(found.fields)).task
        examples = _some(list(task.read(path, Counter(), True)), max_texts)
        is_held_out = held_out(examples, HELD_OUT, seed=0)
        train, test = (
            [
                (tuple(example.texts), example.labels[0])
                for example, held in zip(examples, is_held_out, strict=True)
                if held == wanted
            ]
            for wanted in (False, True)
        )
        max_texts = 0
    return _some(train, max_texts), _some(test, max_texts)


def _sentence_eval(path: str) -> tuple[list[_Labelled], list[_Labelled]] | None:
    """Returns the parts of a file of SentEval; None if it has another form."""
    parts: dict[str, list[_Labelled]] = {part: [] for part in _PARTS}
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            cells = line.rstrip("\n").split("\t")
            if len(cells) != 3 or cells[0] not in _PARTS:
                return None
            parts[cells[0]].append(((cells[2],), cells[1]))
    return (parts["tr"], parts["te"]) if any(parts.values()) else None


def _some(rows: list[Any], count: int) -> list[Any]:
    """Returns `count` random rows, in order; all if there are no more, or for 0.

    Evenly spaced ones would have some of the classes only, if the file has these in turn.
    """
    if not count:
        return rows
    return [rows[i] for i in sorted(np.random.default_rng(0).permutation(len(rows))[:count])]
