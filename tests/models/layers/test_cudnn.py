"""cuDNN's attention: what it is given stands for the mask, and has no bias where possible.

Numbers on a GPU are in tests/devices/test_gpu.py.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.devices import sharding
from bert_jax.models.heads import PreTrainingModel
from bert_jax.models.layers import cudnn
from bert_jax.models.layers.attention import attention
from bert_jax.models.layers.masks import make_mask
from bert_jax.models.model import parameter_shapes
from tests.models.small import make_batch, make_config

BATCH, SEQ, HEADS = 4, 32, 4
LOWEST = float(np.finfo(np.float32).min)
ONE, SEVERAL = [[32], [9], [20], [0]], [[10, 12, 4], [32, 0, 0], [1, 30, 0], [0, 0, 0]]


def make_rows(lengths):
    """Example ids and positions, int32[batch, seq], of examples of these lengths."""
    ids, places = np.zeros((2, len(lengths), SEQ), np.int32)
    for row, row_lengths in enumerate(lengths):
        begins = np.cumsum([0, *row_lengths])
        for number, (begin, end) in enumerate(zip(begins, begins[1:], strict=False), 1):
            ids[row, begin:end], places[row, begin:end] = number, np.arange(end - begin)
    return jnp.asarray(ids), jnp.asarray(places)


@pytest.fixture(scope="module")
def heads():
    rng = np.random.default_rng(0)
    shape = (BATCH, SEQ, HEADS, 8)
    return [jnp.asarray(rng.standard_normal(shape), jnp.float32) for _ in range(3)]


def values_and_gradients(attend, heads, is_read):
    """The results at the positions that are read, and the gradients of a function of these."""

    def total(*heads):
        found = attend(*heads)
        read = jnp.where(is_read[..., None, None], found, 0)
        return jnp.sin(read).sum(), (read, jnp.isfinite(found).all())

    grads, (read, is_finite) = jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(*heads)
    assert is_finite  # padding too
    return read, grads


def assert_equal(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), one, other)


@pytest.mark.parametrize("pattern", ["bidirectional", "causal", "window"])
@pytest.mark.parametrize("lengths", [ONE, SEVERAL], ids=["one", "several"])
def test_lengths_causality_and_masks_are_the_formula_with_its_gradients(lengths, pattern, heads):
    """jax's XLA implementation with the arguments that cuDNN gets."""
    ids, places = make_rows(lengths)
    mask = make_mask(ids, places, pattern, 3, LOWEST, len(lengths[0]))
    attend = lambda *h: cudnn.cudnn_attention(*h, mask, implementation="xla")  # noqa: E731
    found = values_and_gradients(attend, heads, ids > 0)
    assert_equal(found, values_and_gradients(lambda *h: attention(*h, mask)[0], heads, ids > 0))


@pytest.mark.parametrize("pattern", ["bidirectional", "causal"])
def test_some_positions_attend_as_if_all_were_queries(pattern, heads):
    ids, places = make_rows(ONE)
    mask = make_mask(ids, places, pattern, 0, LOWEST, 1)
    read = jnp.asarray([[0, 31, 5], [8, 2, 0], [19, 19, 1], [0, 0, 0]])
    query = jnp.take_along_axis(heads[0], read[:, :, None, None], axis=1)
    some = [query, *heads[1:]]
    seen = mask.at_queries(read)
    found, expected = (
        values_and_gradients(attend, some, jnp.asarray(ids[:, :1] > 0))
        for attend in (
            lambda *h: cudnn.cudnn_attention(*h, seen, implementation="xla"),
            lambda *h: attention(*h, seen)[0],
        )
    )
    assert_equal(found, expected)


@pytest.mark.parametrize(
    ("ids", "max_examples", "is_described"),
    [
        ([1, 1, 1, 0], 1, True),
        ([0, 1, 1, 1], 1, False),  # padding first
        ([1, 0, 1, 1], 1, False),
        ([1, 1, 2, 2], 1, False),  # more examples than the batch says
        ([1, 3, 3, 0], 3, True),
        ([2, 1, 1, 0], 2, False),
    ],
)
@pytest.mark.parametrize("pattern", ["bidirectional", "causal"])
def test_rows_that_the_kernel_would_read_wrongly_become_nan(
    pattern, ids, max_examples, is_described
):
    ids = jnp.asarray([ids, [0] * 4])
    mask = make_mask(ids, jnp.zeros_like(ids), pattern, 0, LOWEST, max_examples)
    added = cudnn.nan_unless_in_order(mask)
    assert np.isnan(added).ravel().tolist() == [not is_described, False]
    window = make_mask(ids, jnp.zeros_like(ids), "window", 1, LOWEST, max_examples)
    assert not cudnn.nan_unless_in_order(window).any()  # it is stated by a mask


# ------------------------------------------------------------------ programs for CUDA


@pytest.fixture
def hopper(monkeypatch):
    """jax believes in cuDNN and a GPU of a compute capability, which is returned as a list."""
    capability = [9, 0]
    fused = cudnn._fused_attention()
    monkeypatch.setattr(fused, "check_cudnn_version", lambda: 92_000)
    monkeypatch.setattr(fused, "is_cuda_compute_capability_equal", lambda text: False)
    at_least = lambda text: capability >= [int(part) for part in text.split(".")]  # noqa: E731
    monkeypatch.setattr(fused, "check_compute_capability", at_least)
    return capability


def calls(function, *args):
    """cuDNN's calls in a program for CUDA: names, and numbers of results [batch, 1, seq, seq]."""
    lowered = jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",))
    lines = re.findall(r"@__cudnn\$fmha(\w+)\(.*->(.*)", lowered.as_text())
    pairs = [(name, len(re.findall(r"tensor<\d+x1x\d+x\d+xbf16>", to))) for name, to in lines]
    assert pairs
    return [(name.removesuffix("Backward"), n) for name, n in pairs if name.endswith("Backward")]


@pytest.mark.parametrize(
    ("pattern", "max_examples", "window", "capability", "expected"),
    [
        ("bidirectional", 3, 0, [9, 0], "Softmax"),
        ("causal", 1, 0, [9, 0], "Softmax"),
        ("window", 1, SEQ - 1, [9, 0], "Softmax"),  # of the whole row
        ("bidirectional", 1, 0, [8, 0], "Softmax"),
        ("window", 1, 3, [9, 0], "ScaleBiasSoftmax"),
        ("bidirectional", 0, 0, [9, 0], "ScaleBiasSoftmax"),  # nobody knows how many there are
        ("bidirectional", 3, 0, [8, 0], "ScaleBiasSoftmax"),  # before Hopper
    ],
)
def test_the_backward_pass_has_a_bias_where_nothing_else_states_the_mask(
    pattern, max_examples, window, capability, expected, heads, hopper
):
    hopper[:] = capability
    ids, places = make_rows(SEVERAL if max_examples > 1 else ONE)

    def total(*heads):
        mask = make_mask(ids, places, pattern, window, LOWEST, max_examples)
        return attention(*heads, mask, implementation="cudnn")[0].astype(jnp.float32).sum()

    low = [x.astype(jnp.bfloat16) for x in heads]
    ((name, biases),) = calls(jax.grad(total, (0, 1, 2)), *low)
    assert name == expected and (biases == 0 or "Bias" in name)


def test_a_training_step_of_bert_has_no_bias(hopper):
    fields = dict(attention="cudnn", attention_dropout_rate=0.0, dtype="bfloat16")
    config = make_config(**fields, remat=True, last_layer_predicted_only=True)
    batch = make_batch(config)
    model = PreTrainingModel(config, next_sentence=True)

    def total(params):
        key = {"dropout": jax.random.key(0)}
        outputs = model.apply({"params": params}, batch, deterministic=False, rngs=key)
        return outputs.masked_lm_logits.astype(jnp.float32).sum()

    found = calls(jax.grad(total), parameter_shapes(model, batch))
    assert set(found) == {("Softmax", 0)}


def test_each_device_of_a_mesh_gets_the_ranges_of_its_rows(heads, hopper):
    """Offsets count from the first row: those of a device from its first row."""
    mesh = sharding.make_mesh(2, 2, 2)
    ids, places = make_rows(SEVERAL)

    def attend(ids, *heads):
        mask = make_mask(ids, places, "bidirectional", 0, LOWEST, 3)
        return attention(*heads, mask, implementation="cudnn")[0]

    low = [x.astype(jnp.bfloat16) for x in heads]
    traced = jax.jit(sharding.on_mesh(mesh, attend)).trace(ids, *low)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    (line,) = re.findall(r"@__cudnn\$fmhaSoftmax\(.*", text)
    operands = re.findall(r"tensor<([\dx]+)x(\w+)>", line.rpartition("->")[0].rpartition(":")[2])
    shapes = [shape for shape, dtype in operands if dtype == "i32"]
    assert shapes == ["1x4", "1x4", "1x5", "1x5"]
    assert ("1x32x2x8", "bf16") in operands


def test_what_cudnn_cannot_do_is_an_error(heads, monkeypatch, request):
    """Without it, and with sizes that it does not support."""
    ids, places = make_rows(ONE)
    mask = make_mask(ids, places, "bidirectional", 0, LOWEST, 1)
    message = "^attention='cudnn' is not possible here: cuDNN .* Set model.attention='einsum'.$"
    with pytest.raises(ValueError, match=message):
        attention(*heads, mask, implementation="cudnn")
    request.getfixturevalue("hopper")
    odd = [jnp.zeros((BATCH, SEQ, HEADS, 12), jnp.bfloat16)] * 3
    with pytest.raises(ValueError, match="^attention='cudnn' is not possible here: The head dim"):
        attention(*odd, mask, implementation="cudnn")
