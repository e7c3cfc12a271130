"""Several examples in a row, or padding after one, are the same computation as each by itself."""

import jax
import numpy as np
import pytest

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


def make_batch(rows, sequence_length, slots, examples_per_row):
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
def loss_and_gradient(make_task):
    """Returns the function batch -> (loss, gradient, hidden states) of a model without dropout."""
    task = make_task(sequence_length=32, dropout_rate=0.0, attention_dropout_rate=0.0)
    model = task.make_model()
    params = model.init(jax.random.key(0), task.example_batch(), deterministic=True)["params"]
    # Weights ten times as large as at the start, so that every term is felt.
    params = jax.tree.map(lambda x: x * 10 if x.ndim > 1 else x, params)

    def loss(params, batch):
        outputs = model.apply({"params": params}, batch, deterministic=True)
        sums, denominators = task.objective(outputs, batch), task.denominators(batch)
        total = sum(sums[name].numerator / denominators[name] for name in task.loss_terms)
        return total, outputs.hidden

    gradient_of = jax.jit(jax.value_and_grad(loss, has_aux=True))

    def run(batch):
        (value, hidden), gradient = gradient_of(params, batch)
        return float(value), gradient, np.asarray(hidden)

    return run


def assert_same_gradient(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), one, other)


def test_packed_rows_have_the_loss_and_the_gradient_of_separate_rows(loss_and_gradient):
    examples = make_examples(np.random.default_rng(0))
    separate = make_batch([[e] for e in examples], 16, slots=2, examples_per_row=1)
    packed = make_batch([examples[:3], examples[3:]], 32, slots=6, examples_per_row=3)
    loss, gradient, hidden = loss_and_gradient(separate)
    packed_loss, packed_gradient, packed_hidden = loss_and_gradient(packed)
    assert packed_loss == pytest.approx(loss, abs=1e-5)
    assert_same_gradient(gradient, packed_gradient)
    second = slice(LENGTHS[0], LENGTHS[0] + LENGTHS[1])
    np.testing.assert_allclose(packed_hidden[0, second], hidden[1, : LENGTHS[1]], atol=1e-5)


def test_padding_changes_nothing(loss_and_gradient):
    rows = [[e] for e in make_examples(np.random.default_rng(1))]
    tight = make_batch(rows, max(LENGTHS), slots=2, examples_per_row=1)
    padded = make_batch(rows, 32, slots=5, examples_per_row=2)
    # What stands in the padding does not matter either.
    padded["input_ids"][padded["example_ids"] == 0] = 17
    loss, gradient, _ = loss_and_gradient(tight)
    padded_loss, padded_gradient, _ = loss_and_gradient(padded)
    assert padded_loss == pytest.approx(loss, abs=1e-5)
    assert_same_gradient(gradient, padded_gradient)


def test_padded_vocabulary_rows_have_no_probability(make_task):
    task = make_task(vocab_size=60, pad_vocab_to_multiple_of=64)
    batch = task.example_batch()
    variables = task.make_model().init(jax.random.key(0), batch, deterministic=True)
    table = variables["params"]["bert"]["embeddings"]["word_embeddings"]["embedding"]
    assert table.shape == (64, 16)
    outputs = task.make_model().apply(variables, batch, deterministic=True)
    probabilities = jax.nn.softmax(outputs.masked_lm_logits)
    assert float(probabilities[..., 60:].max()) == 0.0
