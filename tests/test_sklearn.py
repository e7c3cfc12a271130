"""The estimators in scikit-learn's own tools."""

import pickle
import subprocess
import sys

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from bert_jax.files.errors import UserError
from bert_jax.sklearn import BertClassifier, BertEmbedder, BertRegressor
from tests import tiny
from tests.test_api import files, model  # noqa: F401

WORDS = "moon river stone tree cloud leaf sand hill".split()
TEXTS = [f"{a} {b} {mark}" for a in WORDS for b in WORDS[:3] for mark in ("good", "bad")]
LABELS = np.array([text.endswith("good") for text in TEXTS])
SETTINGS = {"epochs": 1.0, "fields": {"prng_impl": tiny.PRNG_IMPL}}


@pytest.fixture(scope="module")
def classifier(model) -> BertClassifier:  # noqa: F811
    return BertClassifier(model.folder, **SETTINGS).fit(TEXTS, LABELS)


def test_a_classifier_predicts_what_its_model_does(classifier):
    found = classifier.model_.predict(TEXTS)
    assert classifier.classes_.tolist() == [False, True]
    probabilities = classifier.predict_proba(TEXTS)
    assert probabilities[:, 1].tolist() == [row["probabilities"]["True"] for row in found]
    expected = [row["label"] == "True" for row in found]
    assert classifier.predict(TEXTS).tolist() == expected and LABELS.dtype == bool
    assert classifier.score(TEXTS, LABELS) == np.mean(LABELS == expected)
    table = pandas.DataFrame({"text": TEXTS})
    np.testing.assert_array_equal(classifier.predict_proba(table), probabilities)


def test_a_pickled_estimator_has_its_files(classifier, tmp_path):
    (tmp_path / "classifier").write_bytes(pickle.dumps(classifier))
    code = (
        "import pickle, sys; c = pickle.load(open(sys.argv[1], 'rb'));"
        "print(c.predict_proba(sys.argv[2:]).tolist())"
    )
    command = [sys.executable, "-c", code, tmp_path / "classifier", *TEXTS[:2]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    np.testing.assert_allclose(eval(done.stdout), classifier.predict_proba(TEXTS[:2]), atol=1e-6)


def test_a_search_varies_settings(model, tmp_path):  # noqa: F811
    estimator = BertClassifier(model.folder, tmp_path / "fits", **SETTINGS)
    grid = {"epochs": [1.0, 2.0]}
    search = GridSearchCV(estimator, grid, cv=2, error_score="raise").fit(TEXTS, LABELS)
    assert len(list((tmp_path / "fits").iterdir())) == 2 * 2 + 1
    assert search.best_estimator_.model_.config.epochs == search.best_params_["epochs"]
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


def test_vectors_in_a_pipeline(model):  # noqa: F811
    pipeline = make_pipeline(BertEmbedder(model, normalize=True), LogisticRegression())
    alone = LogisticRegression().fit(model.encode(TEXTS, normalize=True), LABELS)
    found = pipeline.fit(TEXTS, LABELS).predict_proba(TEXTS)
    np.testing.assert_allclose(
        found, alone.predict_proba(model.encode(TEXTS, normalize=True)), atol=1e-6
    )
    columns = make_column_transformer((BertEmbedder(model), ["a"]), (BertEmbedder(model), ["b"]))
    table = pandas.DataFrame({"a": TEXTS, "b": TEXTS[::-1]})
    assert columns.fit_transform(table).shape == (len(TEXTS), 32)
    assert len(cross_val_score(pipeline, TEXTS, LABELS, cv=2)) == 2


def test_numbers_and_pairs(model):  # noqa: F811
    pairs = [(text, text[::-1]) for text in TEXTS]
    regressor = BertRegressor(model, **SETTINGS).fit(pairs, [len(text) for text in TEXTS])
    expected = [row["value"] for row in regressor.model_.predict(pairs)]
    assert regressor.predict(np.array(pairs, object)).tolist() == expected


# Those that need no data; all others give numbers as X, where these estimators need texts.
CHECKS = [
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_mixin_order,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_set_params,
    estimator_checks.check_valid_tag_types,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_checks_of_scikit_learn(check):
    for kind in (BertClassifier, BertRegressor, BertEmbedder):
        check(kind.__name__, kind())


@pytest.mark.parametrize("kind", [BertClassifier, BertRegressor, BertEmbedder])
def test_what_is_not_fitted_says_so(kind):
    with pytest.raises(NotFittedError):
        (kind().transform if kind is BertEmbedder else kind().predict)(["a"])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ("a text", [1], "X is of type str"),
        ([1, 2], [0, 1], "X[0] is 1: give a text"),
        (np.array([["a", "b", "c"]]), [1], "give a text or a pair"),
        (["a", "b"], [1], "X has 2 texts, and y 1 labels."),
        (["a", "b"], [[1, 0], [0, 1]], "y has the shape [2, 2]"),
        (["a", "b"], [" a", "a"], "equal as text"),
    ],
)
def test_what_is_refused(x, y, message):
    with pytest.raises(UserError) as error:
        BertClassifier("folder").fit(x, y)
    assert message in str(error.value)
