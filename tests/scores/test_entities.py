"""Scores of entities against seqeval, and against cases worked out by hand."""

import random
import warnings

import numpy as np
import pytest

from bert_jax.scores import entities as scores
from bert_jax.scores.classification import Counts, macro_f1, micro

PREFIXES = {"iob": "OBI", "iobes": "OBIES"}


def random_tags(rng: random.Random, prefixes: str) -> list[str]:
    """Any tag after any other: most sequences break every scheme."""
    kinds = ["", "-PER", "-LOC", "-a-b"] if rng.random() < 0.2 else ["-PER", "-LOC", "-ORG-x"]
    tags = [rng.choice(prefixes) for _ in range(rng.randrange(12))]
    return [tag if tag == "O" else tag + rng.choice(kinds) for tag in tags]


def shaken(rng: random.Random, tags: list[str], prefixes: str) -> list[str]:
    replacements = random_tags(rng, prefixes) or ["O"]
    return [tag if rng.random() < 0.7 else rng.choice(replacements) for tag in tags]


@pytest.mark.parametrize("scheme", PREFIXES)
@pytest.mark.parametrize("seed", range(15))
def test_entities_agree_with_seqeval_on_any_tags(scheme, seed):
    reason = "needs seqeval: pip install -c constraints.txt seqeval"
    seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling", reason=reason)
    rng = random.Random(seed)
    gold = [random_tags(rng, PREFIXES[scheme]) for _ in range(rng.randrange(1, 8))]
    predicted = [shaken(rng, tags, PREFIXES[scheme]) for tags in gold]
    for tags in gold + predicted:
        assert scores.entities(tags) == set(seqeval.get_entities(tags))
    counts = scores.entity_counts(gold, predicted)
    everything = micro(counts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # undefined scores, which are 0
        by_type = seqeval.precision_recall_fscore_support(gold, predicted, average=None)
        overall = seqeval.precision_recall_fscore_support(gold, predicted, average="micro")
        if counts:
            theirs = seqeval.f1_score(gold, predicted, average="macro")
            assert macro_f1(counts) == pytest.approx(theirs)
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
    everything = micro(counts)
    assert (everything.precision, everything.recall, everything.f1) == (1 / 3, 1 / 3, 1 / 3)
    assert macro_f1(counts) == pytest.approx((2 / 3) / 3)
    assert scores.token_accuracy(gold, predicted) == 3 / 5


@pytest.mark.parametrize(
    "gold, predicted, message",
    [
        ([["O", "U-PER"]], [["O", "O"]], "Invalid tag 'U-PER': tags are O, or B-, I-"),
        ([["O"]], [["O"], ["O"]], "1 sentences of gold tags, 2 of predictions"),
        ([[], ["O"]], [[], ["O", "O"]], "Sentence 1 has 1 gold tags and 2 predictions"),
    ],
)
def test_what_cannot_be_scored_is_refused(gold, predicted, message):
    with pytest.raises(ValueError, match=message):
        scores.entity_counts(gold, predicted)
