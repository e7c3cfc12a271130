"""The encoder once more, in plain numpy and float64, written from the papers."""

import math

import jax
import numpy as np
import pytest

from bert_jax.models.bert import Bert
from tests.models.small import make_batch, make_config, random_params

erf = np.vectorize(math.erf)


def activate(x, activation):
    if activation == "relu_squared":
        return np.where(x > 0, x, 0) ** 2
    if activation == "gelu":
        return x * 0.5 * (1 + erf(x / math.sqrt(2)))
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def dense(x, p):
    return x @ p["kernel"] + p.get("bias", 0)


def layer_norm(x, p, config):
    centred = x - x.mean(-1, keepdims=True) if config.norm == "layer_norm" else x
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return centred / deviation * p["scale"] + p.get("bias", 0)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def rotate(x, positions, base):
    """[seq, head_dim]: features i and i + head_dim / 2 as complex numbers, turned."""
    half = x.shape[-1] // 2
    speeds = base ** (-np.arange(half) / half)
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * positions[:, None] * speeds)
    return np.concatenate([turned.real, turned.imag], -1)


def is_visible(config, ids, positions, everything):
    """bool[seq, seq], one pair after the other."""
    visible = np.zeros((len(ids), len(ids)), bool)
    for i in range(len(ids)):
        for j in range(len(ids)):
            distance = positions[i] - positions[j]
            allowed = {
                "bidirectional": True,
                "causal": distance >= 0,
                "window": abs(distance) <= config.attention_window,
            }[config.attention_pattern]
            visible[i, j] = ids[i] == ids[j] != 0 and (allowed or everything)
    return visible


def attend(x, visible, positions, p, config, base):
    """One row's [seq, hidden]; one head after the other."""
    query, key, value = (dense(x, p[name]) for name in ("query", "key", "value"))
    width = x.shape[-1] // config.num_heads
    heads, probs = [], []
    for start in range(0, x.shape[-1], width):
        part = slice(start, start + width)
        q, k = query[:, part], key[:, part]
        if config.query_key_norm:
            q, k = layer_norm(q, p["query_norm"], config), layer_norm(k, p["key_norm"], config)
        if config.positions == "rotary":
            q, k = rotate(q, positions, base), rotate(k, positions, base)
        probs.append(softmax(q @ k.T / math.sqrt(width) - 10_000 * ~visible))
        heads.append(probs[-1] @ value[:, part])
    return dense(np.concatenate(heads, -1), p["output"]), np.stack(probs)


def convolve(x, ids, p):
    """[seq, hidden]; one pair of positions after the other."""
    taps, y = p["taps"], np.zeros_like(x)
    for i in range(len(x)):
        for tap in range(len(taps)):
            j = i + tap - len(taps) // 2
            if 0 <= j < len(x) and ids[i] == ids[j]:
                y[i] += taps[tap] * x[j]
    return y


def feed(x, p, config):
    if config.feed_forward == "gated":
        inner = activate(dense(x, p["gate"]), config.activation) * dense(x, p["intermediate"])
    else:
        inner = activate(dense(x, p["intermediate"]), config.activation)
    return dense(inner, p["output"])


def encode(bert, config, batch, row):
    """All hidden states and the attention of one row."""
    tables = bert["embeddings"]
    positions = batch["position_ids"][row]
    x = tables["word_embeddings"]["embedding"][batch["input_ids"][row]]
    if config.positions == "learned":
        x = x + tables["position_embeddings"]["embedding"][positions]
    if config.positions == "sinusoidal":
        even = np.arange(0, config.hidden_size, 2)
        angles = positions[:, None] / 10_000 ** (even / config.hidden_size)
        x = x.copy()
        x[:, 0::2] += np.sin(angles)
        x[:, 1::2] += np.cos(angles)
    if config.type_vocab_size:
        x = x + tables["token_type_embeddings"]["embedding"][batch["token_type_ids"][row]]
    ids = batch["example_ids"][row]
    if config.convolution:
        x = convolve(x, ids, tables["convolution"])
    x = layer_norm(x, tables["layer_norm"], config)
    all_hidden, attention = [x], []
    for i in range(config.num_layers):
        p = bert["encoder"][f"layer_{i}"]
        everything = config.global_every > 0 and i % config.global_every == 0
        visible = is_visible(config, ids, positions, everything)
        base = config.rotary_base
        if config.attention_pattern == "window" and not everything and config.window_rotary_base:
            base = config.window_rotary_base
        sizes = (p["attention"], config, base)
        if config.norm_place == "pre":
            y = x
            if config.first_layer_norm or i > 0:
                y = layer_norm(x, p["attention"]["layer_norm"], config)
            if config.convolution:
                y = convolve(y, ids, p["attention"]["convolution"])
            y, probs = attend(y, visible, positions, *sizes)
            x = x + y
            x = x + feed(layer_norm(x, p["layer_norm"], config), p, config)
        else:
            y = convolve(x, ids, p["attention"]["convolution"]) if config.convolution else x
            y, probs = attend(y, visible, positions, *sizes)
            x = layer_norm(x + y, p["attention"]["layer_norm"], config)
            x = layer_norm(x + feed(x, p, config), p["layer_norm"], config)
        all_hidden.append(x)
        attention.append(probs)
    if config.norm_place == "pre":
        all_hidden[-1] = layer_norm(x, bert["encoder"]["layer_norm"], config)
    return all_hidden, attention


@pytest.fixture
def packed_batch():
    """Rows of three examples, with padding at the end; positions start again in each example."""
    batch = make_batch(make_config())
    ids = np.repeat([1, 2, 3, 0], [9, 7, 5, 3])
    positions = np.concatenate([np.arange(n) for n in (9, 7, 5, 3)])
    shape = batch["input_ids"].shape
    return batch | {
        "example_ids": np.broadcast_to(ids, shape).astype(np.int32),
        "position_ids": np.broadcast_to(positions, shape).astype(np.int32),
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "sinusoidal", "norm_place": "pre", "attention_pattern": "causal"},
        {"positions": "rotary", "query_key_norm": True, "norm": "rms_norm"},
        {"positions": "none", "convolution": 3, "activation": "relu_squared"},
        {"convolution": 5, "norm_place": "pre", "positions": "rotary"},
        {"attention_pattern": "window", "attention_window": 2, "feed_forward": "gated"},
        # ModernBERT (Warner et al. 2024).
        {
            "norm_place": "pre",
            "first_layer_norm": False,
            "biases": False,
            "type_vocab_size": 0,
            "positions": "rotary",
            "rotary_base": 160_000.0,
            "window_rotary_base": 10_000.0,
            "attention_pattern": "window",
            "attention_window": 2,
            "global_every": 3,
            "num_layers": 4,
            "feed_forward": "gated",
        },
        {
            "norm_place": "pre",
            "positions": "rotary",
            "attention_pattern": "causal",
            "feed_forward": "gated",
            "attention": "dot_product",
            "attention_dropout_rate": 0.0,
            "remat": True,
        },
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
def test_every_option_of_packed_rows(packed_batch, changes):
    config = make_config(**changes)
    model = Bert(config)
    params = random_params(model, packed_batch)
    found = model.apply(
        {"params": params},
        packed_batch,
        deterministic=True,
        keep_all=True,
        keep_attention=config.attention == "einsum",
    )
    np.testing.assert_array_equal(found.hidden, found.all_hidden[-1])
    exact = jax.tree.map(np.float64, params)
    for row in range(len(packed_batch["input_ids"])):
        is_token = packed_batch["example_ids"][row] > 0
        all_hidden, attention = encode(exact, config, packed_batch, row)
        for ours, theirs in zip(found.all_hidden, all_hidden, strict=True):
            np.testing.assert_allclose(ours[row][is_token], theirs[is_token], rtol=0, atol=1e-5)
        for ours, theirs in zip(found.attention, attention, strict=False):
            np.testing.assert_allclose(ours[row][:, is_token], theirs[:, is_token], atol=1e-5)
