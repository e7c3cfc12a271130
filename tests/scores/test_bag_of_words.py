"""Models without an encoder are those of scikit-learn."""

import random

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier

from bert_jax.scores import bag_of_words

WORDS = "a moon river Stone tree cloud leaf sand hill good bad".split()


def make_texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(count)]


TRAIN, TEST = make_texts(200, 0), make_texts(50, 1)
VECTORS = TfidfVectorizer(ngram_range=(1, 2)).fit(TRAIN)
X, Z = bag_of_words.tf_idf([[text] for text in TRAIN], [[text] for text in TEST])


def test_the_vectors():
    for ours, texts in ((X, TRAIN), (Z, TEST)):
        theirs = VECTORS.transform(texts)
        np.testing.assert_allclose(
            (ours @ X.T).todense(), (theirs @ VECTORS.transform(TRAIN).T).todense(), atol=1e-12
        )


def test_classes():
    for names in (["good"], ["good", "bad"]):  # two classes, three classes
        gold = np.array(
            [next((n + 1 for n, name in enumerate(names) if name in t), 0) for t in TRAIN]
        )
        theirs = LogisticRegression(tol=1e-8, max_iter=1000).fit(VECTORS.transform(TRAIN), gold)
        ours = bag_of_words.classify(X, np.eye(len(names) + 1, dtype=bool)[gold], Z, True)
        probabilities = np.exp(ours) / np.exp(ours).sum(1, keepdims=True)
        expected = theirs.predict_proba(VECTORS.transform(TEST))
        np.testing.assert_allclose(probabilities, expected, atol=1e-3)


@pytest.mark.parametrize("max_steps", [0, 1000])
def test_a_given_number_of_steps_is_not_cut_to_seconds(max_steps, monkeypatch, caplog):
    monkeypatch.setattr(bag_of_words, "_MAX_PRODUCTS", 1)  # as with much data
    gold = np.array([len(text) % 7 for text in TRAIN])
    theirs = LogisticRegression(tol=1e-8, max_iter=1000).fit(VECTORS.transform(TRAIN), gold)
    ours = bag_of_words.classify(X, np.eye(7, dtype=bool)[gold], Z, True, max_steps)
    probabilities = np.exp(ours) / np.exp(ours).sum(1, keepdims=True)
    expected = theirs.predict_proba(VECTORS.transform(TEST))
    assert np.allclose(probabilities, expected, atol=1e-3) == (max_steps > 0)
    bag_of_words.classify(X, np.eye(7, dtype=bool)[gold], Z, True, 1)
    assert "did not converge in 1 steps" in caplog.text


def test_several_labels():
    gold = np.array([["good" in text, "moon" in text] for text in TRAIN])
    model = OneVsRestClassifier(LogisticRegression(tol=1e-8, max_iter=1000))
    theirs = model.fit(VECTORS.transform(TRAIN), gold.astype(int))
    ours = bag_of_words.classify(X, gold, Z, False)
    expected = theirs.predict_proba(VECTORS.transform(TEST))
    np.testing.assert_allclose(1 / (1 + np.exp(-ours)), expected, atol=1e-3)


def test_numbers():
    values = np.array([len(text) for text in TRAIN], float)
    theirs = Ridge(tol=1e-10).fit(VECTORS.transform(TRAIN), values)
    expected = theirs.predict(VECTORS.transform(TEST))
    np.testing.assert_allclose(bag_of_words.regress(X, values, Z), expected, rtol=1e-3)


def test_characters_of_scripts_without_spaces_are_words():
    x, z = bag_of_words.tf_idf([["我喜欢书"], ["我不喜欢"]], [["书"]])
    assert x.shape[1] == 5 + 3 + 2  # characters; pairs of 我喜欢书, 我不喜欢 without 喜欢
    assert z.nnz == 1


def test_second_texts_are_apart():
    x, _ = bag_of_words.tf_idf([["moon river", "river stone"]], [])
    assert x.shape[1] == 2 * 3 + 1  # two words and a pair of each, and river in both


def test_words_get_their_most_frequent_tag():
    train = [(["a", "b"], ["X", "O"]), (["a", "c"], ["Y", "O"]), (["a"], ["X"])]
    assert bag_of_words.tag_words(train, [["c", "a", "new"], []]) == [["O", "X", "O"], []]
