"""scikit-learn estimators: pipelines, cross-validation and grid search with BERT models.

    >>> from sklearn.model_selection import cross_val_score
    >>> from bert_jax.sklearn import BertClassifier
    >>> cross_val_score(BertClassifier("runs/mine", epochs=3), texts, labels, cv=5)

`X` has a text, or a pair of texts, for each sample: a list of texts or of pairs, a Series, or a
DataFrame or array with one or two columns of texts. Sample weights are not supported: `fit` takes
no `sample_weight`.
"""

import contextlib
import os
import pathlib
import shutil
import tempfile
import uuid
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from bert_jax.api import finetune
from bert_jax.data.in_memory import is_missing
from bert_jax.data.labelled.forms.label_kinds import find_number_faults
from bert_jax.files.errors import UserError
from bert_jax.inference.model import Long, Model, Pooling, load
from bert_jax.training.listener import Listener

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils import Tags
    from sklearn.utils.multiclass import type_of_target
    from sklearn.utils.validation import (
        check_array,
        check_consistent_length,
        check_is_fitted,
        column_or_1d,
    )
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "sklearn":
        raise
    raise UserError(
        "bert_jax.sklearn needs scikit-learn: pip install 'bert_jax[sklearn]'."
    ) from error

# Fields that select something by evaluation, which needs samples that are not trained on.
_CHOOSE = ("checkpoint.use", "eval.patience", "seeds", "task.calibration", "task.thresholds")


class _ReadsTexts(BaseEstimator):
    """An estimator whose X holds texts."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # two_d_array would mean that columns may be numbers.
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False
        tags.input_tags.string = True
        return tags


class BertEstimator(_ReadsTexts):
    """Base class of the estimators that `fit` fine-tunes, with their parameters."""

    model_: Model
    _is_temporary: bool
    # Fields that the estimator sets unless the user does.
    _DEFAULTS: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        *,
        workdir: str = "",
        epochs: float | None = None,
        learning_rate: float | None = None,
        max_length: int | None = None,
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        hold_out: bool = False,
        verbose: bool = False,
    ):
        self.model = model
        self.workdir = workdir
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.max_length = max_length
        self.seed = seed
        self.fields = fields
        self.hold_out = hold_out
        self.verbose = verbose

    def _finetune(self, X: Any, labels: list[Any], task: str) -> None:
        texts = _texts(X)
        check_consistent_length(texts, labels)
        examples, values = (texts, labels), self._values()
        evaluate = None if self.hold_out else examples
        listener = None if self.verbose else Listener()
        workdir = os.path.join(self.workdir, f"fit-{uuid.uuid4().hex}") if self.workdir else ""
        with contextlib.nullcontext(workdir) if workdir else _temporary_folder() as folder:
            model = finetune(self.model, examples, evaluate, task, folder, listener, **values)
        self._keep(model, is_temporary=not workdir)

    def _values(self) -> dict[str, Any]:
        """Returns the fields of the configuration that the parameters give, by dotted name."""
        named = {
            "epochs": self.epochs,
            "optimizer.learning_rate": self.learning_rate,
            "max_length": self.max_length,
            "seed": self.seed,
        }
        named = {name: value for name, value in named.items() if value is not None}
        fields = {name.replace("__", "."): value for name, value in (self.fields or {}).items()}
        if twice := sorted(named.keys() & fields.keys()):
            raise UserError(
                f"fields[{twice[0]!r}]={fields[twice[0]]!r} is also the parameter"
                f" {twice[0].split('.')[-1]}={named[twice[0]]!r}: give one of them."
            )
        if self.hold_out:
            return self._DEFAULTS | named | fields
        if chosen := [name for name in _CHOOSE if name in fields]:
            raise UserError(
                f"fields[{chosen[0]!r}] chooses by the evaluation, which is one of the training"
                " samples: give hold_out=True."
            )
        return {"eval.every": "0"} | self._DEFAULTS | named | fields

    def _keep(self, model: Model, is_temporary: bool) -> None:
        """Sets the fitted model; a temporary folder is removed with it."""
        self.model_, self._is_temporary = model, is_temporary
        if is_temporary:
            weakref.finalize(model, shutil.rmtree, model.folder, ignore_errors=True)

    def _predict(self, X: Any) -> list[dict[str, Any]]:
        check_is_fitted(self)
        return self.model_.predict(_texts(X))

    def __getstate__(self) -> dict[str, Any]:
        """Replaces a temporary folder with the contents of its files."""
        state = vars(self).copy()
        if "model_" in state and self._is_temporary:
            folder = pathlib.Path(state.pop("model_").folder)
            files = (path for path in folder.rglob("*") if path.is_file())
            state["_files"] = {str(path.relative_to(folder)): path.read_bytes() for path in files}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", {})
        super().__setstate__(state)
        if not files:
            return
        with _temporary_folder() as folder:
            for name, content in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            model = load(folder)
        self._keep(model, is_temporary=True)


class BertClassifier(ClassifierMixin, BertEstimator):
    """Fine-tunes a model to classify texts or pairs of texts, as `bert_jax.finetune` does.

    Trains on all samples, since scikit-learn evaluates on samples of its own; the run's only
    evaluation is on the training samples, after the last step. With `hold_out=True` a tenth of the
    samples is held out for evaluations during training.

    A fitted estimator is pickled with the files of its model if `workdir` is "", and otherwise with
    the path of the folder, which must then still exist. Clones share a `Model`, which is immutable.

    Args:
      model: the model to start from, or its folder (a workdir or another program's).
      workdir: folder in which each fit makes a folder of its own, fit-...; "": a temporary folder,
        which is removed with the fitted model.
      epochs, learning_rate, max_length: settings of `bert_jax.finetune`; None: its recipe decides.
      seed: seed for new parameters, the order of the samples and dropout.
      fields: further fields of the configuration, such as `{"optimizer.warmup": "5%"}`.
      hold_out: whether a stratified tenth of the samples is held out. Fields that select by
        evaluation need it: early stopping, the best checkpoint, tuned thresholds, calibration.
      verbose: whether `fit` prints its settings, with the reasons, and its progress.

    Attributes:
      classes_: the labels in the order of `np.unique`, with the dtype of y.
      model_: the fine-tuned `Model`; its labels are those of y as strings.

    >>> search = GridSearchCV(BertClassifier("runs/mine"), {"learning_rate": [3e-5, 1e-4]})
    >>> search.fit(texts, labels).best_params_
    """

    # As in other classifiers, probabilities reflect the shares of the classes in y.
    _DEFAULTS = {"task.class_weights": "none"}

    def fit(self, X: Any, y: Any) -> "BertClassifier":
        """Fine-tunes the model.

        Args:
          X: texts or pairs, one for each sample.
          y: a label for each sample, of any type: int, str, bool.

        Raises:
          UserError: y has several labels for a sample, missing labels or fractional numbers; or as
            in `bert_jax.finetune`.
        """
        _check_labels(y)
        if (kind := type_of_target(y, input_name="y")) not in ("binary", "multiclass"):
            raise UserError(
                f"Unknown label type of y, {kind}: give one label for each text. BertRegressor fits"
                " numbers, bert_jax.finetune(..., task='multi_label') several labels."
            )
        classes, numbers = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        names = _names(classes)
        if len({*names} - {""}) < len(names):
            raise UserError(f"y has labels that are empty or equal but for spaces: {names}.")
        if len(names) == 1:
            raise UserError(f"y has one class, {names[0]!r}: a classifier needs two.")
        self._finetune(X, [names[number] for number in numbers], "classification")
        self.classes_ = classes
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Returns a label for each text, [texts], of the dtype of `classes_`."""
        predictions = self._predict(X)
        numbers = {name: number for number, name in enumerate(_names(self.classes_))}
        return self.classes_[np.array([numbers[found["label"]] for found in predictions], int)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probability of each class, float64[texts, classes]."""
        predictions, names = self._predict(X), _names(self.classes_)
        rows = [[found["probabilities"][name] for name in names] for found in predictions]
        return np.array(rows, np.float64).reshape(-1, len(names))


class BertRegressor(RegressorMixin, BertEstimator):
    """Fine-tunes a model to predict a number for each text or pair of texts.

    The parameters are those of `BertClassifier`. Predictions start at 0: if the numbers are far
    from it, `fit` warns; scale them then, for example with `TransformedTargetRegressor`.
    """

    def fit(self, X: Any, y: Any) -> "BertRegressor":
        """Fine-tunes the model.

        Args:
          X: texts or pairs, one for each sample.
          y: float[texts].

        Raises:
          UserError: all numbers are equal, or as in `bert_jax.finetune`.
        """
        y = column_or_1d(y, warn=True)
        numbers = check_array(y, ensure_2d=False, dtype="float64", input_name="y")
        for fault in find_number_faults(numbers.tolist()):
            warnings.warn(f"y: {fault} (TransformedTargetRegressor).", stacklevel=2)
        self._finetune(X, numbers.tolist(), "regression")
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Returns a number for each text, float64[texts]."""
        return np.array([prediction["value"] for prediction in self._predict(X)], np.float64)


class BertEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _ReadsTexts):
    """Encodes texts or pairs of texts as vectors, with a model that is not trained further.

    Args:
      model: a model or its folder (a workdir or another program's). Clones share a `Model` and its
        compiled functions; a folder is loaded by each `fit`.
      pooling, layer, normalize, long, stride, prompt, dimensions: see `Model.encode`.

    Attributes:
      model_: the `Model`.

    >>> classifier = make_pipeline(BertEmbedder(model), LogisticRegression())
    >>> classifier.fit(texts, labels).predict(["A wonderful film."])
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        *,
        pooling: Pooling = "",
        layer: int = -1,
        normalize: bool | None = None,
        long: Long = "error",
        stride: int = 0,
        prompt: str = "",
        dimensions: int = 0,
    ):
        self.model = model
        self.pooling = pooling
        self.layer = layer
        self.normalize = normalize
        self.long = long
        self.stride = stride
        self.prompt = prompt
        self.dimensions = dimensions

    def fit(self, X: Any, y: Any = None) -> "BertEmbedder":
        """Loads the model if it is a folder; X and y are not read."""
        self.model_ = self.model if isinstance(self.model, Model) else load(self.model)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Returns a vector for each text, float32[texts, hidden] or [texts, dimensions]."""
        check_is_fitted(self)
        choices = self.get_params(deep=False)
        del choices["model"]
        return self.model_.encode(_texts(X), **choices)

    @property
    def _n_features_out(self) -> int:
        return self.dimensions or self.model_.encoder.hidden_size

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # vectors are float32, whatever X is
        return tags


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    """Makes a folder, and removes it if the block fails."""
    folder = tempfile.mkdtemp(prefix="bert_jax-")
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _names(classes: np.ndarray) -> list[str]:
    """Returns the labels of classes in the fine-tuned model, which strips whitespace."""
    return [str(label).strip() for label in classes.tolist()]


def _check_labels(y: Any) -> None:
    labels = list(y) if hasattr(y, "__iter__") else []
    if missing := [number for number, label in enumerate(labels) if is_missing(label)]:
        shown = ", ".join(map(str, missing[:5])) + ", ..." * (len(missing) > 5)
        raise UserError(
            f"{len(missing)} of {len(labels)} labels are missing (samples {shown}): leave these"
            " samples out."
        )


def _texts(X: Any) -> list[Any]:
    """Returns the texts, or pairs of texts as tuples, of the samples.

    Raises:
      UserError: samples are something else, or both texts and pairs.
    """
    rows = list(X) if isinstance(X, list | tuple) else np.asarray(X, dtype=object).tolist()
    if not isinstance(rows, list):
        raise UserError(f"X is {X!r:.60}: give texts, or pairs of texts, one for each sample.")
    found = [_text(row, number) for number, row in enumerate(rows)]
    if len({isinstance(text, str) for text in found}) > 1:
        raise UserError("X has both texts and pairs of texts: give one of the two.")
    return found


def _text(row: Any, number: int) -> str | tuple[str, ...]:
    parts = (row,) if isinstance(row, str) else row
    is_row = isinstance(parts, list | tuple | np.ndarray) and len(parts) in (1, 2)
    if isinstance(parts, list) and len(parts) > 2:
        raise UserError(
            f"X has {len(parts)} columns: give one or two columns of texts, such as X['text']."
        )
    if not is_row or not all(isinstance(part, str) for part in parts):
        raise UserError(f"X[{number}] is {row!r:.60}: give a text, or a pair of texts.")
    return parts[0] if len(parts) == 1 else tuple(parts)
