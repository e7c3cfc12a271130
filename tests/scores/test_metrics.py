"""Scores against scikit-learn, scipy and seqeval, and against cases worked out by hand."""

import random
import warnings

import numpy as np
import pytest

from bert_jax.scores import metrics as scores
from bert_jax.scores.metrics import Counts

PREFIXES = {"iob": "OBI", "iobes": "OBIES"}


def arrays(seed: int, classes: int = 3, examples: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Gold and predictions, some classes of which may be missing on one side or both."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(rng.integers(1, classes + 1), size=examples)
    return gold, np.where(rng.random(examples) < 0.5, gold, rng.integers(classes, size=examples))


@pytest.fixture
def sklearn():
    reason = "needs scikit-learn: pip install -c constraints.txt scikit-learn"
    return pytest.importorskip("sklearn.metrics", reason=reason)


@pytest.mark.parametrize("seed", range(20))
def test_classification_is_scikit_learns(sklearn, seed):
    gold, predicted = arrays(seed)
    assert scores.accuracy(gold, predicted) == pytest.approx(
        sklearn.accuracy_score(gold, predicted)
    )
    assert scores.matthews(gold, predicted) == pytest.approx(
        sklearn.matthews_corrcoef(gold, predicted)
    )
    counts = scores.class_counts(gold, predicted)
    expected = sklearn.precision_recall_fscore_support(
        gold, predicted, labels=list(counts), zero_division=0
    )
    ours = [(each.precision, each.recall, each.f1, each.gold) for each in counts.values()]
    np.testing.assert_allclose(ours, np.transpose(expected), atol=1e-12)
    for average, ours in (
        ("micro", scores.micro(counts).f1),
        ("macro", scores.macro_f1(counts)),
    ):
        theirs = sklearn.f1_score(gold, predicted, average=average, zero_division=0)
        assert ours == pytest.approx(theirs)


@pytest.mark.parametrize("seed", range(10))
def test_binary_f1_is_scikit_learns(sklearn, seed):
    gold, predicted = arrays(seed, classes=2)
    theirs = sklearn.f1_score(gold, predicted, zero_division=0)
    assert scores.f1(gold, predicted) == pytest.approx(theirs)


@pytest.mark.parametrize("seed", range(10))
def test_multi_label_scores_are_scikit_learns(sklearn, seed):
    rng = np.random.default_rng(seed)
    gold, predicted = rng.random((2, 30, 4)) < rng.random(4) * [0, 0.5, 1, 1]
    counts = scores.multi_label_counts(gold, predicted)
    averages = {"micro": scores.micro(counts).f1, "macro": scores.macro_f1(counts)}
    for average, ours in averages.items():
        theirs = sklearn.f1_score(gold, predicted, average=average, zero_division=0)
        assert ours == pytest.approx(theirs)
    theirs = sklearn.accuracy_score(gold, predicted)
    assert scores.accuracy(gold, predicted) == pytest.approx(theirs)


def test_labels_may_be_text():
    gold, predicted = ["yes", "no", "yes", "no"], ["yes", "yes", "yes", "maybe"]
    assert scores.accuracy(gold, predicted) == 0.5
    assert scores.f1(gold, predicted, positive="yes") == 0.8  # precision 2/3, recall 1
    assert scores.class_counts(gold, predicted)["no"] == Counts(correct=0, predicted=0, gold=2)


def test_matthews_by_hand():
    # (true positives, false positives, false negatives, true negatives) = (3, 1, 2, 4)
    gold, predicted = [1] * 5 + [0] * 5, [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    expected = (3 * 4 - 1 * 2) / np.sqrt((3 + 1) * (3 + 2) * (4 + 1) * (4 + 2))
    assert scores.matthews(gold, predicted) == pytest.approx(expected)
    assert scores.matthews(gold, [1] * 10) == 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_correlations_are_scipys_with_ties_and_without(seed, decimals):
    stats = pytest.importorskip("scipy.stats", reason="needs scipy")
    rng = np.random.default_rng(seed)
    gold = np.round(rng.uniform(0, 5, 25), decimals)
    predicted = np.round(gold * rng.normal() + rng.normal(size=25), decimals)
    assert scores.pearson(gold, predicted) == pytest.approx(stats.pearsonr(gold, predicted)[0])
    assert scores.spearman(gold, predicted) == pytest.approx(stats.spearmanr(gold, predicted)[0])


def test_correlations_by_hand():
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    assert scores.spearman([0, 1, 1, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert scores.pearson([1, 2, 3], [-2, -4, -6]) == pytest.approx(-1)
    assert scores.pearson([0, 1e200], [0, 1e200]) == pytest.approx(1)


@pytest.mark.parametrize("score", [scores.pearson, scores.spearman])
def test_a_constant_correlates_with_nothing(score):
    assert score([0.1] * 7, range(7)) == score(range(7), [0.1] * 7) == score([1], [1]) == 0


@pytest.mark.parametrize("score", [scores.pearson, scores.spearman])
def test_numbers_that_are_none_are_refused(score):
    with pytest.raises(ValueError, match="1 of 3 predicted numbers are not finite"):
        score([1, 2, 3], [1, float("nan"), 3])


def random_tags(rng: random.Random, prefixes: str) -> list[str]:
    """Any tag after any other: most sequences break every scheme."""
    kinds = ["", "-PER", "-LOC", "-a-b"] if rng.random() < 0.2 else ["-PER", "-LOC", "-ORG-x"]
    tags = [rng.choice(prefixes) for _ in range(rng.randrange(12))]
    return [tag if tag == "O" else tag + rng.choice(kinds) for tag in tags]


def shaken(rng: random.Random, tags: list[str], prefixes: str) -> list[str]:
    replacements = random_tags(rng, prefixes) or ["O"]
    return [tag if rng.random() < 0.7 else rng.choice(replacements) for tag in tags]


@pytest.mark.parametrize("scheme", PREFIXES)
@pytest.mark.parametrize("seed", range(150))
def test_entities_are_seqevals_on_any_tags(scheme, seed):
    reason = "needs seqeval: pip install -c constraints.txt seqeval"
    seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling", reason=reason)
    rng = random.Random(seed)
    gold = [random_tags(rng, PREFIXES[scheme]) for _ in range(rng.randrange(1, 8))]
    predicted = [shaken(rng, tags, PREFIXES[scheme]) for tags in gold]
    for tags in gold + predicted:
        assert scores.entities(tags) == set(seqeval.get_entities(tags))
    counts = scores.entity_counts(gold, predicted)
    everything = scores.micro(counts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # undefined scores, which are 0
        by_type = seqeval.precision_recall_fscore_support(gold, predicted, average=None)
        overall = seqeval.precision_recall_fscore_support(gold, predicted, average="micro")
        if counts:
            theirs = seqeval.f1_score(gold, predicted, average="macro")
            assert scores.macro_f1(counts) == pytest.approx(theirs)
    ours = [(each.precision, each.recall, each.f1, each.gold) for each in counts.values()]
    np.testing.assert_allclose(np.reshape(ours, (-1, 4)), np.transpose(by_type), atol=1e-12)
    ours = (everything.precision, everything.recall, everything.f1, everything.gold)
    assert ours == pytest.approx(overall)
    if any(gold):
        assert scores.token_accuracy(gold, predicted) == pytest.approx(
            seqeval.accuracy_score(gold, predicted)
        )


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("B-PER I-PER O I-LOC", {("PER", 0, 1), ("LOC", 3, 3)}),  # I- after O begins
        ("I-PER I-LOC", {("PER", 0, 0), ("LOC", 1, 1)}),  # so does I- of another type
        ("I-PER B-PER I-PER", {("PER", 0, 0), ("PER", 1, 2)}),  # IOB1's neighbours
        ("B-PER I-PER E-PER S-PER", {("PER", 0, 2), ("PER", 3, 3)}),
        ("E-PER E-PER", {("PER", 0, 0), ("PER", 1, 1)}),
        ("S-PER I-PER", {("PER", 0, 0), ("PER", 1, 1)}),
        ("B-PER S-PER O", {("PER", 0, 0), ("PER", 1, 1)}),
        ("B I", {("_", 0, 1)}),  # without types
        ("B-a-b I-a-c", {("a-b", 0, 0), ("a-c", 1, 1)}),  # the first dash separates
        ("B-人名 I-人名", {("人名", 0, 1)}),
        ("", set()),
    ],
)
def test_entities_by_hand(tags, expected):
    assert scores.entities(tags.split()) == expected


def test_entity_scores_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC"]]
    predicted = [["B-PER", "O", "O", "B-LOC"], ["B-ORG"]]
    counts = scores.entity_counts(gold, predicted)
    assert counts == {"LOC": Counts(1, 1, 2), "ORG": Counts(0, 1, 0), "PER": Counts(0, 1, 1)}
    everything = scores.micro(counts)
    assert (everything.precision, everything.recall, everything.f1) == (1 / 3, 1 / 3, 1 / 3)
    assert scores.macro_f1(counts) == pytest.approx((2 / 3) / 3)
    assert scores.token_accuracy(gold, predicted) == 3 / 5


def test_an_entity_does_not_go_on_in_the_next_sentence():
    counts = scores.entity_counts([["B-PER"], ["I-PER"]], [["B-PER"], ["I-PER"]])
    assert counts == {"PER": Counts(2, 2, 2)}


def test_nothing_to_find_and_nothing_found_is_zero():
    everything = scores.micro(scores.entity_counts([["O"]], [["O"]]))
    assert (everything.precision, everything.recall, everything.f1) == (0, 0, 0)
    assert scores.macro_f1({}) == 0


@pytest.mark.parametrize("tag", ["", "PER", "BPER", "U-PER", "O-PER", "b-PER"])
def test_what_is_no_tag_is_refused(tag):
    with pytest.raises(ValueError, match=f"'{tag}' is no tag: O, or B-, I-, E- or S- and a type"):
        scores.entities(["O", tag])


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match=r"gold is \[2\], predictions are \[3\]"):
        scores.accuracy([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="There are no examples to score"):
        scores.matthews([], [])
    with pytest.raises(ValueError, match="1 sentences of gold tags, 2 of predictions"):
        scores.entity_counts([["O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="Sentence 1 has 1 gold tags and 2 predictions"):
        scores.entity_counts([[], ["O"]], [[], ["O", "O"]])
    with pytest.raises(ValueError, match="no class is the most frequent"):
        scores.majority_class_score(scores.accuracy, [])
    with pytest.raises(ValueError, match="There are no runs to summarize"):
        scores.summarize_seeds([], 0.5)


@pytest.mark.parametrize(
    "score, gold, expected",
    [
        (scores.accuracy, ["a", "b", "a", "c"], 0.5),
        (scores.f1, [1, 1, 0], 0.8),  # precision 2/3, recall 1
        (scores.f1, [1, 0, 0], 0),
        (scores.f1, [1, 0], 2 / 3),  # equally frequent: the better of both
        (scores.matthews, [1, 1, 0], 0),
        (scores.spearman, [0.5, 0.5, 3], 0),
        (scores.accuracy, [[1, 0], [0, 1], [1, 0]], 2 / 3),
    ],
)
def test_the_majority_classs_score(score, gold, expected):
    assert scores.majority_class_score(score, gold) == pytest.approx(expected)


def test_the_spread_over_seeds():
    summary = scores.summarize_seeds([0.8, 0.6, 0.7, 0.5], majority=0.6)
    assert (summary.runs, summary.best, summary.degenerate) == (4, 0.8, 2)
    assert summary.mean == pytest.approx(0.65)
    assert summary.standard_deviation == pytest.approx(np.sqrt(0.05 / 3))  # n - 1
    assert scores.summarize_seeds([0.8], majority=0.6).standard_deviation is None
