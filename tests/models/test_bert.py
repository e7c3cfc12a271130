"""The model as a whole: what the options change, and what they must not."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import bert
from bert_jax.models.bert import Bert
from bert_jax.models.heads import PreTrainingModel
from tests.models.small import (
    apply,
    assert_close,
    loss_and_gradient,
    make_batch,
    make_config,
    random_params,
)

make_model = functools.partial(PreTrainingModel, next_sentence=True)


@pytest.mark.parametrize(
    ("changes", "next_sentence"),
    [({}, True), ({"norm_place": "pre", "num_layers": 1, "remat": True}, False)],
)
def test_the_last_feed_forward_at_predicted_positions_gives_the_same_gradient(
    changes, next_sentence
):
    config = make_config(dropout_rate=0.0, attention_dropout_rate=0.0, **changes)
    less = dataclasses.replace(config, last_layer_predicted_only=True)
    models = [PreTrainingModel(each, next_sentence) for each in (config, less)]
    batch = make_batch()
    params = random_params(models[0], batch)
    assert_close(*(loss_and_gradient(m, params, batch) for m in models), rtol=0, atol=2e-6)


def test_values_at_padding_change_nothing():
    """With the lowest mask value too; test_task_heads has the default one."""
    lowest = float(np.finfo(np.float32).min)
    model, batch = make_model(make_config(mask_value=lowest)), make_batch()
    params = random_params(model, batch)
    is_padding = batch["example_ids"] == 0
    assert is_padding.any()
    junk = {
        **batch,
        "input_ids": np.where(is_padding, 50, batch["input_ids"]),
        "token_type_ids": np.where(is_padding, 1, batch["token_type_ids"]),
        "position_ids": np.where(is_padding, 3, batch["position_ids"]),
    }
    outputs, other = (apply(model, params, b) for b in (batch, junk))
    np.testing.assert_array_equal(outputs.masked_lm_logits, other.masked_lm_logits)
    np.testing.assert_array_equal(outputs.next_sentence_logits, other.next_sentence_logits)
    np.testing.assert_array_equal(outputs.hidden[~is_padding], other.hidden[~is_padding])


def test_padded_rows_of_the_vocabulary_get_no_probability_and_no_gradient():
    model = make_model(make_config(vocab_size=97, pad_vocab_to_multiple_of=64, num_layers=1))
    batch = make_batch()
    params = random_params(model, batch)
    logits = apply(model, params, batch).masked_lm_logits
    assert logits.shape[-1] == 128
    probs = np.exp(logits - logits.max(-1, keepdims=True))
    assert (probs[..., 97:] == 0).all() and (probs[..., :97] > 0).all()

    loss, grads = loss_and_gradient(model, params, batch)
    assert not grads["bert"]["embeddings"]["word_embeddings"]["embedding"][97:].any()
    assert not grads["masked_lm"]["bias"][97:].any()

    narrow = make_model(make_config(vocab_size=97, num_layers=1))
    table = params["bert"]["embeddings"]["word_embeddings"]
    table["embedding"] = table["embedding"][:97]
    params["masked_lm"]["bias"] = params["masked_lm"]["bias"][:97]
    assert loss_and_gradient(narrow, params, batch)[0] == pytest.approx(float(loss), rel=1e-6)


def test_recomputing_has_the_loss_and_gradient_of_plain_blocks():
    forms = {}, {"remat": True, "remat_policy": "products"}
    plain, other = (make_model(make_config(num_layers=1, **form)) for form in forms)
    batch = make_batch()
    params = random_params(plain, batch)
    assert_close(params, random_params(other, batch))
    expected = loss_and_gradient(plain, params, batch, seed=1)
    found = loss_and_gradient(other, params, batch, seed=1)
    assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_dropout_has_a_key_of_its_own_at_each_place():
    """One and the same layer twice would drop the same values if it drew with the same key."""
    body = Bert(make_config(num_layers=1, attention_dropout_rate=0.0))
    batch = make_batch()
    params = random_params(body, batch)

    @jax.jit
    def captured(key):
        return body.apply(
            {"params": params},
            batch,
            deterministic=False,
            rngs={"dropout": key},
            capture_intermediates=lambda module, _: type(module).__name__ == "Dropout",
            mutable="intermediates",
        )

    encoded, state = captured(jax.random.key(0))
    np.testing.assert_array_equal(encoded.hidden, captured(jax.random.key(0))[0].hidden)
    assert (encoded.hidden != captured(jax.random.key(1))[0].hidden).any()
    dropped = [np.asarray(leaf) == 0 for leaf in jax.tree.leaves(state) if leaf.ndim == 3]
    assert len(dropped) == 1 + 2 * body.config.num_layers
    for i, mask in enumerate(dropped):
        assert mask.mean() == pytest.approx(0.1, abs=0.03)
        assert all((mask != other).any() for other in dropped[:i])


def test_bfloat16_is_close_to_float32_and_keeps_float32_where_it_matters():
    exact, half = (make_config(num_layers=1, dtype=dtype) for dtype in ("float32", "bfloat16"))
    batch = make_batch()
    params = random_params(make_model(exact), batch)
    outputs = jax.eval_shape(lambda p: make_model(half).apply({"params": p}, batch), params)
    assert outputs.hidden.dtype == jnp.bfloat16
    assert outputs.masked_lm_logits.dtype == outputs.next_sentence_logits.dtype == jnp.float32
    encoded = jax.eval_shape(
        lambda p: Bert(half).apply({"params": p}, batch, keep_attention=True), params["bert"]
    )
    assert encoded.attention[0].dtype == jnp.float32

    loss, grads = loss_and_gradient(make_model(exact), params, batch)
    half_loss, half_grads = loss_and_gradient(make_model(half), params, batch)
    assert half_loss == pytest.approx(float(loss), rel=0.02)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(half_grads))
    whole, rounded = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(g)]) for g in (grads, half_grads)
    )
    cosine = whole @ rounded / np.linalg.norm(whole) / np.linalg.norm(rounded)
    assert cosine > 0.99


def test_the_example_of_the_module_runs():
    lines = (bert.__doc__ or "").splitlines()
    example = "\n".join(line.strip() for line in lines if line.startswith("    "))
    names = {"jax": jax, "jnp": jnp, **vars(bert)}

    def run():
        exec(example, names)
        return names["hidden"]

    assert jax.eval_shape(run).shape == (1, 3, 128)
