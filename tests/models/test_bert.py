"""The model as a whole: what the options change, and what they must not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import Bert, BertForPreTraining
from bert_jax.models.bert import attention_bias
from bert_jax.tasks import objectives


def forward(config, params, batch, **options):
    return BertForPreTraining(config).apply({"params": params}, batch, **options)


def loss_and_gradient(config, params, batch, seed=None):
    """With dropout if there is a seed."""
    options = {"deterministic": True}
    if seed is not None:
        options = {"deterministic": False, "rngs": {"dropout": jax.random.key(seed)}}

    def loss_of(params):
        outputs = forward(config, params, batch, **options)
        sums = objectives.masked_lm(outputs.masked_lm_logits, batch)
        sums |= objectives.next_sentence(outputs.next_sentence_logits, batch)
        terms = (sums["masked_lm_loss"], sums["next_sentence_loss"])
        return sum(term.numerator / term.denominator for term in terms)

    return jax.jit(jax.value_and_grad(loss_of))(jax.tree.map(jnp.asarray, params))


def assert_close(tree, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), tree, other)


def test_masked_words_are_answered_alike_without_next_sentence_prediction(
    make_config, make_batch, random_params
):
    config = make_config()
    batch = make_batch(config)
    params = random_params(config, batch)
    whole = forward(config, params, batch, deterministic=True)
    bert = {name: part for name, part in params["bert"].items() if name != "pooler"}
    less = {"bert": bert, "masked_lm": params["masked_lm"]}
    without = make_config(next_sentence=False)
    found = forward(without, less, batch, deterministic=True)
    np.testing.assert_array_equal(found.masked_lm_logits, whole.masked_lm_logits)
    assert found.next_sentence_logits is None
    assert Bert(without).apply({"params": bert}, batch, deterministic=True).pooled is None


def test_a_position_sees_its_own_example_and_nobody_sees_padding():
    bias = attention_bias(jnp.array([[1, 1, 2, 0]]), -10_000.0)
    hidden = np.full((4, 4), -10_000.0, np.float32)
    hidden[:2, :2] = hidden[2, 2] = 0
    np.testing.assert_array_equal(bias, hidden[None, None])


@pytest.mark.parametrize("hidden_value", [-10_000.0, -1e9, np.finfo(np.float32).min])
def test_what_stands_in_padding_changes_nothing(
    make_config, make_batch, random_params, hidden_value
):
    config = make_config(mask_value=hidden_value)
    batch = make_batch(config)
    params = random_params(config, batch)
    is_padding = batch["example_ids"] == 0
    assert is_padding.any()
    junk = {
        **batch,
        "input_ids": np.where(is_padding, 50, batch["input_ids"]),
        "token_type_ids": np.where(is_padding, 1, batch["token_type_ids"]),
        "position_ids": np.where(is_padding, 3, batch["position_ids"]),
    }
    outputs, other = (forward(config, params, b, deterministic=True) for b in (batch, junk))
    np.testing.assert_array_equal(outputs.masked_lm_logits, other.masked_lm_logits)
    np.testing.assert_array_equal(outputs.next_sentence_logits, other.next_sentence_logits)
    np.testing.assert_array_equal(outputs.hidden[~is_padding], other.hidden[~is_padding])


def test_padded_rows_of_the_vocabulary_get_no_probability_and_no_gradient(
    make_config, make_batch, random_params
):
    config = make_config(vocab_size=97, pad_vocab_to_multiple_of=64)
    batch = make_batch(config)
    params = random_params(config, batch)
    logits = forward(config, params, batch, deterministic=True).masked_lm_logits
    assert logits.shape[-1] == 128
    probs = jax.nn.softmax(logits)
    assert (probs[..., 97:] == 0).all() and (probs[..., :97] > 0).all()

    loss, grads = loss_and_gradient(config, params, batch)
    assert not grads["bert"]["embeddings"]["word_embeddings"]["embedding"][97:].any()
    assert not grads["masked_lm"]["bias"][97:].any()

    narrow = make_config(vocab_size=97)
    params["bert"]["embeddings"]["word_embeddings"]["embedding"] = params["bert"]["embeddings"][
        "word_embeddings"
    ]["embedding"][:97]
    params["masked_lm"]["bias"] = params["masked_lm"]["bias"][:97]
    assert loss_and_gradient(narrow, params, batch)[0] == pytest.approx(float(loss), rel=1e-6)


def test_recomputing_activations_changes_nothing(make_config, make_batch, random_params):
    config = make_config()
    batch = make_batch(config)
    params = random_params(config, batch)
    plain = loss_and_gradient(config, params, batch, seed=1)
    again = loss_and_gradient(dataclasses.replace(config, remat=True), params, batch, seed=1)
    assert_close(plain, again, rtol=1e-5, atol=1e-6)


def test_dropout_has_a_key_of_its_own_at_each_place(make_config, make_batch, random_params):
    config = make_config(num_layers=1)
    batch = make_batch(config)
    params = random_params(config, batch)
    losses = [float(loss_and_gradient(config, params, batch, seed=s)[0]) for s in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]

    # One and the same layer twice would drop the same values if it drew with the same key.
    model = Bert(dataclasses.replace(config, attention_dropout_rate=0.0))

    @jax.jit
    def captured(key):
        return model.apply(
            {"params": params["bert"]},
            batch,
            deterministic=False,
            rngs={"dropout": key},
            capture_intermediates=lambda module, _: type(module).__name__ == "Dropout",
            mutable="intermediates",
        )[1]

    state = captured(jax.random.key(0))
    dropped = [np.asarray(leaf) == 0 for leaf in jax.tree.leaves(state) if leaf.ndim == 3]
    assert len(dropped) == 1 + 2 * config.num_layers
    for i, mask in enumerate(dropped):
        assert mask.mean() == pytest.approx(0.1, abs=0.03)
        assert all((mask != other).any() for other in dropped[:i])


def test_bfloat16_is_close_to_float32_and_keeps_float32_where_it_matters(
    make_config, make_batch, random_params
):
    config = make_config()
    batch = make_batch(config)
    params = random_params(config, batch)
    half = dataclasses.replace(config, dtype="bfloat16")
    outputs = forward(half, params, batch, deterministic=True)
    assert outputs.hidden.dtype == jnp.bfloat16
    assert outputs.masked_lm_logits.dtype == outputs.next_sentence_logits.dtype == jnp.float32
    encoded = Bert(half).apply({"params": params["bert"]}, batch, deterministic=True, keep_all=True)
    assert encoded.attention[0].dtype == jnp.float32

    loss, grads = loss_and_gradient(config, params, batch)
    half_loss, half_grads = loss_and_gradient(half, params, batch)
    assert half_loss == pytest.approx(float(loss), rel=0.02)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(half_grads))
    exact, rounded = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(g)]) for g in (grads, half_grads)
    )
    cosine = exact @ rounded / np.linalg.norm(exact) / np.linalg.norm(rounded)
    assert cosine > 0.99


def test_all_hidden_states_only_when_asked_for(make_config, make_batch, random_params):
    config = make_config()
    batch = make_batch(config)
    variables = {"params": random_params(config, batch)["bert"]}
    plain = Bert(config).apply(variables, batch, deterministic=True)
    full = Bert(config).apply(variables, batch, deterministic=True, keep_all=True)
    assert plain.all_hidden == plain.attention == ()
    np.testing.assert_allclose(full.all_hidden[-1], plain.hidden, atol=1e-6)
    np.testing.assert_allclose(full.attention[0].sum(-1), 1, atol=1e-6)
