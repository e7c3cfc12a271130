"""The estimators pass scikit-learn's own checks.

These fit matrices of numbers, which are written as texts here. Linear models of words replace the
models, since only what is around them is checked.
"""

import pathlib
import pickle
import types

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs the extra sklearn")
from sklearn.feature_extraction.text import CountVectorizer  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402
from sklearn.naive_bayes import BernoulliNB  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402
from sklearn.utils.validation import validate_data  # noqa: E402

from bert_jax import sklearn as ours  # noqa: E402

# Whether a text has a word, such as "0:-1", for each column and rounded number.
WORDS = {"token_pattern": r"\S+", "binary": True}


class LinearModel:
    """A linear model of words, in a folder, with the methods of `Model` that estimators call."""

    encoder = types.SimpleNamespace(hidden_size=2)

    def __init__(self, folder):
        self.folder = folder

    def encode(self, texts, **_choices):
        return np.array([[len(text), text.count("1")] for text in texts], np.float32)

    def predict(self, texts):
        fitted = pickle.loads(pathlib.Path(self.folder, "model").read_bytes())
        if isinstance(fitted[-1], Ridge):
            return [{"value": float(value)} for value in fitted.predict(texts)]
        names = fitted.classes_
        return [
            {"label": names[row.argmax()], "probabilities": dict(zip(names, row, strict=True))}
            for row in fitted.predict_proba(texts)
        ]


def finetune(_model, examples, _evaluate, task, workdir, _listener, **_values):
    linear = Ridge(0.1) if task == "regression" else BernoulliNB()
    fitted = make_pipeline(CountVectorizer(**WORDS), linear).fit(*examples)
    pathlib.Path(workdir, "model").write_bytes(pickle.dumps(fitted))
    return LinearModel(workdir)


class OfNumbers:
    """Writes the numbers of X as texts."""

    def _written(self, X, **choices):
        rows = np.round(validate_data(self, X, **choices))
        return [" ".join(f"{n}:{value:.0f}" for n, value in enumerate(row)) for row in rows]

    def fit(self, X, y=None):
        return super().fit(self._written(X), y)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = False, True
        tags.input_tags.string = False
        return tags


class Classifier(OfNumbers, ours.BertClassifier):
    def predict(self, X):
        return super().predict(self._written(X, reset=False))

    def predict_proba(self, X):
        return super().predict_proba(self._written(X, reset=False))


class Regressor(OfNumbers, ours.BertRegressor):
    def predict(self, X):
        return super().predict(self._written(X, reset=False))


class Embedder(OfNumbers, ours.BertEmbedder):
    def transform(self, X):
        return super().transform(self._written(X, reset=False))


@pytest.mark.filterwarnings("ignore")  # checks warn about their own data
@pytest.mark.parametrize("kind", [Classifier, Regressor, Embedder])
def test_estimators_pass_the_checks_of_scikit_learn(kind, monkeypatch):
    monkeypatch.setattr(ours, "finetune", finetune)
    monkeypatch.setattr(ours, "load", LinearModel)
    found = estimator_checks.check_estimator(kind("model"), on_skip=None, on_fail=None)
    assert len(found) > 40
    assert [check for check in found if check["status"] == "failed"] == []
