"""Arrays of a made-up text and sample, as the command `attention` computes them."""

import numpy as np

from bert_jax.scores.attention import STATISTICS, attention_of_words

LAYERS, HEADS = 2, 3
TOKENS = ["[CLS]", "it", "pur", "##red", "[MASK]", ".", "[SEP]", "it", "[SEP]"]
WORDS = ["[CLS]", "it", "purred", "[MASK]", ".", "[SEP]", "it", "[SEP]"]
SPANS = np.array([[0, 1], [1, 2], [2, 4], [4, 5], [5, 6], [6, 7], [7, 8], [8, 9]], np.int32)


def make_arrays() -> dict[str, np.ndarray]:
    """Returns the arrays of a pair with a mask, of random attention."""
    rng = np.random.default_rng(0)
    size = len(TOKENS)
    attention = rng.dirichlet(np.full(size, 0.3), (LAYERS, HEADS, size)).astype(np.float32)
    shape = (len(STATISTICS), LAYERS, HEADS)
    return {
        "statistics": np.array(list(STATISTICS)),
        "tokens": np.array(TOKENS),
        "input_ids": np.arange(size, dtype=np.int32),
        "segments": np.array([0] * 7 + [1] * 2, np.int32),
        "is_special": np.isin(TOKENS, ["[CLS]", "[SEP]"]),
        "words": np.array(WORDS),
        "word_spans": SPANS,
        "attention": attention,
        "word_attention": attention_of_words(attention, SPANS),
        "text_statistics": rng.random(shape, np.float32),
        "sample_statistics": rng.random(shape, np.float32),
        "lens_positions": np.array([4], np.int32),
        "lens_offset": np.array(0, np.int32),
        "lens_tokens": np.array([[["sat", "cat"]], [["well", "loudly"]], [["loudly", "well"]]]),
        "lens_probabilities": np.array([[[0.02, 0.01]], [[0.5, 0.2]], [[0.6, 0.3]]], np.float32),
        "lens_answers": np.array(["loudly"]),
        "lens_answer_probabilities": np.array([[2e-5], [0.2], [0.6]], np.float32),
    }
