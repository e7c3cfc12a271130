"""Encoders and heads in anybody's flax code: `input_ids` alone is a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.files.errors import UserError
from bert_jax.models import (
    Bert,
    ElectraConfig,
    Elmo,
    ElmoConfig,
    ModernBertConfig,
    complete_batch,
)
from tests.models.small import random_params

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_layers": 1,
    "max_position_embeddings": 16,
    "prng_impl": "threefry2x32",
}
HEADS = {"num_heads": 4, "intermediate_size": 64}
# One of each kind: BERT's relatives are Bert with other fields.
ENCODERS = {
    "electra": Bert(ElectraConfig(**SMALL, **HEADS, embedding_size=16)),
    "modernbert": Bert(ModernBertConfig(**SMALL, **HEADS)),
    "elmo": Elmo(ElmoConfig(**SMALL, cell_size=20, tokens="embeddings")),
}
IDS = jnp.array([[5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 0, 0]])
MASK = jnp.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])


def test_given_fields_stay_and_the_others_are_filled_in():
    packed = {"input_ids": IDS, "example_ids": jnp.array([[1, 1, 2, 2, 2, 0], [1, 1, 1, 2, 0, 0]])}
    full = complete_batch(packed)
    assert full["example_ids"] is packed["example_ids"]
    is_token = np.asarray(packed["example_ids"]) > 0
    assert full["position_ids"][is_token].tolist() == [0, 1, 0, 1, 2, 0, 1, 2, 0]
    assert not full["token_type_ids"].any() and full["cls_positions"].shape == (2, 1)
    assert {array.dtype for array in full.values()} == {IDS.dtype}
    plain = complete_batch({"input_ids": IDS[:, None]})  # several rows per example
    assert plain["position_ids"].shape == (2, 1, 6) and plain["cls_positions"].shape == (2, 1, 1)
    assert (plain["example_ids"] == 1).all()


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_reads_ids_alone_and_ignores_padding(name):
    encoder = ENCODERS[name]
    params = random_params(encoder, {"input_ids": IDS})

    def hidden(params, ids, mask=None):
        batch = {"input_ids": ids} | ({} if mask is None else {"attention_mask": mask})
        return encoder.apply({"params": params}, batch).hidden

    @jax.jit
    def run(params):
        padded, short = hidden(params, IDS, MASK), hidden(params, IDS[1:, :4])
        mapped = jax.vmap(lambda ids, mask: hidden(params, ids[None], mask[None])[0])(IDS, MASK)
        return padded, short, mapped

    padded, short, mapped = jax.device_get(run(params))
    np.testing.assert_allclose(padded[1, :4], short[0], atol=1e-6)
    np.testing.assert_allclose(mapped, padded, atol=1e-6)


WORDS = Elmo(ElmoConfig(**SMALL, cell_size=20, filters=((1, 4),)))


@pytest.mark.parametrize(
    ("encoder", "batch", "message"),
    [
        (ENCODERS["electra"], {"ids": IDS}, "has 'ids', but no 'input_ids', int32"),
        (ENCODERS["elmo"], {"input_ids": IDS[0]}, r"input_ids are int32\[6\] instead of int32"),
        (ENCODERS["modernbert"], {"input_ids": IDS * 1.0}, r"input_ids are float32\[2, 6\] inst"),
        (ENCODERS["electra"], {"input_ids": IDS, "attention_masks": IDS}, "mean 'attention_mask'"),
        (ENCODERS["electra"], {"input_ids": IDS, "input_mask": IDS}, "mean 'attention_mask'"),
        (ENCODERS["electra"], {"input_ids": IDS, "cls_positions": IDS[:1]}, "a row for each row"),
        (
            ENCODERS["electra"],
            {"input_ids": IDS, "attention_mask": IDS[:1]},
            r"attention_mask is int32\[1, 6\]: give int32\[2, 6\]",
        ),
        (ENCODERS["electra"], {"input_ids": IDS, "attention_mask": IDS * 1.0}, "is float32"),
        (
            ENCODERS["electra"],
            {"input_ids": IDS, "attention_mask": IDS, "example_ids": IDS},
            "both attention_mask and example_ids",
        ),
        (WORDS, {"input_ids": IDS}, r"no character_ids, int32\[batch, seq, 50\]"),
        (
            ENCODERS["electra"],
            {"input_ids": jnp.ones((1, 17), jnp.int32)},
            "Rows of 17 tokens .*=16",
        ),
        (
            ENCODERS["modernbert"],
            {"input_ids": jnp.ones((1, 17), jnp.int32)},
            "Rows of 17 tokens .*=16",
        ),
    ],
)
def test_a_batch_that_is_none_is_refused_while_tracing(encoder, batch, message):
    params = random_params(encoder, {"input_ids": IDS})
    with pytest.raises((UserError, ValueError), match=message):
        jax.jit(encoder.apply)({"params": params}, batch)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"input_ids": IDS.tolist()}, "input_ids is of type list: give an array"),
        (["a text"], "The batch is of type list: give a dict of arrays"),
        ({str(n): IDS for n in range(9)}, "'5', but no 'input_ids'"),
    ],
)
def test_a_batch_without_arrays_is_refused(batch, message):
    with pytest.raises(UserError, match=message):
        ENCODERS["electra"].apply({"params": {}}, batch)
