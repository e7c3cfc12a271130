"""Several examples in a row, or padding after one, are the same computation as each by itself."""

import jax
import numpy as np
import pytest

from bert_jax.models.heads import PreTrainingModel

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


@pytest.fixture
def make_run(make_config, pre_training_loss):
    """Returns a function of changes -> a function batch -> (loss, gradient, hidden states)."""

    def make(**changes):
        config = make_config(dropout_rate=0.0, attention_dropout_rate=0.0, **changes)
        model = PreTrainingModel(config, next_sentence=True)
        batch = make_rows([make_examples(np.random.default_rng(0))[:1]], 16, 2, 1)
        init = jax.jit(lambda key: model.init(key, batch, deterministic=True)["params"])
        params = init(jax.random.key(0))
        # Weights ten times as large as at the start, so that every term is felt.
        params = jax.tree.map(lambda x: x * 10 if x.ndim > 1 else x, params)

        def loss(params, batch):
            outputs = model.apply({"params": params}, batch, deterministic=True)
            return pre_training_loss(outputs, batch), outputs.hidden

        gradient_of = jax.jit(jax.value_and_grad(loss, has_aux=True))

        def run(batch):
            (value, hidden), gradient = gradient_of(params, batch)
            return float(value), gradient, np.asarray(hidden)

        return run

    return make


def assert_same_gradient(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), one, other)


@pytest.mark.parametrize(
    "changes",
    [{}, {"positions": "rotary", "attention_pattern": "causal", "attention": "dot_product"}],
    ids=["bert", "rotary causal dot_product"],
)
def test_packed_rows_have_the_loss_and_the_gradient_of_separate_rows(make_run, changes):
    run = make_run(**changes)
    examples = make_examples(np.random.default_rng(0))
    separate = make_rows([[e] for e in examples], 16, slots=2, examples_per_row=1)
    packed = make_rows([examples[:3], examples[3:]], 32, slots=6, examples_per_row=3)
    loss, gradient, hidden = run(separate)
    packed_loss, packed_gradient, packed_hidden = run(packed)
    assert packed_loss == pytest.approx(loss, abs=1e-5)
    assert_same_gradient(gradient, packed_gradient)
    second = slice(LENGTHS[0], LENGTHS[0] + LENGTHS[1])
    np.testing.assert_allclose(packed_hidden[0, second], hidden[1, : LENGTHS[1]], atol=1e-5)
