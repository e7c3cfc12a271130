"""Published numbers of parameters, FLOPs by counting, and the sharding of every parameter."""

import dataclasses
import re

import jax
import numpy as np
import pytest

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.devices.trees import flatten
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


@pytest.mark.parametrize(
    ("sizes", "encoder", "with_heads"),
    [
        ({}, 109_482_240, 110_106_428),
        (LARGE, 335_141_888, 336_226_108),
        (TINY, 4_385_920, 4_433_468),
    ],
    ids=["base uncased", "large uncased", "tiny"],
)
def test_numbers_of_parameters_are_the_published_ones(sizes, encoder, with_heads):
    """With all layers as large as the second one: more layers only take longer to trace."""
    one, two = (make_config(**BASE | sizes | {"num_layers": n}) for n in (1, 2))
    layers = (BASE | sizes)["num_layers"]

    def count(make):
        first, second = (parameter_count(make(config), make_batch(config)) for config in (one, two))
        return first + (layers - 1) * (second - first)

    assert count(EncoderWithPooler) == encoder
    assert count(lambda config: PreTrainingModel(config, next_sentence=True)) == with_heads
    pooler, pairs = encoder - count(Bert), 2 * one.hidden_size + 2
    assert pooler == one.hidden_size * (one.hidden_size + 1)
    without = count(lambda config: PreTrainingModel(config, next_sentence=False))
    assert without == with_heads - pooler - pairs


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


@pytest.mark.parametrize(
    "name", [name for name, row in MODELS.items() if issubclass(row.config, TransformerConfig)]
)
def test_an_encoder_needs_no_rules_but_its_own(name):
    """And the rules of heads match none of its parameters, so that no row is missed."""

    def specs_of(path, rules):
        return [spec for pattern, spec in rules if re.search(pattern, path)]

    config = make_config(norm_place="pre", feed_forward="gated", num_layers=1)
    for path in flatten(parameter_shapes(MODELS[name].encoder(config), make_batch(config))):
        assert specs_of(path, MODELS[name].rules), path
        assert not specs_of(f"{name}/{path}", HEAD_RULES), path
    assert not specs_of(f"{name}/encoder/layer_0/experts/kernel", MODELS[name].rules)
