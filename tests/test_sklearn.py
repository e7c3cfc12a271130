"""The estimators of scikit-learn against the functions that they are made of."""

import gc
import importlib
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

import numpy as np
import pandas
import pytest

import bert_jax
from bert_jax.files.errors import UserError
from bert_jax.training.listener import Listener
from tests import tiny

pytest.importorskip("sklearn", reason="needs the extra sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_validate  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

from bert_jax.sklearn import BertClassifier, BertEmbedder, BertRegressor  # noqa: E402

WORDS = "moon river stone tree cloud leaf sand hill good bad".split()
SETTINGS = {
    "epochs": 1,
    "max_length": 16,
    "learning_rate": 3e-3,
    "fields": {"prng_impl": tiny.PRNG_IMPL, "optimizer.warmup": "0"},
}
_rng = random.Random(0)
TEXTS = [f"{' '.join(_rng.choices(WORDS[:8], k=3))} {_rng.choice(WORDS[8:])}" for _ in range(32)]
IS_GOOD = np.array([text.endswith("good") for text in TEXTS])


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> bert_jax.Model:
    """A model of one layer, after one step."""
    folder = tmp_path_factory.mktemp("model")
    vocabulary = [*tiny.SPECIAL, *WORDS, "."]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "corpus.txt").write_text("".join(f"{text} .\n{text} .\n\n" for text in TEXTS))
    sizes = tiny.SIZES | {"vocab_size": len(vocabulary), "num_layers": 1}
    config = bert_jax.get_config(
        "tiny",
        steps=1,
        phases=((16, 1.0),),
        global_batch_size=8,
        prng_impl=tiny.PRNG_IMPL,
        data__source=f"text:{folder / 'corpus.txt'}",
        data__vocab=str(folder / "vocab.txt"),
        data__line_format="sentences",
        data__num_processes=1,
        data__validation_share=0.2,
        **{f"model__{name}": size for name, size in sizes.items()},
    )
    return bert_jax.train(config, folder / "run", listener=Listener())


@pytest.fixture(scope="module")
def classifier(model) -> BertClassifier:
    """Its classes are 9 and 10, whose order as texts is another."""
    return BertClassifier(model, **SETTINGS).fit(TEXTS, np.where(IS_GOOD, 10, 9))


def test_the_classifier_is_that_of_finetune(model, classifier, tmp_path):
    labels = ["10" if is_good else "9" for is_good in IS_GOOD]
    examples = TEXTS, labels
    fields = SETTINGS["fields"] | {"optimizer.learning_rate": 3e-3, "eval.every": "0"}
    settings = {"epochs": 1.0, "max_length": 16, **fields}
    alone = bert_jax.finetune(
        model, examples, examples, workdir=tmp_path / "run", listener=Listener(), **settings
    )
    predictions = alone.predict(TEXTS)
    found = classifier.predict(TEXTS)
    assert classifier.classes_.tolist() == [9, 10] and found.dtype == classifier.classes_.dtype
    assert found.tolist() == [int(prediction["label"]) for prediction in predictions]
    expected = [
        [prediction["probabilities"][name] for name in ("9", "10")] for prediction in predictions
    ]
    np.testing.assert_array_equal(classifier.predict_proba(TEXTS), expected)
    assert classifier.score(TEXTS, np.where(IS_GOOD, 10, 9)) == np.mean((found == 10) == IS_GOOD)
    assert classifier.predict([]).shape == (0,)
    assert classifier.predict_proba([]).shape == (0, 2)


def test_a_pickle_has_its_model_or_the_folder_of_it(classifier, model, tmp_path):
    """They are read by another process, which has no model in memory."""
    copied = pickle.loads(pickle.dumps(classifier))
    kept = BertClassifier(model, workdir=str(tmp_path / "runs"), **SETTINGS)
    kept.fit(TEXTS, np.where(IS_GOOD, 10, 9))
    folders = [fitted.model_.folder for fitted in (copied, kept)]
    (tmp_path / "pickle").write_bytes(pickle.dumps([copied, kept]))
    del copied
    gc.collect()
    assert list(map(os.path.exists, folders)) == [False, True]
    assert os.path.exists(classifier.model_.folder)
    code = (
        "import json, pickle, sys; fitted = pickle.load(open(sys.argv[1], 'rb'));"
        "found = [[f.predict_proba(sys.argv[2:]).tolist(), f.model_.folder] for f in fitted];"
        "print(json.dumps(found))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "pickle"), *TEXTS[:4]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found, there = zip(*json.loads(done.stdout), strict=True)
    np.testing.assert_array_equal(found, [classifier.predict_proba(TEXTS[:4])] * 2)
    assert there[0] not in folders and not os.path.exists(there[0]) and there[1] == folders[1]


def test_a_grid_search_varies_parameters(model, tmp_path):
    estimator = BertClassifier(model, workdir=str(tmp_path), **SETTINGS)
    labels = np.where(IS_GOOD, "good", "bad")
    split, grid = [(np.arange(16), np.arange(16, 32))], {"epochs": [1, 2]}
    search = GridSearchCV(estimator, grid, cv=split, scoring="neg_log_loss", refit=False)
    scores = search.fit(np.array(TEXTS), labels).cv_results_["mean_test_score"]
    alone = clone(estimator).set_params(epochs=2).fit(TEXTS[:16], labels[:16])
    probabilities = alone.predict_proba(TEXTS[16:])[np.arange(16), IS_GOOD[16:].astype(int)]
    np.testing.assert_allclose(scores[1], np.log(probabilities).mean(), rtol=1e-6)
    assert scores[0] != scores[1]
    assert alone.predict(TEXTS).dtype == alone.classes_.dtype == labels.dtype
    assert len(list(tmp_path.iterdir())) == 3  # each fit has a folder


@pytest.mark.slow
def test_processes_fit_and_return_estimators(model):
    given = {"cv": 2, "return_estimator": True, "scoring": "neg_log_loss"}
    found, expected = (
        cross_validate(BertClassifier(model, **SETTINGS), TEXTS, IS_GOOD, n_jobs=n, **given)
        for n in (2, 1)
    )
    np.testing.assert_array_equal(found["test_score"], expected["test_score"])
    for ours, theirs in zip(found["estimator"], expected["estimator"], strict=True):
        assert ours.predict(TEXTS).dtype == bool
        np.testing.assert_array_equal(ours.predict_proba(TEXTS), theirs.predict_proba(TEXTS))


def test_the_regressor_is_that_of_finetune(model):
    values = 100 + 5.0 * IS_GOOD
    regressor = BertRegressor(model, **SETTINGS | {"hold_out": True, "epochs": 2})
    found = regressor.fit(pandas.DataFrame({"text": TEXTS}), values).predict(TEXTS)
    expected = [prediction["value"] for prediction in regressor.model_.predict(TEXTS)]
    assert found.dtype == np.float64 and found.tolist() == expected
    split = pathlib.Path(regressor.model_.folder, "split")
    held_out = (split / "evaluate.jsonl").read_text().splitlines()
    assert len(held_out) == 3  # a tenth


def test_a_pipeline_classifies_vectors(model):
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    pipeline = make_pipeline(BertEmbedder(model, pooling="max"), LogisticRegression())
    expected = LogisticRegression().fit(model.encode(pairs, pooling="max"), IS_GOOD)
    for X in (pairs, pandas.DataFrame(pairs), np.array(pairs), pandas.Series(pairs)):
        found = clone(pipeline).fit(X, IS_GOOD).predict_proba(X)
        np.testing.assert_array_equal(
            found, expected.predict_proba(model.encode(pairs, pooling="max"))
        )
    assert clone(pipeline).steps[0][1].model is model
    names = pipeline.fit(TEXTS, IS_GOOD)[:-1].get_feature_names_out()
    assert len(names) == model.encoder.hidden_size
    embedder = BertEmbedder(model.folder, layer=0, dimensions=4).fit(None)
    expected = model.encode(TEXTS[:2], layer=0, dimensions=4)
    again = pickle.loads(pickle.dumps(embedder))
    np.testing.assert_array_equal(again.transform(TEXTS[:2]), expected)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda c: c.fit([*"abc", 0.5], [0, 1, 0, 1]), "^X\\[3\\] is 0.5: give a text, or a pair"),
        (lambda c: c.fit("a text", [0, 1]), "^X is 'a text': give texts"),
        (
            lambda c: c.fit(np.eye(3).astype(str), [0, 1, 0]),
            "^X\\[0\\] is \\['1.0', .*: give a text",
        ),
        (lambda c: c.fit(["a", ("b", "c")], [0, 1]), "^X has both texts and pairs"),
        (lambda c: c.fit([*"abc"], [0.5, 1, 2]), "^Unknown label type of y, continuous: give one"),
        (lambda c: c.fit([*"abc"], np.eye(3)), "^Unknown label type of y, multilabel-indicator"),
        (lambda c: c.fit([*"abc"], ["a", "a ", "a"]), "^y has labels that are empty or differ by"),
        (lambda c: c.fit([*"abcd"], [1, 1, 1, 1]), "^y has one class, '1': a classifier needs two"),
        (lambda c: c.fit([*"abcd"], [1, 1, 0]), "inconsistent numbers of samples"),
        (
            lambda c: c.set_params(fields={"epochs": 3}, epochs=2).fit([*"abc"], [0, 1, 0]),
            "^fields\\['epochs'\\]=3 is also the parameter epochs=2: give one of them",
        ),
        (
            lambda c: c.set_params(fields={"eval__patience": 3}).fit([*"abc"], [0, 1, 0]),
            "^fields\\['eval.patience'\\] chooses by the evaluation, .* give hold_out=True",
        ),
    ],
)
def test_errors_say_in_one_line_what_to_do(model, use, message, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ValueError, match=message) as caught:
        use(BertClassifier(model))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_supported_is_refused_by_name(monkeypatch):
    with pytest.raises(TypeError, match="'sample_weight'"):
        BertClassifier("a folder").fit(TEXTS, IS_GOOD, sample_weight=np.ones(32))
    monkeypatch.delitem(sys.modules, "bert_jax.sklearn")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(UserError, match=r"pip install 'bert_jax\[sklearn\]'"):
        importlib.import_module("bert_jax.sklearn")
