"""Accuracies on minimal pairs: published scores, ties, and errors in closed form."""

import csv
import gzip
import math

import numpy as np
import pytest

from bert_jax.scores.minimal_pairs import score_pairs


def test_published_scores_of_roberta_give_its_published_accuracy(shared_data):
    """82.6 on Zorro (Huebner et al. 2021): 82.49 if ties, which rounding made, count nothing."""
    with gzip.open(shared_data / "grammar" / "zorro.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    good, bad = (
        -np.array([float(row[f"roberta_base_{side}"]) for row in rows]) for side in ("good", "bad")
    )
    groups = [row["paradigm"] for row in rows], [""] * len(rows)
    without_ties = score_pairs(good - 1e-9, bad, *groups)
    assert 100 * without_ties.mean.value == pytest.approx(82.49, abs=0.005)
    found = score_pairs(good, bad, *groups)
    assert (len(found.paradigms), found.mean.pairs, found.fields) == (23, 46_000, {})
    half = found.ties / 2 / found.mean.pairs
    assert found.mean.value == pytest.approx(without_ties.mean.value + half)


def test_a_tie_counts_one_half_and_paradigms_count_alike():
    good, bad = np.array([1, 1, 0, 5, 5, 5.0]), np.array([0, 1, 1, 0, 0, 9.0])
    found = score_pairs(good, bad, [*"aaabbc"], ["x", "x", "x", "x", "x", ""])
    assert [(n, a.value, a.pairs) for n, a in found.paradigms.items()] == [
        ("a", 0.5, 3),
        ("b", 1.0, 2),
        ("c", 0.0, 1),
    ]
    assert found.fields.keys() == {"x"}
    assert (found.fields["x"].value, found.mean.value, found.ties) == (0.75, 0.5, 1)


def test_errors_are_those_of_binomials():
    rng = np.random.default_rng(1)
    outcomes = rng.random(900) < np.repeat([0.9, 0.5, 0.7], 300)
    found = score_pairs(outcomes * 1.0, 0.5, np.repeat([*"abc"], 300).tolist(), ["f"] * 900)
    variances = [a.value * (1 - a.value) / 300 for a in found.paradigms.values()]
    for accuracy, variance in zip(found.paradigms.values(), variances, strict=True):
        assert accuracy.error == pytest.approx(math.sqrt(variance), rel=0.1)
    assert found.mean.error == pytest.approx(math.sqrt(sum(variances)) / 3, rel=0.1)
    assert str(found.mean) == f"{100 * outcomes.mean():5.1f} % ± {100 * found.mean.error:.1f}"
