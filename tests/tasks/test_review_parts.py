"""Reviews of evaluations against scikit-learn and cases worked out by hand."""

import numpy as np
import pytest

from bert_jax.scores.calibration import calibration_bins
from bert_jax.tasks import review_parts as review


def test_confusion_and_calibration_agree_with_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    from sklearn.calibration import calibration_curve

    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(5, size=(2, 200))
    expected = sklearn.confusion_matrix(gold, predicted, labels=range(6))
    assert review.confusion(gold, predicted, 6) == expected.tolist()
    sure = rng.uniform(0.3, 1.0, size=200)
    right = rng.random(200) < sure
    shares, means = calibration_curve(right, sure, n_bins=10)
    found = np.array(calibration_bins(sure, right))
    np.testing.assert_allclose(found[:, :2], np.transpose([means, shares]))
    assert found[:, 2].sum() == 200
    assert calibration_bins([1.0, 0.95], [True, False]) == [[0.975, 0.5, 2]]  # the last bin


def test_marks_of_gold_and_predicted_spans():
    gold, predicted = [(0, 4, "PER"), (5, 9, "LOC")], [(0, 4, "PER"), (5, 9, "ORG")]
    assert review.marked(gold, predicted) == [
        (0, 4, "both", "PER"),
        (5, 9, "gold", "LOC"),
        (5, 9, "predicted", "ORG"),
    ]


@pytest.mark.parametrize("start, stop", [(0, 5), (3000, 3010), (4990, 5000), (1000, 1500)])
def test_a_long_text_is_cut_around_its_spans(start, stop):
    content = "".join(f"{i:05d}" for i in range(1000))
    cut = review.text("", content, [(start, stop, "gold", "")])
    assert cut is not None and len(cut["text"]) <= 1202
    ((first, last, *_),) = cut["spans"]
    assert cut["text"][first:last] == content[start:stop]
    assert cut["text"].startswith("…") == (start >= 1000) and cut["text"].strip("…") in content
    cut = review.text("", "x" * 5000, [(0, 5, "gold", ""), (4000, 4005, "predicted", "")])
    assert cut is not None and all(0 <= a < b <= len(cut["text"]) for a, b, *_ in cut["spans"])
