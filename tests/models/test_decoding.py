"""Decoding with a cache of keys and values gives the hidden states of the whole rows."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from bert_jax.models import MODELS
from bert_jax.models.gpt import GptConfig
from bert_jax.models.layers.cache import make_cache
from tests.models.small import apply, make_batch, make_config, random_params

TINY_GPT = GptConfig(
    vocab_size=97,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    intermediate_size=64,
    max_position_embeddings=40,
    prng_impl="threefry2x32",
)
# Left-to-right models by name.
CONFIGS = {"gpt": TINY_GPT, "bert": make_config(attention_pattern="causal")}
BATCH, SEQ, CAPACITY = 4, 16, 18
# Of a batch, what `decode` takes.
FIELDS = ("input_ids", "token_type_ids", "example_ids")


@functools.partial(jax.jit, static_argnums=0)
def decode(encoder, params, batch, cache):
    return encoder.apply({"params": params}, batch, cache, method="decode")


def pieces_of(batch, steps):
    """Yields parts of the rows, `steps` positions each, as `decode` takes them."""
    start = 0
    for step in steps:
        part = slice(start, start + step)
        yield part, {name: batch[name][:, part] for name in FIELDS}
        start += step


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpt", {"positions": "rotary", "norm_place": "pre", "remat": True}),
        ("bert", {"attention": "dot_product", "attention_dropout_rate": 0.0}),
    ],
    ids=str,
)
def test_decoding_step_by_step_is_encoding_at_once(name, changes):
    """Rows of different lengths: pieces of 3 positions and of 1."""
    config = dataclasses.replace(CONFIGS[name], **changes)
    encoder = MODELS[name].encoder(config)
    batch = make_batch(config, BATCH, SEQ, shortest=3, predictions=1)
    params = random_params(encoder, batch)
    whole, cache = apply(encoder, params, batch).hidden, make_cache(config, BATCH, CAPACITY)
    for part, piece in pieces_of(batch, (3, 1, 1, 1, 3, 1, 3, 1, 1, 1)):
        hidden, cache = decode(encoder, params, piece, cache)
        is_token = piece["example_ids"] > 0
        np.testing.assert_allclose(
            np.asarray(hidden)[is_token], whole[:, part][is_token], atol=1e-5
        )
    np.testing.assert_array_equal(cache.lengths, batch["example_ids"].sum(1))


def test_a_row_continues_over_the_padding_of_its_prompt():
    """Prompts of different lengths are padded to one length; their next tokens follow them."""
    encoder = MODELS["gpt"].encoder(TINY_GPT)
    batch = make_batch(TINY_GPT, BATCH, SEQ, shortest=SEQ, predictions=1)
    params = random_params(encoder, batch)
    whole, rows = apply(encoder, params, batch).hidden, np.arange(BATCH)
    lengths = np.array([2, 3, 1, 0])
    is_token = (np.arange(3) < lengths[:, None]).astype(np.int32)
    prompt = {name: batch[name][:, :3] for name in batch} | {"example_ids": is_token}
    cache = make_cache(TINY_GPT, BATCH, CAPACITY)
    _, cache = decode(encoder, params, next(pieces_of(prompt, [3]))[1], cache)
    for step in range(7):
        one = {name: batch[name][rows, lengths + step][:, None] for name in FIELDS}
        hidden, cache = decode(encoder, params, one, cache)
        expected = whole[rows, lengths + step]
        np.testing.assert_allclose(np.asarray(hidden)[:, 0], expected, atol=1e-5)
    np.testing.assert_array_equal(cache.lengths, lengths + 7)


@pytest.mark.parametrize(
    ("changes", "capacity", "message"),
    [
        ({"attention_pattern": "bidirectional"}, 8, "pattern='bidirectional': hidden states depe"),
        ({}, 41, "41 positions are more than the model's 40"),
    ],
)
def test_a_cache_that_cannot_be_is_refused(changes, capacity, message):
    config = dataclasses.replace(TINY_GPT, **changes)
    with pytest.raises(ValueError, match=message):
        make_cache(config, batch_size=1, capacity=capacity)
