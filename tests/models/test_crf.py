"""The CRF against going through all tag sequences one by one."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import crf as crf_lib

LENGTHS, NUM_CLASSES = (4, 1, 3, 0), 3


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    crf = crf_lib.Crf(
        transitions=rng.normal(size=(NUM_CLASSES, NUM_CLASSES)).astype(np.float32),
        start=rng.normal(size=NUM_CLASSES).astype(np.float32),
        end=rng.normal(size=NUM_CLASSES).astype(np.float32),
    )
    logits = rng.normal(size=(len(LENGTHS), 4, NUM_CLASSES)).astype(np.float32)
    is_word = np.arange(4)[None] < np.array(LENGTHS)[:, None]
    logits = np.where(is_word[..., None], logits, 100).astype(np.float32)  # has no effect
    tags = rng.integers(0, NUM_CLASSES, is_word.shape).astype(np.int32)
    return crf, logits, tags, is_word


def score_of(crf, logits, tags):
    total = crf.start[tags[0]] + crf.end[tags[-1]]
    total += sum(logits[i, tag] for i, tag in enumerate(tags))
    return total + sum(crf.transitions[a, b] for a, b in itertools.pairwise(tags))


def all_scores(crf, logits, length):
    sequences = list(itertools.product(range(NUM_CLASSES), repeat=length))
    return sequences, np.array([score_of(crf, logits, s) for s in sequences], np.float64)


def test_likelihood_marginals_and_best_sequence_are_those_of_enumeration(problem):
    crf, *arrays = problem
    logits, tags, is_word = map(jnp.asarray, arrays)
    likelihood = crf_lib.log_likelihood(crf, logits, tags, is_word)
    marginals = crf_lib.marginals(crf, logits, is_word)
    best = np.asarray(crf_lib.decode(crf, logits, is_word))
    assert best.shape == is_word.shape and likelihood[LENGTHS.index(0)] == 0
    for row, length in enumerate(filter(None, LENGTHS)):
        sequences, scores = all_scores(crf, arrays[0][row], length)
        total = np.log(np.exp(scores).sum())
        expected = score_of(crf, arrays[0][row], arrays[1][row, :length]) - total
        np.testing.assert_allclose(likelihood[row], expected, atol=1e-5)
        expected = np.zeros((4, NUM_CLASSES))
        for sequence, share in zip(sequences, np.exp(scores - total), strict=True):
            expected[range(length), sequence] += share
        np.testing.assert_allclose(marginals[row], expected, atol=1e-5)
        assert tuple(best[row, :length]) == sequences[int(scores.argmax())]
