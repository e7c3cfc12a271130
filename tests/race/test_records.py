"""The models of records: what is new in them, and that the rest is race/train.py's."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from race import check, evaluate, prepare, rules, train
from race.records.copies import train as copies
from race.records.recall import train as recall
from race.records.recall_45 import train as recall_45
from race.records.softmax import train as softmax
from race.records.spectral import train as spectral

WORDS, HIDDEN, LENGTH, SLOTS = 40, 16, 24, 6
WITH_MEMORY = (recall, recall_45, softmax, spectral)


@pytest.fixture(autouse=True)
def _as_records_do():
    """Products are not rounded; vectors may be added to matrices, which is easier to read."""
    with pytest.MonkeyPatch.context() as patch, jax.numpy_rank_promotion("allow"):
        patch.setattr(train, "PRODUCTS", jnp.float32)
        yield


@pytest.fixture
def batch():
    ids = jax.random.randint(jax.random.key(0), (4, LENGTH), train.MASK + 1, WORDS)
    ids = ids.at[:, 0].set(train.CLS).at[:, -1].set(train.SEP).at[0, -5:].set(train.PAD)
    return train.mask_batch(jax.random.key(1), ids, SLOTS, WORDS)


def make_params(seed: int = 0) -> dict:
    """Parameters with a filled table of contexts."""
    params = copies.init_params(jax.random.key(seed), WORDS, HIDDEN, 24)
    rows = len(copies.CONTEXTS) * copies.TABLE
    return params | {"contexts": jax.random.normal(jax.random.key(seed + 1), (rows, HIDDEN))}


@pytest.mark.parametrize("folder", sorted(rules.RECORDS.iterdir()), ids=lambda path: path.name)
def test_it_keeps_the_rules(folder, monkeypatch):
    results = rules.read_results(folder)
    monkeypatch.setattr(prepare, "fingerprint", lambda: results[0]["data"])
    assert not list(check.find_problems(folder, results))


def test_without_contexts_and_copies_it_is_the_plain_model(batch):
    inputs, positions, *_ = batch
    params = make_params()
    params["contexts"] = jnp.zeros_like(params["contexts"])
    params["copies"]["gate_bias"] = jnp.full(1, -1e4)
    expected = jax.nn.log_softmax(train.predict(params, inputs, positions))
    found = jax.nn.log_softmax(copies.predict(params, inputs, positions))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_loss_is_that_of_the_probabilities(batch):
    """Probabilities of all words, which the loss does not compute."""
    inputs, positions, answers, weights = batch
    params = make_params()
    where = copies.hash_contexts(inputs, positions)

    def slow(params):
        log_p = jax.nn.log_softmax(copies.predict(params, inputs, positions))
        log_p = jnp.take_along_axis(log_p, answers[..., None], axis=-1)[..., 0]
        return -(log_p * weights).sum() / weights.sum()

    def fast(params):
        return copies.loss_of(params, *batch, params["contexts"][where])

    expected, gradients = jax.value_and_grad(slow)(params)
    found, found_gradients = jax.value_and_grad(fast)(params)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found_gradients, gradients
    )


def test_a_context_is_the_tokens_at_its_places():
    ids = jnp.array([[2, 7, 8, 4, 9, 6, 3], [2, 7, 8, 4, 9, 5, 3], [2, 5, 8, 4, 9, 6, 3]])
    found = np.asarray(copies.hash_contexts(ids, jnp.full((3, 1), 3)))[:, 0]
    # Rows 0 and 1 have the same two tokens before the place, rows 0 and 2 the same two after it.
    same = [[a == b for b in found[:, kind]] for kind, a in enumerate(found[0])]
    assert same == [[True, True, True], [True, True, False], [True, False, True]]
    rows = found // copies.TABLE
    assert (rows == np.arange(3)).all()  # a table for each kind


def test_only_rows_that_were_read_change(batch):
    inputs, positions, answers, weights = batch
    params = make_params()
    where = copies.hash_contexts(inputs, positions)
    compute = jax.grad(copies.loss_of, argnums=5)
    gradients = compute(params, *batch, params["contexts"][where]) * weights.sum()
    squares = jnp.zeros(len(params["contexts"]))
    table, squares = copies.learn_contexts(params["contexts"], squares, where, gradients, 1.0)
    changed = np.unique(np.asarray(where)[np.asarray(weights) > 0])
    difference = np.abs(table - params["contexts"]).max(axis=1)
    assert (difference[changed] > 1e-3).all() and (np.delete(difference, changed) == 0).all()
    # The first step of Adagrad has the size of the rate, where a row was read once.
    once = [row for row in changed if (np.asarray(where) == row).sum() == 1]
    sizes = np.sqrt(np.square(table - params["contexts"])[np.array(once)].mean(axis=1))
    np.testing.assert_allclose(sizes, copies.CONTEXT_RATE, rtol=0.1)


def test_copies_are_of_other_places_that_show_a_word(batch):
    inputs, positions, answers, _ = batch
    params = make_params()
    params["copies"]["gate_bias"] = jnp.full(1, 1e4)  # nothing but copies
    p = np.exp(np.asarray(copies.predict(params, inputs, positions), np.float64))
    np.testing.assert_allclose(p.sum(axis=-1), 1, atol=1e-5)
    for row, slots, of_row in zip(np.asarray(inputs), np.asarray(positions), p, strict=True):
        for slot, of_slot in zip(slots, of_row, strict=True):
            others = {*np.delete(row, slot).tolist()} - {train.PAD, train.MASK}
            assert {*np.flatnonzero(of_slot > 1e-9).tolist()} <= others


# ---------------------------------------------------------------------------------- with a memory


@pytest.fixture
def text(tmp_path, monkeypatch):
    """Writes a text of 30 documents, and returns its tokens, their documents, and sentences."""
    rng = np.random.default_rng(0)
    sentences = np.concatenate([[0], np.cumsum(rng.integers(1, 2 * LENGTH, 120))])
    values = {
        "tokens": rng.integers(train.MASK + 1, 12, sentences[-1]).astype(np.uint16),
        "sentences": sentences.astype(np.int32),
        "documents": np.arange(0, 120, 4, dtype=np.int32),
    }
    np.savez(tmp_path / "train.npz", **values)
    monkeypatch.setattr(evaluate, "DATA", tmp_path)
    return recall.read_text()


def make_params_with_memory(record, seed: int = 0) -> dict:
    """Parameters of which few are zero."""
    params = record.init_params(jax.random.key(seed), WORDS, HIDDEN, 24)
    rows = record.WITH_VECTORS * record.TABLE
    params |= {"contexts": jax.random.normal(jax.random.key(seed + 1), (rows, HIDDEN))}
    for name in ("copies", "memory"):
        params[name]["bias"] = jax.random.normal(jax.random.key(seed + 2), (len(record.CONTEXTS),))
    return params


def test_rows_of_recall_are_those_of_the_text(text):
    stream, documents, sentences = text
    rows = recall.cut_rows(sentences, LENGTH)
    ids, places = recall.read_rows(jnp.asarray(stream), jnp.asarray(rows), LENGTH)
    np.testing.assert_array_equal(ids, train.cut_rows(train.read_text(), LENGTH))
    is_text = np.arange(LENGTH) < (rows[:, 1] - rows[:, 0] + 1)[:, None]
    is_text[:, 0] = False
    np.testing.assert_array_equal(stream[np.asarray(places)[is_text]], np.asarray(ids)[is_text])
    assert documents[-1] == 29


def test_recalled_tokens_have_the_same_neighbours_in_other_documents(text):
    """Against a search by hand."""
    stream, documents, _ = text
    memory = recall.make_memory(stream, documents, seed=0)
    keys = recall.hash_contexts(jnp.asarray(stream[None]))
    tokens, is_found = recall.recall(memory, keys, jnp.asarray(documents[None]), recall.RECALLED)
    tokens, is_found = np.asarray(tokens[0]), np.asarray(is_found[0])
    padded = np.pad(stream, recall.REACH, constant_values=train.PAD)
    windows = np.stack([padded[at : at + len(stream)] for at in range(2 * recall.REACH + 1)])
    for kind, offsets in enumerate(recall.CONTEXTS):
        contexts = windows[[recall.REACH + offset for offset in offsets]]  # [offsets, T]
        for place in range(0, len(stream), 7):
            is_same = (contexts == contexts[:, place, None]).all(axis=0)
            others = Counter(stream[is_same & (documents != documents[place])].tolist())
            found = Counter(tokens[place, kind][is_found[place, kind]].tolist())
            assert found <= others
            # All of them, or a sample, which may have own ones, too.
            assert found == others or is_same.sum() > recall.RECALLED
            seen = Counter(tokens[place, kind].tolist()[: is_same.sum()])
            assert seen <= Counter(stream[is_same].tolist())


@pytest.mark.parametrize("record", WITH_MEMORY, ids=lambda record: record.__name__.split(".")[2])
def test_without_memory_and_copies_it_is_the_plain_model(record, batch, text):
    inputs, positions, *_ = batch
    stream, documents, _ = text
    params = make_params_with_memory(record)
    params["contexts"] = jnp.zeros_like(params["contexts"])
    params["memory"]["bring"] = jnp.zeros((HIDDEN, HIDDEN))
    params["copies"]["gate_bias"] = jnp.full(1, -1e4)
    expected = jax.nn.log_softmax(train.predict(params, inputs, positions))
    memory = record.make_memory(stream, documents, seed=0)
    found = jax.nn.log_softmax(record.predict(params, memory, inputs, positions))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("record", WITH_MEMORY, ids=lambda record: record.__name__.split(".")[2])
def test_its_loss_is_that_of_the_probabilities(record, batch, monkeypatch):
    """The text is that of the batch, so that much is recalled; no document is left out."""
    monkeypatch.setattr(record, "RECALLED_LATER", record.RECALLED)
    inputs, positions, answers, weights = batch
    params = make_params_with_memory(record)
    ids = np.asarray(inputs.at[jnp.arange(4)[:, None], positions].set(answers))
    memory = record.make_memory(ids.reshape(-1), np.zeros(ids.size, np.int32), seed=0)
    own = jnp.full(positions.shape, -1)
    keys = record.take(record.hash_contexts(inputs), positions)
    assert record.recall(memory, keys, own, 8)[1].any(axis=(1, 3)).all(axis=0).any()

    def slow(params):
        log_p = jax.nn.log_softmax(record.predict(params, memory, inputs, positions))
        log_p = jnp.take_along_axis(log_p, answers[..., None], axis=-1)[..., 0]
        return -(log_p * weights).sum() / weights.sum()

    def fast(params):
        vectors = params["contexts"][record.rows_of(keys)]
        return record.loss_of(params, memory, batch, own, vectors)

    expected, gradients = jax.value_and_grad(slow)(params)
    found, found_gradients = jax.value_and_grad(fast)(params)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found_gradients, gradients
    )
    assert np.abs(gradients["memory"]["query"]).max() > 1e-6
    assert np.abs(gradients["memory"]["bring"]).max() > 1e-6


def test_first_embeddings_are_singular_vectors_of_what_stands_beside_a_word():
    """Against numpy, for a table made by hand; the rank is about that of the groups of words."""
    words, groups, size = 24, 4, 4
    rng = np.random.default_rng(0)
    # Words of a group follow those of the group before it, most of the time.
    of_groups = (np.arange(3000) + rng.integers(0, 2, 3000) * rng.integers(0, 2, 3000)) % groups
    stream = (of_groups * 5 + rng.integers(0, 5, 3000)).astype(np.int32)  # 20 to 23 are not there
    pairs = Counter(zip(stream.tolist(), stream[1:].tolist(), strict=False))
    first, second = Counter(stream[:-1].tolist()), Counter(stream[1:].tolist())
    table = np.zeros((words, 2 * words))
    for (i, j), count in pairs.items():
        value = max(0.0, np.log(count * len(stream) / (first[i] * second[j])))
        table[i, j] = table[j, words + i] = value
    left, values, _ = np.linalg.svd(table)
    expected = left[:, :size] * values[:size] ** spectral.POWER
    initial = jax.random.normal(jax.random.key(0), (words, size))
    expected *= np.sqrt(np.square(initial).mean() / np.square(expected).mean())
    found = np.asarray(spectral.first_embeddings(stream, initial))
    np.testing.assert_array_equal(found[20:], initial[20:])
    # Signs are arbitrary, and products do not depend on them. Six rounds are not quite enough.
    products = (expected @ expected.T)[:20, :20]
    np.testing.assert_allclose(found[:20] @ found[:20].T, products, atol=0.05 * products.max())
