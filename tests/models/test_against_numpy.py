"""BERT once more, in plain numpy and float64, written from the paper and the released code."""

import math

import jax
import numpy as np
import pytest

from bert_jax.models import Bert, BertForPreTraining

erf = np.vectorize(math.erf)


def gelu(x, activation):
    if activation == "gelu":
        return x * 0.5 * (1 + erf(x / math.sqrt(2)))
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def dense(x, p):
    return x @ p["kernel"] + p["bias"]


def layer_norm(x, p):
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return centred / deviation * p["scale"] + p["bias"]


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def attend(x, is_token, p, num_heads):
    """One example's [seq, hidden]; one head after the other."""
    query, key, value = (dense(x, p[name]) for name in ("query", "key", "value"))
    width = x.shape[-1] // num_heads
    heads, probs = [], []
    for start in range(0, x.shape[-1], width):
        part = slice(start, start + width)
        scores = query[:, part] @ key[:, part].T / math.sqrt(width)
        probs.append(softmax(scores - 10_000 * ~is_token))
        heads.append(probs[-1] @ value[:, part])
    return dense(np.concatenate(heads, -1), p["output"]), np.stack(probs)


def run(params, config, batch, row):
    """Logits of both heads, all hidden states and attention of one row."""
    bert = params["bert"]
    tables = bert["embeddings"]
    words = tables["word_embeddings"]["embedding"]
    x = words[batch["input_ids"][row]]
    x = x + tables["position_embeddings"]["embedding"][batch["position_ids"][row]]
    x = x + tables["token_type_embeddings"]["embedding"][batch["token_type_ids"][row]]
    x = layer_norm(x, tables["layer_norm"])
    all_hidden, attention = [x], []
    for i in range(config.num_layers):
        p = bert["encoder"][f"layer_{i}"]
        y, probs = attend(x, batch["example_ids"][row] > 0, p["attention"], config.num_heads)
        x = layer_norm(x + y, p["attention"]["layer_norm"])
        y = dense(gelu(dense(x, p["intermediate"]), config.activation), p["output"])
        x = layer_norm(x + y, p["layer_norm"])
        all_hidden.append(x)
        attention.append(probs)
    pooled = np.tanh(dense(x[0], bert["pooler"]))
    head = params["masked_lm"]
    asked = gelu(dense(x[batch["masked_lm_positions"][row]], head["transform"]), config.activation)
    logits = layer_norm(asked, head["layer_norm"]) @ words.T + head["bias"]
    return logits, dense(pooled, params["next_sentence"]), all_hidden, attention


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("num_layers", [2, 12])
def test_every_number_on_the_way(make_config, make_batch, random_params, activation, num_layers):
    config = make_config(activation=activation, num_layers=num_layers)
    batch = make_batch(config)
    params = random_params(config, batch)
    heads = BertForPreTraining(config).apply({"params": params}, batch, deterministic=True)
    body = Bert(config).apply({"params": params["bert"]}, batch, deterministic=True, keep_all=True)
    exact = jax.tree.map(np.float64, params)
    tolerance = {"rtol": 0, "atol": 1e-5 if num_layers == 2 else 1e-4}
    for row in range(len(batch["input_ids"])):
        is_token = batch["example_ids"][row] > 0
        logits, pair_logits, all_hidden, attention = run(exact, config, batch, row)
        np.testing.assert_allclose(heads.masked_lm_logits[row], logits, **tolerance)
        np.testing.assert_allclose(heads.next_sentence_logits[row, 0], pair_logits, **tolerance)
        for ours, theirs in zip(body.all_hidden, all_hidden, strict=True):
            np.testing.assert_allclose(ours[row][is_token], theirs[is_token], **tolerance)
        for ours, theirs in zip(body.attention, attention, strict=True):
            np.testing.assert_allclose(ours[row][:, is_token], theirs[:, is_token], **tolerance)
