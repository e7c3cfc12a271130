"""The estimators of scikit-learn against the functions that they are made of."""

import gc
import importlib
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile

import numpy as np
import pandas
import pytest
from safetensors.numpy import save_file

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
    """A model of one layer with random weights, in the form of Hugging Face."""
    folder, rng = tmp_path_factory.mktemp("model"), np.random.default_rng(0)
    vocabulary, size, inner, rows = [*tiny.SPECIAL, *WORDS, "."], 16, 32, 32
    layer, attention = "encoder.layer.0", "encoder.layer.0.attention"
    dense = {f"{attention}.self.{name}": (size, size) for name in ("query", "key", "value")}
    dense |= {
        f"{attention}.output.dense": (size, size),
        f"{layer}.intermediate.dense": (inner, size),
    }
    dense |= {f"{layer}.output.dense": (size, inner), "pooler.dense": (size, size)}
    lookups = {"word": len(vocabulary), "position": rows, "token_type": 2}
    shapes = {f"embeddings.{name}_embeddings": (n, size) for name, n in lookups.items()} | dense
    weights = {f"{name}.weight": rng.normal(0, 0.1, shape) for name, shape in shapes.items()}
    weights |= {f"{name}.bias": np.zeros(shape[0]) for name, shape in dense.items()}
    for name in ("embeddings", f"{attention}.output", f"{layer}.output"):
        weights[f"{name}.LayerNorm.weight"] = np.ones(size)
        weights[f"{name}.LayerNorm.bias"] = np.zeros(size)
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    save_file(weights, folder / "model.safetensors")
    config = {"model_type": "bert", "hidden_act": "gelu", "vocab_size": len(vocabulary)}
    config |= {"hidden_size": size, "intermediate_size": inner, "max_position_embeddings": rows}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 2, "type_vocab_size": 2}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return bert_jax.load(folder)


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


def test_a_pickle_has_the_files_of_a_temporary_folder(classifier, tmp_path):
    """It is read by another process, when the folder is gone."""
    copied = pickle.loads(pickle.dumps(classifier))
    folder = copied.model_.folder
    (tmp_path / "pickle").write_bytes(pickle.dumps(copied))
    del copied
    gc.collect()
    assert not os.path.exists(folder) and os.path.exists(classifier.model_.folder)
    code = (
        "import json, pickle, sys; fitted = pickle.load(open(sys.argv[1], 'rb'));"
        "print(json.dumps([fitted.predict_proba(sys.argv[2:]).tolist(), fitted.model_.folder]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "pickle"), *TEXTS[:4]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found, folder = json.loads(done.stdout)
    np.testing.assert_array_equal(found, classifier.predict_proba(TEXTS[:4]))
    assert not os.path.exists(folder)


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
    assert len(list(tmp_path.iterdir())) == 3  # each fit has a folder, which a pickle names
    assert pickle.loads(pickle.dumps(alone)).model_.folder == alone.model_.folder


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
    values = 10 + 5.0 * IS_GOOD
    regressor = BertRegressor(model, **SETTINGS)
    found = regressor.fit(pandas.DataFrame({"text": TEXTS}), values).predict(TEXTS)
    expected = [prediction["value"] for prediction in regressor.model_.predict(TEXTS)]
    assert found.dtype == np.float64 and found.tolist() == expected


def test_numbers_far_from_zero_are_warned_of(monkeypatch, model):
    monkeypatch.setattr(BertRegressor, "_finetune", lambda *_: None)
    with pytest.warns(UserWarning, match="a mean of 1016 and a deviation of 9.2.*: scale them"):
        BertRegressor(model).fit(TEXTS, np.arange(1000, 1032))


@pytest.mark.parametrize("hold_out", [False, True])
def test_the_evaluation_is_one_of_the_samples_or_of_held_out_ones(hold_out, monkeypatch):
    """`finetune` holds out a tenth if there is nothing to evaluate on."""
    given, values = [], {"hold_out": hold_out, "fields": {"optimizer__warmup": "0"}, "epochs": 2}

    def finetune(*arguments, **values):
        given.extend([arguments[1:3], values])
        raise UserError("stop")

    monkeypatch.setattr("bert_jax.sklearn.finetune", finetune)
    with pytest.raises(UserError, match="stop"):
        BertClassifier("a folder", **values).fit(["a", "b"], [True, False])
    (train, evaluate), found = given
    assert train == (["a", "b"], ["True", "False"]) and evaluate == (None if hold_out else train)
    expected = {"optimizer.warmup": "0", "epochs": 2, "seed": 0, "task.class_weights": "none"}
    assert found == expected | ({} if hold_out else {"eval.every": "0"})


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
            "^X has 3 columns: give one or two",
        ),
        (
            lambda c: c.fit([*"abc"], ["x", None, np.nan]),
            "^2 of 3 labels are missing .samples 1, 2",
        ),
        (lambda c: c.fit(["a", ("b", "c")], [0, 1]), "^X has both texts and pairs"),
        (lambda c: c.fit([*"abc"], [0.5, 1, 2]), "^Unknown label type of y, continuous: give one"),
        (lambda c: c.fit([*"abc"], np.eye(3)), "^Unknown label type of y, multilabel-indicator"),
        (lambda c: c.fit([*"abc"], ["a", "a ", "a"]), "^y has labels that are empty or equal but"),
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
