"""ELMo's encoder against bilm-tf's formulas in numpy, its states, its padding, its errors."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.encoders import make_encoder_config
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.models.elmo import Elmo, ElmoConfig
from bert_jax.models.model import parameter_shapes
from tests.models import elmo_numpy
from tests.models.small import apply, assert_close, parameter_count
from tests.tiny import PRNG_IMPL

FILTERS = ((1, 3), (2, 5), (3, 4))
SIZES = dict(features=4, cells=6, num_layers=2, filters=FILTERS, character_size=3, highways=2)


def make_elmo_config(**changes):
    values = {
        "vocab_size": 20,
        "pad_vocab_to_multiple_of": 1,
        "hidden_size": 8,
        "num_layers": 2,
        "max_position_embeddings": 32,
        "dropout_rate": 0.0,
        "initializer_range": 0.02,
        "character_size": 3,
        "filters": FILTERS,
        "cell_size": 6,
        "prng_impl": PRNG_IMPL,
    }
    return ElmoConfig(**values | changes)


def to_params(weights):
    """Parameters from weights with bilm-tf's names, renamed by hand."""
    params = {"characters/embedding": np.pad(weights["char_embed"], ((1, 0), (0, 0)))}
    for name, array in weights.items():
        scope, _, last = name.rpartition("/")
        if scope == "CNN":
            kind, i = {"W": "kernel", "b": "bias"}[last[0]], last[-1]
            params[f"characters/filter_{i}/{kind}"] = array[0] if kind == "kernel" else array
        elif scope.startswith("CNN_high"):
            kind = {"W": "kernel", "b": "bias"}[last[0]]
            params[f"characters/highway_{scope[-1]}/{last[2:]}/{kind}"] = array
        elif scope == "CNN_proj":
            params[f"characters/projection/{dict(W='kernel', b='bias')[last[0]]}"] = array
        elif scope.startswith("RNN"):
            direction, layer = ("forward", "backward")[int(scope[4])], scope.split("Cell")[2][0]
            kind = {"W_0": "kernel", "B": "bias", "W_P_0": "projection"}[last]
            params[f"{direction}_{layer}/{kind}"] = array
    return unflatten({name: jnp.asarray(array) for name, array in params.items()})


def make_ids(rng, lengths, seq):
    """Random characters of rows of these lengths; 0 in padding."""
    example_ids = (np.arange(seq) < np.array(lengths)[:, None]).astype(np.int32)
    characters = rng.integers(1, 262, (len(lengths), seq, 50)) * example_ids[:, :, None]
    return {
        "input_ids": np.zeros_like(example_ids),
        "example_ids": example_ids,
        "character_ids": characters.astype(np.int32),
    }


@pytest.fixture(scope="module")
def weights():
    return elmo_numpy.random_weights(np.random.default_rng(0), **SIZES)


@pytest.fixture(scope="module")
def params(weights):
    return to_params(weights)


def encode(config, params, batch, seed=None, **options):
    return apply(Elmo(config), params, batch, seed, **options)


@pytest.mark.parametrize("skip", [True, False])
def test_all_layers_are_those_of_bilm_tf(weights, params, skip):
    config, lengths = make_elmo_config(skip_connections=skip, cell_clip=0.9), (7, 4)
    config = dataclasses.replace(config, projection_clip=0.9)
    batch = make_ids(np.random.default_rng(1), lengths, 9)
    encoded = encode(config, params, batch, keep_all=True)
    assert len(encoded.all_hidden) == 3
    np.testing.assert_array_equal(encoded.hidden, encoded.all_hidden[-1])
    for row, length in enumerate(lengths):
        words = np.array(
            [elmo_numpy.word_vector(weights, ids) for ids in batch["character_ids"][row, :length]]
        )
        expected, _ = elmo_numpy.encode(weights, words, 2, clip=0.9, skip=skip)
        for got, want in zip(encoded.all_hidden, expected, strict=True):
            np.testing.assert_allclose(got[row, :length], want, atol=2e-5)


def test_the_parameters_of_a_new_encoder_have_the_names_and_shapes_of_the_numpy_weights(params):
    batch = make_ids(np.random.default_rng(0), (3,), 3)
    new = parameter_shapes(Elmo(make_elmo_config()), batch)
    shapes = {name: leaf.shape for name, leaf in flatten(params).items()}
    assert {name: leaf.shape for name, leaf in flatten(new).items()} == shapes


def test_padding_and_other_examples_of_a_row_do_not_change_an_example(params):
    config = make_elmo_config()
    batch = make_ids(np.random.default_rng(4), (5,), 5)
    alone = encode(config, params, batch).hidden
    other = make_ids(np.random.default_rng(5), (4,), 4)

    def row(first, second):
        return {name: np.concatenate([first[name], second[name]], axis=1) for name in first}

    padded = row(batch, other | {"example_ids": np.zeros((1, 4), np.int32)})
    np.testing.assert_allclose(encode(config, params, padded).hidden[:, :5], alone, atol=1e-6)
    packed = row(other, batch | {"example_ids": np.full((1, 5), 2, np.int32)})
    np.testing.assert_allclose(encode(config, params, packed).hidden[:, 4:], alone, atol=1e-6)


@functools.partial(jax.jit, static_argnums=0)
def language_model(config, params, batch, carry):
    return Elmo(config).apply({"params": params}, batch, carry, True, method="language_model")


@pytest.fixture
def stream():
    """Two rows of 8 words, as both directions of a language model read them."""
    batch = make_ids(np.random.default_rng(6), (8, 8), 8)
    return batch | {
        "reverse_ids": batch["input_ids"],
        "reverse_character_ids": batch["character_ids"][:, ::-1],
    }


def test_a_language_model_from_zero_states_reads_as_the_encoder_does(params, stream):
    config = make_elmo_config()
    forward, backward, _ = language_model(config, params, stream, Elmo(config).init_carry(2))
    both = np.concatenate([forward, np.asarray(backward)[:, ::-1]], axis=-1)
    np.testing.assert_allclose(both, encode(config, params, stream).hidden, atol=1e-6)


def test_the_states_after_a_piece_continue_the_text_and_padding_keeps_them(params, stream):
    config = make_elmo_config()
    zero = carry = Elmo(config).init_carry(2)
    whole = language_model(config, params, stream, zero)
    outputs, states = [], []
    for piece in (slice(0, 4), slice(4, 8)):
        part = {name: array[:, piece] for name, array in stream.items()}
        *both, carry = language_model(config, params, part, carry)
        outputs.append(both)
        states.append(carry)
    for direction in range(2):
        joined = np.concatenate([part[direction] for part in outputs], axis=1)
        np.testing.assert_allclose(joined, whole[direction], atol=1e-6)
    assert_close(carry, whole[2], atol=1e-6)

    is_first = np.arange(8) < 4
    padded = {
        name: np.where(is_first[None] if array.ndim == 2 else is_first[None, :, None], array, 0)
        for name, array in stream.items()
    }
    assert_close(language_model(config, params, padded, zero)[2], states[0], atol=1e-6)


def test_dropout_hits_the_skip_connection(params, stream):
    """Without recurrent weights, a layer with a skip connection returns its dropped input."""
    zeros = jax.tree.map(np.zeros_like, params) | {"characters": params["characters"]}
    config = make_elmo_config(dropout_rate=0.5)
    # Layer 0 passes nothing on: all outputs come from skip connections, which are zero then.
    zeros["forward_0"]["bias"] = np.repeat(np.float32([4.0, 4.0, 0.0, 4.0]), 6)
    zeros["forward_0"]["projection"] = np.ones((6, 4), np.float32)
    all_hidden = encode(config, zeros, stream, 1, keep_all=True).all_hidden
    first, second = (x[..., :4] for x in all_hidden[1:])
    assert (first != 0).all()
    dropped = second == 0
    assert 0.3 < dropped.mean() < 0.7
    np.testing.assert_allclose(second[~dropped], 2 * first[~dropped], rtol=1e-6)


def test_words_from_a_table_of_embeddings():
    config = make_elmo_config(tokens="embeddings", num_layers=1)
    ids = np.array([[3, 7, 19]], np.int32)
    batch = {"input_ids": ids, "example_ids": np.ones_like(ids)}
    params = jax.jit(Elmo(config).init)(jax.random.key(0), batch)["params"]
    table = params["embeddings"]["word_embeddings"]["embedding"]
    assert table.shape == (20, 4) and float(jnp.abs(table).max()) > 0.5
    words = encode(config, params, batch, keep_all=True).all_hidden[0][0]
    np.testing.assert_array_equal(words, np.concatenate([table[ids[0]]] * 2, axis=1))


def test_the_published_sizes_have_the_published_number_of_parameters():
    """93.6 million parameters without the softmax (Peters et al. 2018, bilm-tf's README)."""
    names = ("vocab_size", "pad_vocab_to_multiple_of", "initializer_range", "dropout_rate")
    small = dataclasses.asdict(make_elmo_config())
    config = ElmoConfig(
        **{name: small[name] for name in names},
        hidden_size=1024,
        num_layers=2,
        max_position_embeddings=512,
    )
    ids = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    characters = jax.ShapeDtypeStruct((1, 4, 50), jnp.int32)
    batch = {"input_ids": ids, "example_ids": ids, "character_ids": characters}
    assert parameter_count(Elmo(config), batch) == 93_600_864


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cnn_activation": "gelu"}, "cnn_activation='gelu' must be one of relu, tanh."),
        ({"hidden_size": 7}, "hidden_size=7 is odd"),
        ({"cell_size": 3}, "cell_size=3 is below hidden_size / 2 = 4"),
        ({"filters": ()}, "filters=\\(\\) is empty"),
        ({"filters": ((51, 2),)}, "need widths from 1 to max_characters=50"),
    ],
)
def test_values_that_are_not_allowed(changes, message):
    with pytest.raises(ValueError, match=message):
        make_encoder_config(dataclasses.asdict(make_elmo_config()) | changes)
