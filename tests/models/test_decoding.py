"""Decoding with a cache of keys and values gives the hidden states of the whole rows."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import MODELS
from bert_jax.models.gpt import GptConfig
from bert_jax.models.layers.cache import Cache, make_cache

TINY_GPT = GptConfig(
    vocab_size=97,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    intermediate_size=64,
    max_position_embeddings=40,
    prng_impl="threefry2x32",
)


@pytest.fixture
def models(make_config):
    """By name: the configuration of a left-to-right model."""
    return {"gpt": TINY_GPT, "bert": make_config(attention_pattern="causal")}


def pieces_of(batch, steps):
    """Yields parts of the rows, `steps` positions each, as `decode` takes them."""
    start = 0
    for step in steps:
        part = slice(start, start + step)
        names = ("input_ids", "token_type_ids", "example_ids")
        yield part, {name: batch[name][:, part] for name in names}
        start += step


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpt", {}),
        ("gpt", {"positions": "rotary", "norm_place": "pre", "feed_forward": "gated"}),
        ("gpt", {"positions": "none", "remat": True}),
        ("gpt", {"attention": "dot_product", "attention_dropout_rate": 0.0}),
        ("bert", {}),
    ],
    ids=str,
)
def test_decoding_step_by_step_is_encoding_at_once(
    models, make_batch, random_params, name, changes
):
    """Rows of different lengths: a prompt of 7 positions, then 1 at a time, then 3."""
    config = dataclasses.replace(models[name], **changes)
    encoder = MODELS[name].encoder(config)
    batch = make_batch(config, batch=4, seq=16, shortest=3, predictions=1)
    params = {"params": random_params(encoder, batch)}
    whole = jax.jit(lambda b: encoder.apply(params, b, deterministic=True).hidden)(batch)
    decode = jax.jit(lambda b, c: encoder.apply(params, b, c, method="decode"))
    cache = make_cache(config, batch_size=4, capacity=18)
    for part, piece in pieces_of(batch, (7, 1, 1, 1, 3, 1, 1, 1)):
        hidden, cache = decode(piece, cache)
        is_token = piece["example_ids"] > 0
        np.testing.assert_allclose(hidden[is_token], whole[:, part][is_token], atol=1e-5)
    np.testing.assert_array_equal(cache.lengths, batch["example_ids"].sum(1))


def test_a_row_continues_over_the_padding_of_its_prompt(models, make_batch, random_params):
    """Prompts of different lengths are padded to one length; their next tokens follow them."""
    config = models["gpt"]
    encoder = MODELS["gpt"].encoder(config)
    batch = make_batch(config, batch=4, seq=16, shortest=16, predictions=1)
    params = {"params": random_params(encoder, batch)}
    whole = jax.jit(lambda b: encoder.apply(params, b, deterministic=True).hidden)(batch)
    decode = jax.jit(lambda b, c: encoder.apply(params, b, c, method="decode"))
    lengths = np.array([2, 9, 5, 0])
    prompt = {
        "input_ids": batch["input_ids"][:, :9],
        "example_ids": (np.arange(9) < lengths[:, None]).astype(np.int32),
    }
    _, cache = decode(prompt, make_cache(config, batch_size=4, capacity=16))
    rows = np.arange(4)
    for step in range(7):
        ids = batch["input_ids"][rows, lengths + step][:, None]
        one = {"input_ids": ids, "example_ids": np.ones_like(ids)}
        hidden, cache = decode(one, cache)
        np.testing.assert_allclose(hidden[:, 0], whole[rows, lengths + step], atol=1e-5)
    np.testing.assert_array_equal(cache.lengths, lengths + 7)


def test_a_cache_is_a_value(models, make_batch, random_params):
    """A call leaves the cache that it takes as it is: two continuations start from the same one."""
    config = models["gpt"]
    encoder = MODELS["gpt"].encoder(config)
    batch = make_batch(config, batch=2, seq=8, shortest=8, predictions=1)
    params = {"params": random_params(encoder, batch)}
    empty = make_cache(config, batch_size=2, capacity=8)
    piece = {name: jnp.asarray(batch[name]) for name in ("input_ids", "example_ids")}
    first, cache = encoder.apply(params, piece, empty, method="decode")
    assert isinstance(cache, Cache) and not np.asarray(empty.lengths).any()
    assert all(not np.asarray(layer[0]).any() for layer in empty.layers)
    again, _ = encoder.apply(params, piece, empty, method="decode")
    np.testing.assert_array_equal(first, again)


def test_a_cache_has_the_dtype_of_the_activations(models):
    config = dataclasses.replace(models["gpt"], dtype="bfloat16")
    cache = make_cache(config, batch_size=2, capacity=8)
    assert len(cache.layers) == 2 and cache.capacity == 8
    assert cache.layers[0][1].shape == (2, 8, 4, 8)
    assert cache.layers[0][1].dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("changes", "capacity", "message"),
    [
        (
            {"attention_pattern": "bidirectional"},
            8,
            "config.model.attention_pattern='bidirectional': hidden states depend on later words"
            " too, so text"
            " cannot be continued word by word; that needs a model trained with"
            " attention_pattern='causal'.",
        ),
        (
            {},
            41,
            "41 positions are more than the model's 40 (config.model.max_position_embeddings).",
        ),
    ],
)
def test_a_cache_that_cannot_be_is_refused(models, changes, capacity, message):
    config = dataclasses.replace(models["gpt"], **changes)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_cache(config, batch_size=1, capacity=capacity)
