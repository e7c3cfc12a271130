"""race/train.py against the package: two implementations of one recipe, `configs/fast.py:plain`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.config.store import parse
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.optim.make import make_optimizer
from bert_jax.tasks.pretraining import Pretraining
from configs import fast
from race import train

WORDS, HIDDEN, INNER, LAYERS = 50, 16, 24, 3
LENGTH, SLOTS, STEPS = 20, 5, 20
# Paths of the package's parameters -> names here; those of a block below its number.
OUTER = {
    "embeddings/word_embeddings/embedding": "embedding",
    "embeddings/convolution/taps": "taps",
    "embeddings/layer_norm/scale": "norm",
    "encoder/layer_norm/scale": "last_norm",
}
BLOCK = {
    "attention/layer_norm/scale": "attention_norm",
    "attention/convolution/taps": "taps",
    "attention/query/kernel": "query",
    "attention/key/kernel": "key",
    "attention/value/kernel": "value",
    "attention/query_norm/scale": "query_norm",
    "attention/key_norm/scale": "key_norm",
    "attention/output/kernel": "output",
    "layer_norm/scale": "inner_norm",
    "intermediate/kernel": "inner",
    "output/kernel": "outer",
}


def to_package(params):
    """Returns a tree of race/train.py as one of the package."""
    found = {f"bert/{path}": params[name] for path, name in OUTER.items()}
    for number, block in enumerate(params["blocks"]):
        found |= {
            f"bert/encoder/layer_{number}/{path}": block[name] for path, name in BLOCK.items()
        }
    return unflatten(found)


@pytest.fixture(scope="module")
def run():
    """The package's `plain`, small and in float32."""
    config = fast.get_config("plain")
    config.dtype = "float32"
    config.model.vocab_size, config.model.num_layers = WORDS, LAYERS
    config.model.hidden_size, config.model.intermediate_size = HIDDEN, INNER
    config.phases, config.steps = ((LENGTH, 1.0, 4),), STEPS
    return parse(config)


@pytest.fixture(scope="module")
def params():
    """Random parameters, also where a new model has ones and zeros."""
    new = train.init_params(jax.random.key(0), WORDS, HIDDEN, INNER, LAYERS)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), new)


@pytest.fixture(scope="module")
def batch():
    """Rows of 20, 15, 9 and 3 tokens, with masks; the last one has a slot that is not used."""
    rng = np.random.default_rng(2)
    place, lengths = np.arange(LENGTH), np.array([[20], [15], [9], [3]])
    ids = rng.integers(5, WORDS, (4, LENGTH))
    ids = np.where(place == 0, train.CLS, np.where(place == lengths - 1, train.SEP, ids))
    ids = jnp.asarray(np.where(place < lengths, ids, train.PAD), jnp.int32)
    return ids, train.mask_batch(jax.random.key(3), ids, SLOTS, WORDS)


@pytest.fixture(scope="module", autouse=True)
def _in_float32():
    """Products are not rounded; vectors may be added to matrices, which is easier to read."""
    with pytest.MonkeyPatch.context() as patch, jax.numpy_rank_promotion("allow"):
        patch.setattr(train, "PRODUCTS", jnp.float32)
        yield


@pytest.fixture(scope="module")
def ours(params, batch):
    """The loss and the gradients of race/train.py."""
    return jax.jit(jax.value_and_grad(train.loss_of))(params, *batch[1])


def test_loss_and_gradients_are_the_package_s(run, params, batch, ours):
    ids, (inputs, positions, answers, weights) = batch
    task = Pretraining(model=run.model, next_sentence=False)
    masked = {
        "input_ids": inputs,
        "example_ids": (ids != train.PAD).astype(jnp.int32),
        "masked_lm_positions": positions,
        "masked_lm_ids": answers,
        "masked_lm_weights": weights,
    }

    def loss_of(params):
        outputs = task.make_model().apply({"params": params}, masked, deterministic=True)
        found = task.losses(outputs, masked)["masked_lm_loss"]
        return found.numerator / found.denominator

    loss, gradients = jax.jit(jax.value_and_grad(loss_of))(to_package(params))
    np.testing.assert_allclose(ours[0], loss, rtol=1e-5)
    mine, theirs = flatten(to_package(ours[1])), flatten(gradients)
    assert mine.keys() == theirs.keys()
    for path in mine:
        np.testing.assert_allclose(mine[path], theirs[path], rtol=1e-5, atol=1e-6, err_msg=path)


def test_steps_of_the_optimizer_are_the_package_s(run, params, ours):
    """Three steps: of the warm-up, of the peak, of the cool-down."""
    tx = train.make_optimizer(params)
    theirs, schedule = make_optimizer(run.optimizer, STEPS, warmup_steps=1)
    mine, other = params, to_package(params)
    state, other_state = tx.init(mine), theirs.init(other)
    update, other_update = jax.jit(tx.update), jax.jit(theirs.update)
    for number in range(3):
        gradients = jax.tree.map(lambda x, factor=3.0**number: factor * x, ours[1])
        directions, state = update(gradients, state, mine)
        mine = train.take_step(mine, directions, schedule(number))
        updates, other_state = other_update(to_package(gradients), other_state, other)
        other = optax.apply_updates(other, updates)
    before, mine, other = (flatten(x) for x in (to_package(params), to_package(mine), other))
    for path in other:
        changes = mine[path] - before[path], other[path] - before[path]
        assert np.abs(changes[1]).max() > 1e-3, path
        np.testing.assert_allclose(*changes, rtol=1e-4, atol=1e-6, err_msg=path)


def test_the_schedule_is_the_package_s(run):
    _, schedule = make_optimizer(run.optimizer, STEPS, warmup_steps=1)
    for step in range(STEPS):
        rate = train.learning_rate(jnp.float32(step / STEPS))
        np.testing.assert_allclose(rate, schedule(step), rtol=1e-5, atol=1e-9)
