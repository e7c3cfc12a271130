"""Attention between words, against a loop over all pairs."""

import numpy as np

from bert_jax.scores.attention import attention_of_words, strongest_heads


def test_a_word_attends_with_the_mean_of_its_pieces_to_the_sum_of_others():
    rng = np.random.default_rng(0)
    attention = rng.dirichlet(np.ones(7), (2, 3, 7)).astype(np.float32)
    spans = np.array([[0, 1], [1, 4], [4, 5], [5, 7]], np.int32)
    found = attention_of_words(attention, spans)
    assert found.shape == (2, 3, 4, 4) and found.dtype == np.float32
    for layer in range(2):
        for head in range(3):
            for one, (start, stop) in enumerate(spans):
                for other, (begin, end) in enumerate(spans):
                    shares = [
                        sum(float(attention[layer, head, i, j]) for j in range(begin, end))
                        for i in range(start, stop)
                    ]
                    want = sum(shares) / len(shares)
                    np.testing.assert_allclose(found[layer, head, one, other], want, atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)


def test_the_strongest_heads_come_first():
    values = np.array([[0.1, 0.9, 0.5], [0.5, 0.2, 0.3]])
    assert strongest_heads(values, 3) == [(0, 1, 0.9), (0, 2, 0.5), (1, 0, 0.5)]
    assert len(strongest_heads(values, 99)) == 6
