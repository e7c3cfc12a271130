"""Estimators of scikit-learn: fine-tuned models, and vectors of texts, for pipelines and searches.

    >>> from bert_jax.sklearn import BertClassifier
    >>> classifier = BertClassifier("runs/mine", epochs=3.0).fit(texts, labels)
    >>> classifier.predict_proba(["A wonderful film."])  # float64[texts, classes]

Needs scikit-learn: pip install 'bert_jax[sklearn]'.
"""

import os
import pathlib
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from bert_jax.api import Model, finetune, load
from bert_jax.files.errors import UserError
from bert_jax.training.listener import Listener

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError("bert_jax.sklearn needs scikit-learn: pip install scikit-learn.") from error

# Training examples on which a fit is evaluated, once, at its end.
_EVALUATED = 100


class _TextEstimator(BaseEstimator):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.no_validation = True  # texts are no numbers
        return tags


class _FineTuned(_TextEstimator):
    """What both fine-tuned estimators have; their docstrings describe it."""

    # Task of `finetune`.
    _TASK = ""

    def __init__(
        self,
        model: Model | str | os.PathLike[str] = "",
        workdir: str | os.PathLike[str] = "",
        epochs: float | None = None,
        learning_rate: float | None = None,
        max_length: int | None = None,
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
    ):
        self.model = model
        self.workdir = workdir
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.max_length = max_length
        self.seed = seed
        self.fields = fields
        self.listener = listener

    def _fit(self, texts: list[Any], labels: list[Any]) -> None:
        given = {"epochs": self.epochs, "max_length": self.max_length, "seed": self.seed}
        given["optimizer.learning_rate"] = self.learning_rate
        given = {name: value for name, value in given.items() if value is not None}
        given |= {"eval.every": "0", "checkpoint.every": "0", **(self.fields or {})}
        folder = self._make_folder()
        self.model_ = finetune(
            self.model,
            (texts, labels),
            (texts[:_EVALUATED], labels[:_EVALUATED]),
            task=self._TASK,
            workdir=folder,
            listener=self.listener or Listener(),
            **{name.replace(".", "__"): value for name, value in given.items()},
        )

    def _make_folder(self) -> str:
        """Returns a new folder for a fit; a temporary one lives as long as this object."""
        if not self.workdir:
            return os.path.join(self._make_temporary(), "run")
        os.makedirs(self.workdir, exist_ok=True)
        return os.path.join(tempfile.mkdtemp(prefix="fit-", dir=self.workdir), "run")

    def _make_temporary(self) -> str:
        self._temporary = tempfile.mkdtemp(prefix="bert_jax_")
        self._end = weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
        return self._temporary

    def __getstate__(self) -> dict[str, Any]:
        """With a temporary folder, its files too, so that the copy has a folder of its own."""
        state = dict(super().__getstate__())
        state.pop("_end", None)
        if temporary := state.pop("_temporary", ""):
            del state["model_"]
            root = pathlib.Path(temporary)
            files = (path for path in sorted(root.rglob("*")) if path.is_file())
            state["_files"] = {str(path.relative_to(root)): path.read_bytes() for path in files}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", {})
        super().__setstate__(state)
        if files:
            folder = self._make_temporary()
            for name, content in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.model_ = load(os.path.join(folder, "run"))


class BertClassifier(ClassifierMixin, _FineTuned):
    """Fine-tunes a model on texts, or pairs of texts, with one class each.

    X is a sequence of texts or of pairs (text_a, text_b), or a table or an array with one or two
    columns of texts. All of it is trained on: scikit-learn holds out and scores.

    Args:
      model: a `bert_jax.Model`, a folder of one, or a name of the hub.
      workdir: folder below which each fit makes a new one; "": a temporary folder, which lives as
        long as the estimator. A pickled estimator has the path of the former, the files of the
        latter.
      epochs, learning_rate, max_length: settings, as the fields of the configuration; None: what
        follows from the model and the texts, as in `bert_jax.finetune`.
      seed: seed of the order of the examples, dropout and new parameters.
      fields: further fields by dotted name: `{"optimizer.weight_decay": 0.1}`.
      listener: receives messages, progress and metrics; None: nothing is shown.

    Attributes:
      classes_: the distinct labels, sorted.
      model_: the fine-tuned `bert_jax.Model`.

    >>> cross_val_score(BertClassifier("runs/mine"), texts, labels, cv=3)
    """

    _TASK = "classification"

    def fit(self, X: Any, y: Any) -> Self:
        """Fine-tunes on texts and their labels: strings, numbers or bools.

        Raises:
          UserError: there is one class, labels look alike as text, or the model cannot be used.
        """
        texts, labels = _texts(X), np.asarray(y)
        _check_labels(texts, labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        names = [str(label).strip() for label in self.classes_.tolist()]
        if len({*names}) < len(names) or not all(names):
            raise UserError(f"y has labels that are blank, or equal as text: {names}.")
        self._fit(texts, [names[number] for number in numbers])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Returns the most probable class of each text, [texts], of the dtype of `classes_`."""
        found = self.predict_proba(X).argmax(1)
        return self.classes_[found]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probabilities of the classes, float64[texts, classes], as in `classes_`."""
        check_is_fitted(self)
        names = [str(label).strip() for label in self.classes_.tolist()]
        found = self.model_.predict(_texts(X))
        rows = [[row["probabilities"][name] for name in names] for row in found]
        return np.array(rows, np.float64).reshape(-1, len(names))


class BertRegressor(RegressorMixin, _FineTuned):
    """Fine-tunes a model on texts, or pairs of texts, with a number each.

    Arguments and attributes are those of `BertClassifier`, without `classes_`.
    """

    _TASK = "regression"

    def fit(self, X: Any, y: Any) -> Self:
        """Fine-tunes on texts and their numbers.

        Raises:
          UserError: the numbers are not finite, or the model cannot be used.
        """
        texts, values = _texts(X), np.asarray(y, np.float64)
        _check_labels(texts, values)
        if not np.isfinite(values).all():
            raise UserError("y has values that are not finite: NaN or infinity.")
        self._fit(texts, values.tolist())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Returns float64[texts]."""
        check_is_fitted(self)
        return np.array([row["value"] for row in self.model_.predict(_texts(X))], np.float64)


class BertEmbedder(TransformerMixin, _TextEstimator):
    """Turns texts into vectors, as `Model.encode`; nothing is trained.

    Args:
      model: a `bert_jax.Model`, a folder of one, or a name of the hub.
      pooling, layer, normalize, long, prompt, dimensions: see `bert_jax.Model.encode`.

    >>> make_pipeline(BertEmbedder("runs/mine"), LogisticRegression()).fit(texts, labels)
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str] = "",
        pooling: str = "",
        layer: int = -1,
        normalize: bool | None = None,
        long: str = "error",
        prompt: str = "",
        dimensions: int = 0,
    ):
        self.model = model
        self.pooling = pooling
        self.layer = layer
        self.normalize = normalize
        self.long = long
        self.prompt = prompt
        self.dimensions = dimensions

    def fit(self, X: Any, y: Any = None) -> Self:
        """Loads the model; the texts are not read."""
        del X, y
        self.model_ = self.model if isinstance(self.model, Model) else load(self.model)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Returns float32[texts, hidden]."""
        check_is_fitted(self)
        choice: Any = {name: value for name, value in self.get_params().items() if name != "model"}
        return self.model_.encode(_texts(X), **choice)


def _texts(x: Any) -> list[Any]:
    """Returns texts, or pairs of texts as tuples.

    Raises:
      UserError: X has another form.
    """
    if isinstance(x, str | Mapping):
        raise UserError(f"X is of type {type(x).__name__}: give a sequence of texts.")
    if hasattr(x, "columns") or getattr(x, "ndim", 1) == 2:
        array = np.asarray(x, object)
        rows = [text for (text,) in array] if array.shape[1] == 1 else list(map(tuple, array))
    else:
        rows = [tuple(row) if isinstance(row, list) else row for row in x]
    for number, row in enumerate(rows):
        parts = row if isinstance(row, tuple) else (row,)
        if len(parts) not in (1, 2) or not all(isinstance(part, str) for part in parts):
            raise UserError(f"X[{number}] is {row!r:.60}: give a text or a pair of texts.")
    return [str(row) if isinstance(row, str) else row for row in rows]


def _check_labels(texts: Sequence[Any], labels: np.ndarray) -> None:
    if labels.ndim != 1:
        raise UserError(
            f"y has the shape {list(labels.shape)}: give one label for each text. (Several labels"
            " for a text are a task of bert_jax.finetune.)"
        )
    if len(texts) != len(labels):
        raise UserError(f"X has {len(texts):,} texts, and y {len(labels):,} labels.")
