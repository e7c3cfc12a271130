"""Numbers of parameters and FLOPs against closed forms, and the sharding of every parameter."""

import dataclasses
import re

import jax
import numpy as np
import pytest

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.models import MODELS
from bert_jax.models.bert import Bert, feed_forward_flops, query_flops
from bert_jax.models.copy_head import copy_flops
from bert_jax.models.heads import HEAD_RULES, PreTrainingModel, word_flops
from bert_jax.models.model import parameter_shapes
from bert_jax.models.pooling import EncoderWithPooler
from tests.models.small import make_batch, make_config, parameter_count

BASE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_layers": 12,
    "num_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
LARGE = {"hidden_size": 1024, "num_layers": 24, "num_heads": 16, "intermediate_size": 4096}
TINY = {"hidden_size": 128, "num_layers": 2, "num_heads": 2, "intermediate_size": 512}


def closed_form(config, next_sentence=True, heads=True):
    """Parameters of the encoder, the pooler for next-sentence prediction, and the heads.

    The decoder of the masked-LM head is the table of word embeddings, which counts once.
    """
    hidden, inner, rows = config.hidden_size, config.intermediate_size, config.padded_vocab_size
    dense, layer_norm = hidden * hidden + hidden, 2 * hidden
    tables = rows + config.type_vocab_size
    tables += config.max_position_embeddings if config.positions == "learned" else 0
    layer = 4 * dense + (hidden * inner + inner) + (inner * hidden + hidden) + 2 * layer_norm
    layer += (hidden * inner + inner) if config.feed_forward == "gated" else 0
    encoder = tables * hidden + layer_norm + config.num_layers * layer
    encoder += layer_norm if config.norm_place == "pre" else 0
    pooler, pair_head = (dense, 2 * hidden + 2) if next_sentence else (0, 0)
    return encoder + pooler + heads * ((dense + layer_norm + rows) + pair_head)


@pytest.mark.parametrize(
    ("sizes", "encoder", "with_heads"),
    [
        ({}, 109_482_240, 110_106_428),
        (LARGE, 335_141_888, 336_226_108),
        ({"vocab_size": 28996}, 108_310_272, 108_932_934),
        ({"vocab_size": 21128}, 102_267_648, 102_882_442),
        (TINY, 4_385_920, 4_433_468),
    ],
    ids=["base uncased", "large uncased", "base cased", "base chinese", "tiny"],
)
def test_numbers_of_parameters_are_the_published_ones(sizes, encoder, with_heads):
    config = make_config(**BASE | sizes)
    assert closed_form(config, heads=False) == encoder
    assert closed_form(config) == with_heads
    if sizes in ({}, TINY):  # more layers only take longer to trace
        batch = make_batch(config)
        assert parameter_count(EncoderWithPooler(config), batch) == encoder
        assert parameter_count(PreTrainingModel(config, next_sentence=True), batch) == with_heads


def test_without_next_sentence_prediction_there_is_no_pooler_and_no_head():
    config, pooler, head = make_config(**BASE), 768 * 768 + 768, 768 * 2 + 2
    assert closed_form(config, False, heads=False) == 109_482_240 - pooler
    assert closed_form(config, False) == 110_106_428 - pooler - head
    config = make_config(**BASE | TINY)
    batch = make_batch(config)
    assert parameter_count(Bert(config), batch) == closed_form(config, False, heads=False)
    found = parameter_count(PreTrainingModel(config, next_sentence=False), batch)
    assert found == closed_form(config, False)


@pytest.mark.parametrize(
    "changes",
    [
        {"pad_vocab_to_multiple_of": 64},
        {"norm_place": "pre"},
        {"positions": "rotary"},
        {"feed_forward": "gated"},
        {"norm_place": "pre", "positions": "none", "feed_forward": "gated"},
    ],
    ids=str,
)
def test_the_closed_form_of_every_option(changes):
    config = make_config(**changes)
    model = PreTrainingModel(config, next_sentence=True)
    assert parameter_count(model, make_batch(config)) == closed_form(config)


def count_products(jaxpr):
    """FLOPs of all matrix products of a jaxpr, 2 for each multiplication and addition."""
    total = 0
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            total += count_products(inner) if hasattr(inner, "eqns") else 0
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            inner = np.prod([shape[axis] for axis in contracted])
            total += 2 * int(np.prod(equation.outvars[0].aval.shape)) * int(inner)
    return total


@pytest.mark.parametrize(
    "changes", [{}, {"feed_forward": "gated"}, {"last_layer_predicted_only": True}], ids=str
)
def test_flops_are_those_of_the_matrix_products(changes):
    config = make_config(num_layers=3, **changes)
    unread = (48 - 10) * config.last_layer_predicted_only
    batch = make_batch(config, batch=2, seq=24, predictions=5)
    encoder = MODELS["bert"].flops_per_token(config, 24)
    heads = 48 * encoder + 10 * word_flops(config)
    copies = 2 * copy_flops(config, 24, 5) - unread * feed_forward_flops(config)
    copying = dataclasses.replace(config, copy_head=True)
    for model, expected in (
        (Bert(config), 48 * encoder),
        (PreTrainingModel(config, False), heads - unread * query_flops(config, 24)),
        (PreTrainingModel(copying, False), heads + copies),
    ):
        params = parameter_shapes(model, batch)
        jaxpr = jax.make_jaxpr(lambda p, m=model: m.apply({"params": p}, batch, deterministic=True))
        assert count_products(jaxpr(params).jaxpr) == expected


# ------------------------------------------------------------------ sharding

# The table of all parameters before encoders and heads had tables of their own: the first row that
# matches decides. Checkpoints of sharded runs were written with it.


def specs_of(path, rules):
    return [spec for pattern, spec in rules if re.search(pattern, path)]


def leaf_paths(module, batch):
    shapes = parameter_shapes(module, batch)
    return {
        "/".join(key.key for key in path): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(shapes)[0]
    }


@pytest.mark.parametrize(
    "name", [name for name, row in MODELS.items() if issubclass(row.config, TransformerConfig)]
)
def test_an_encoder_needs_no_rules_but_its_own(name):
    """And the rules of heads match none of its parameters, so that no row is missed."""
    for changes in (
        {},
        {"norm_place": "pre", "feed_forward": "gated", "positions": "none"},
    ):
        config = make_config(**changes)
        for path in leaf_paths(MODELS[name].encoder(config), make_batch(config)):
            assert specs_of(path, MODELS[name].rules), path
            assert not specs_of(f"{name}/{path}", HEAD_RULES), path


def test_unknown_parameters_have_no_sharding():
    rules = (*MODELS["bert"].rules, *HEAD_RULES)
    for path in ("bert/encoder/layer_0/experts/kernel", "bert/adapter/bias", "head/weights"):
        assert not specs_of(path, rules)
