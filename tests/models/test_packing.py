"""Several examples in a row, or padding after one, are the same computation as each by itself."""

import numpy as np

from bert_jax.models.heads import PreTrainingModel
from tests.models.small import (
    apply,
    assert_close,
    loss_and_gradient,
    make_config,
    random_params,
)

LENGTHS = (9, 7, 8, 6)


def make_examples(rng):
    """Examples [CLS] A [SEP] B [SEP] of different lengths, each with two masked positions."""
    examples = []
    for length in LENGTHS:
        ids = rng.integers(5, 64, length)
        ids[[0, length // 2, length - 1]] = 2, 3, 3
        positions = np.sort(rng.choice(np.arange(1, length - 1), 2, replace=False))
        examples.append((ids, positions, int(rng.integers(2))))
    return examples


def make_rows(rows, sequence_length, slots, examples_per_row):
    """The batch form of rows that are lists of examples."""
    size = len(rows)
    tokens, types, places, numbers = np.zeros((4, size, sequence_length), np.int32)
    cls, labels = np.zeros((2, size, examples_per_row), np.int32)
    weights = np.zeros((size, examples_per_row), np.float32)
    masked, masked_ids = np.zeros((2, size, slots), np.int32)
    masked_weights = np.zeros((size, slots), np.float32)
    for row, examples in enumerate(rows):
        start, slot = 0, 0
        for number, (ids, positions, label) in enumerate(examples):
            here = slice(start, start + len(ids))
            tokens[row, here] = ids
            types[row, here] = np.arange(len(ids)) > len(ids) // 2
            places[row, here] = np.arange(len(ids))
            numbers[row, here] = number + 1
            cls[row, number], labels[row, number], weights[row, number] = start, label, 1
            masked[row, slot : slot + 2] = start + positions
            masked_ids[row, slot : slot + 2] = (positions * 7) % 64
            masked_weights[row, slot : slot + 2] = 1
            start, slot = start + len(ids), slot + 2
    return {
        "input_ids": tokens,
        "token_type_ids": types,
        "position_ids": places,
        "example_ids": numbers,
        "cls_positions": cls,
        "next_sentence_labels": labels,
        "next_sentence_weights": weights,
        "masked_lm_positions": masked,
        "masked_lm_ids": masked_ids,
        "masked_lm_weights": masked_weights,
    }


def test_packed_rows_have_the_loss_and_the_gradient_of_separate_rows():
    """Options change nothing of it: test_against_numpy has rows of several examples."""
    config = make_config(num_layers=1, dropout_rate=0.0, attention_dropout_rate=0.0)
    model = PreTrainingModel(config, next_sentence=True)
    examples = make_examples(np.random.default_rng(0))
    separate = make_rows([[e] for e in examples], 32, slots=6, examples_per_row=3)
    packed = make_rows([examples[:3], examples[3:], [], []], 32, slots=6, examples_per_row=3)
    params = random_params(model, separate, spread=0.2)  # large, so that every term is felt
    found, expected = (loss_and_gradient(model, params, batch) for batch in (packed, separate))
    assert_close(found, expected, rtol=0, atol=1e-5)
    hidden, alone = (apply(model, params, batch).hidden for batch in (packed, separate))
    second = slice(LENGTHS[0], LENGTHS[0] + LENGTHS[1])
    np.testing.assert_allclose(hidden[0, second], alone[1, : LENGTHS[1]], atol=1e-5)
