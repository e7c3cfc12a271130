"""The model as a whole: what the options change, and what they must not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import bert
from bert_jax.models.bert import Bert
from bert_jax.models.heads import PreTrainingModel


def make_model(config):
    return PreTrainingModel(config, next_sentence=True)


def forward(config, params, batch, **options):
    return make_model(config).apply({"params": params}, batch, **options)


def assert_close(tree, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), tree, other)


def test_masked_words_have_the_same_logits_without_next_sentence_prediction(
    make_config, make_batch, random_params
):
    config = make_config()
    batch = make_batch(config)
    params = random_params(make_model(config), batch)
    whole = forward(config, params, batch, deterministic=True)
    bert = {name: part for name, part in params["bert"].items() if name != "pooler"}
    less = {"bert": bert, "masked_lm": params["masked_lm"]}
    model = PreTrainingModel(config, next_sentence=False)
    found = model.apply({"params": less}, batch, deterministic=True)
    np.testing.assert_array_equal(found.masked_lm_logits, whole.masked_lm_logits)
    assert found.next_sentence_logits is None


@pytest.mark.parametrize("mask_value", [-10_000.0, -1e9, float(np.finfo(np.float32).min)])
def test_values_at_padding_change_nothing(make_config, make_batch, random_params, mask_value):
    config = make_config(mask_value=mask_value)
    batch = make_batch(config)
    params = random_params(make_model(config), batch)
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
    make_config, make_batch, random_params, loss_and_gradient
):
    config = make_config(vocab_size=97, pad_vocab_to_multiple_of=64, num_layers=1)
    batch = make_batch(config)
    params = random_params(make_model(config), batch)
    logits = forward(config, params, batch, deterministic=True).masked_lm_logits
    assert logits.shape[-1] == 128
    probs = jax.nn.softmax(logits)
    assert (probs[..., 97:] == 0).all() and (probs[..., :97] > 0).all()

    loss, grads = loss_and_gradient(make_model(config), params, batch)
    assert not grads["bert"]["embeddings"]["word_embeddings"]["embedding"][97:].any()
    assert not grads["masked_lm"]["bias"][97:].any()

    narrow = make_model(make_config(vocab_size=97, num_layers=1))
    table = params["bert"]["embeddings"]["word_embeddings"]
    table["embedding"] = table["embedding"][:97]
    params["masked_lm"]["bias"] = params["masked_lm"]["bias"][:97]
    assert loss_and_gradient(narrow, params, batch)[0] == pytest.approx(float(loss), rel=1e-6)


@pytest.mark.parametrize("kept", ["nothing", "products"])
def test_recomputing_activations_changes_nothing(
    make_config, make_batch, random_params, loss_and_gradient, kept
):
    config = make_config()
    batch = make_batch(config)
    params = random_params(make_model(config), batch)
    plain = loss_and_gradient(make_model(config), params, batch, seed=1)
    again = make_model(dataclasses.replace(config, remat=True, remat_policy=kept))
    assert_close(plain, loss_and_gradient(again, params, batch, seed=1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"remat": True, "remat_policy": "products"},
        {"norm_place": "pre", "positions": "rotary", "feed_forward": "gated"},
    ],
    ids=["plain", "remat", "pre"],
)
def test_blocks_in_a_loop_are_the_same_blocks(
    make_config, make_batch, random_params, loss_and_gradient, changes
):
    config = make_config(dropout_rate=0.0, attention_dropout_rate=0.0, num_layers=3, **changes)
    loop = dataclasses.replace(config, scan_layers=True)
    batch = make_batch(config)
    params = random_params(make_model(loop), batch)
    assert_close(params, random_params(make_model(config), batch))
    plain = loss_and_gradient(make_model(config), params, batch, seed=1)
    again = loss_and_gradient(make_model(loop), params, batch, seed=1)
    assert_close(plain, again, rtol=1e-5, atol=1e-6)
    bert = {name: part for name, part in params["bert"].items() if name != "pooler"}
    for kept in ({}, {"keep_all": True, "keep_attention": True}):
        found, expected = (
            Bert(c).apply({"params": bert}, batch, deterministic=True, **kept)
            for c in (loop, config)
        )
        assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_blocks_in_a_loop_are_compiled_once(make_config, make_batch, random_params):
    def products(num_layers):
        config = make_config(scan_layers=True, num_layers=num_layers)
        batch = make_batch(config)
        params = random_params(make_model(config), batch)
        lowered = jax.jit(lambda p: forward(config, p, batch, deterministic=True)).lower(params)
        return lowered.as_text().count("dot_general")

    assert products(2) == products(5)


def test_blocks_in_a_loop_drop_values_of_their_own(make_config, make_batch, random_params):
    config = make_config(scan_layers=True, norm_place="pre", num_layers=3, dropout_rate=0.25)
    batch = make_batch(config)
    # Both sub-layers of a block add 1, or 0 where it is dropped.
    params = jax.tree.map(np.zeros_like, random_params(Bert(config), batch))
    for number in range(config.num_layers):
        block = params["encoder"][f"layer_{number}"]
        block["attention"]["output"]["bias"] = block["output"]["bias"] = np.float32(
            np.ones(config.hidden_size)
        )

    def dropped(seed):
        rngs = {"dropout": jax.random.key(seed)}
        encoded = Bert(config).apply(
            {"params": params}, batch, deterministic=False, keep_all=True, rngs=rngs
        )
        embeddings, *hidden = (np.asarray(x) for x in encoded.all_hidden[:-1])
        return [
            np.rint((b - a) * 0.75) for a, b in zip([embeddings, *hidden], hidden, strict=False)
        ]

    first, second = dropped(0)
    np.testing.assert_array_equal(first, dropped(0)[0])
    for other in (second, dropped(1)[0]):
        assert (first != other).mean() > 0.3
    for values in (first, second):
        counts = [(values == n).mean() for n in (0, 1, 2)]
        np.testing.assert_allclose(counts, [0.0625, 0.375, 0.5625], atol=0.03)


def test_dropout_has_a_key_of_its_own_at_each_place(
    make_config, make_batch, random_params, loss_and_gradient
):
    config = make_config(num_layers=1)
    batch = make_batch(config)
    model = make_model(config)
    params = random_params(model, batch)
    losses = [float(loss_and_gradient(model, params, batch, seed=s)[0]) for s in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]

    # One and the same layer twice would drop the same values if it drew with the same key.
    body = Bert(dataclasses.replace(config, attention_dropout_rate=0.0))
    params = {name: part for name, part in params["bert"].items() if name != "pooler"}

    @jax.jit
    def captured(key):
        return body.apply(
            {"params": params},
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
    make_config, make_batch, random_params, loss_and_gradient
):
    config = make_config()
    batch = make_batch(config)
    params = random_params(make_model(config), batch)
    half = dataclasses.replace(config, dtype="bfloat16")
    outputs = forward(half, params, batch, deterministic=True)
    assert outputs.hidden.dtype == jnp.bfloat16
    assert outputs.masked_lm_logits.dtype == outputs.next_sentence_logits.dtype == jnp.float32
    encoded = Bert(half).apply(
        {"params": params["bert"]}, batch, deterministic=True, keep_attention=True
    )
    assert encoded.attention[0].dtype == jnp.float32

    loss, grads = loss_and_gradient(make_model(config), params, batch)
    half_loss, half_grads = loss_and_gradient(make_model(half), params, batch)
    assert half_loss == pytest.approx(float(loss), rel=0.02)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(half_grads))
    exact, rounded = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(g)]) for g in (grads, half_grads)
    )
    cosine = exact @ rounded / np.linalg.norm(exact) / np.linalg.norm(rounded)
    assert cosine > 0.99


def test_hidden_states_and_attention_only_on_request(make_config, make_batch, random_params):
    config = make_config()
    batch = make_batch(config)
    variables = {"params": random_params(Bert(config), batch)}
    plain = Bert(config).apply(variables, batch, deterministic=True)
    assert plain.all_hidden == plain.attention == ()
    full = Bert(config).apply(variables, batch, deterministic=True, keep_all=True)
    assert len(full.all_hidden) == 3 and full.attention == ()
    np.testing.assert_allclose(full.all_hidden[-1], plain.hidden, atol=1e-6)
    full = Bert(config).apply(variables, batch, deterministic=True, keep_attention=True)
    assert len(full.attention) == 2 and full.all_hidden == ()
    np.testing.assert_allclose(full.attention[0].sum(-1), 1, atol=1e-6)


def test_the_example_of_the_module_runs():
    example = [line for line in (bert.__doc__ or "").splitlines() if line.startswith("    ")]
    names = {"jax": jax, "jnp": jnp, **vars(bert)}
    exec("\n".join(line.strip() for line in example), names)
    assert names["hidden"].shape == (1, 3, 128)
