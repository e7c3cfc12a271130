"""ModernBERT against transformers' ModernBertModel and ModernBertForMaskedLM on the same weights.

The table of names is deliberately independent of `formats/names/modernbert.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.devices.trees import flatten
from bert_jax.models.bert import Bert
from bert_jax.models.heads import PreTrainingModel
from bert_jax.models.modernbert import ModernBertConfig

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LONGEST, LAYERS = 40, 5
MODEL = ModernBertConfig(
    vocab_size=97,
    hidden_size=32,
    num_layers=LAYERS,
    num_heads=4,
    intermediate_size=48,
    max_position_embeddings=LONGEST,
    attention_window=3,  # shorter than the rows; layers 0 and 3 see everything
    prng_impl="threefry2x32",
)
MODULES = {
    "attention/layer_norm": "attn_norm",
    "attention/output": "attn.Wo",
    "layer_norm": "mlp_norm",
    "output": "mlp.Wo",
}
OUTSIDE = {
    "modernbert/embeddings/layer_norm/scale": "model.embeddings.norm.weight",
    "modernbert/encoder/layer_norm/scale": "model.final_norm.weight",
    "masked_lm/transform/kernel": "head.dense.weight",
    "masked_lm/layer_norm/scale": "head.norm.weight",
    "masked_lm/bias": "decoder.bias",
    "modernbert/embeddings/word_embeddings/embedding": "model.embeddings.tok_embeddings.weight",
}


def to_theirs(tree: Any) -> dict[str, np.ndarray]:
    """Our tree (of parameters or gradients) as {their name: array}."""
    ours = {path: np.array(leaf) for path, leaf in flatten(tree).items()}
    turned = {path: array.T if path.endswith("kernel") else array for path, array in ours.items()}
    theirs = {name: turned.pop(path) for path, name in OUTSIDE.items()}
    for i in range(LAYERS):
        path, layer = f"modernbert/encoder/layer_{i}", f"model.layers.{i}"
        for name, parts in (
            ("attn.Wqkv", ("attention/query", "attention/key", "attention/value")),
            ("mlp.Wi", ("gate", "intermediate")),
        ):
            arrays = [turned.pop(f"{path}/{part}/kernel") for part in parts]
            theirs[f"{layer}.{name}.weight"] = np.concatenate(arrays)
        for ours_name, theirs_name in MODULES.items():
            leaf = "scale" if ours_name.endswith("norm") else "kernel"
            if (i, theirs_name) != (0, "attn_norm"):
                theirs[f"{layer}.{theirs_name}.weight"] = turned.pop(f"{path}/{ours_name}/{leaf}")
    assert not turned
    return theirs


@pytest.fixture(scope="module")
def batch():
    """Rows of random ids; all but the first end in padding."""
    lengths = np.array([LONGEST, 29, 7, 1])[:, None]
    place = np.broadcast_to(np.arange(LONGEST), (4, LONGEST))
    is_token = place < lengths
    ids = np.random.default_rng(0).integers(0, MODEL.vocab_size, place.shape)
    arrays = {"input_ids": ids, "position_ids": place, "example_ids": np.ones_like(place)}
    arrays = {name: np.where(is_token, array, 0) for name, array in arrays.items()}
    arrays["masked_lm_positions"] = np.where(is_token, place, 0)
    return {name: array.astype(np.int32) for name, array in arrays.items()}


@pytest.fixture(scope="module")
def params(batch):
    """Far from the initial values, so that every parameter has an effect."""
    rng = np.random.default_rng(3)
    model = PreTrainingModel(MODEL, next_sentence=False)
    init = lambda: model.init(jax.random.key(0), batch, deterministic=True)["params"]  # noqa: E731

    def draw(path, leaf):
        return ((path[-1].key == "scale") + 0.1 * rng.standard_normal(leaf.shape)).astype("f4")

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(init))


@pytest.fixture(scope="module")
def theirs(params):
    config = transformers.ModernBertConfig(
        vocab_size=MODEL.vocab_size,
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=LONGEST,
        local_attention=2 * MODEL.attention_window,
        **dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep")),
        attn_implementation="eager",
    )
    model = transformers.ModernBertForMaskedLM(config).eval()
    state = {name: torch.tensor(array) for name, array in to_theirs(params).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"decoder.weight"}
    model.tie_weights()
    return model


def loss(params, batch):
    """The mean cross-entropy of each token's own id, and the logits."""
    outputs = PreTrainingModel(MODEL, False).apply({"params": params}, batch, deterministic=True)
    log_probs = jax.nn.log_softmax(outputs.masked_lm_logits)
    of_ids = jnp.take_along_axis(log_probs, batch["input_ids"][..., None], axis=-1)[..., 0]
    weights = (batch["example_ids"] > 0).astype(jnp.float32)
    return -(of_ids * weights).sum() / weights.sum(), outputs.masked_lm_logits


def test_hidden_states_attention_logits_loss_and_gradients(params, theirs, batch):
    (mean, logits), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params, batch)
    keep_both = {"deterministic": True, "keep_all": True, "keep_attention": True}
    encode = lambda p: Bert(MODEL).apply({"params": p}, batch, **keep_both)  # noqa: E731
    encoded: Any = jax.jit(encode)(params["modernbert"])
    hidden = encoded.all_hidden

    ids = torch.tensor(batch["input_ids"]).long()
    is_token = torch.tensor(batch["example_ids"]).long()
    labels = torch.where(is_token > 0, ids, -100)
    out = theirs(
        ids,
        attention_mask=is_token,
        labels=labels,
        output_hidden_states=True,
        output_attentions=True,
    )
    out.loss.backward()

    np.testing.assert_allclose(mean, out.loss.item(), rtol=0, atol=1e-5)
    keep = batch["example_ids"] > 0
    np.testing.assert_allclose(logits[keep], out.logits.detach().numpy()[keep], rtol=0, atol=1e-5)
    last = theirs.model(ids, attention_mask=is_token).last_hidden_state
    states = (*out.hidden_states[:-1], last)
    assert len(hidden) == len(states) == LAYERS + 1
    for ours, other in zip(hidden, states, strict=True):
        np.testing.assert_allclose(ours[keep], other.detach().numpy()[keep], rtol=0, atol=1e-5)
    for ours, other in zip(encoded.attention, out.attentions, strict=True):
        ours, other = (np.moveaxis(x, 1, 2)[keep] for x in (ours, other.detach().numpy()))
        np.testing.assert_allclose(ours, other, rtol=0, atol=1e-5)
    expected = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    for name, grad in to_theirs(grads).items():
        np.testing.assert_allclose(grad, expected[name], rtol=0, atol=1e-5, err_msg=name)


def test_the_window_matters(params, batch):
    """Otherwise the comparison would not see it."""
    encoded = [
        Bert(config).apply({"params": params["modernbert"]}, batch, deterministic=True).hidden
        for config in (MODEL, ModernBertConfig(**{**vars(MODEL), "attention_window": 4}))
    ]
    assert np.abs(encoded[0][0] - encoded[1][0]).max() > 1e-3
