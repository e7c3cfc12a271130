"""GPT against transformers' OpenAIGPTModel and OpenAIGPTLMHeadModel on the same random weights.

The table of names is deliberately independent of `formats/names/gpt.py`.
"""

from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.devices.trees import flatten
from bert_jax.models.gpt import Gpt, GptConfig
from bert_jax.models.heads import CausalLMModel
from bert_jax.tasks.causal_lm import CausalLM
from bert_jax.training.state import init_params, make_key

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LONGEST = 512
MODEL = GptConfig(
    vocab_size=97,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    intermediate_size=128,
    max_position_embeddings=LONGEST,
    prng_impl="threefry2x32",
)
MODULES = {
    "attention/output": "attn.c_proj",
    "attention/layer_norm": "ln_1",
    "intermediate": "mlp.c_fc",
    "output": "mlp.c_proj",
    "layer_norm": "ln_2",
}
LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}


def to_theirs(tree: Any) -> dict[str, np.ndarray]:
    """Our tree (of parameters or gradients) as {their name: array}."""
    ours = {path.removeprefix("gpt/"): np.array(leaf) for path, leaf in flatten(tree).items()}
    theirs = {
        "tokens_embed.weight": ours["embeddings/word_embeddings/embedding"],
        "positions_embed.weight": ours["embeddings/position_embeddings/embedding"],
    }
    for i in range(len(tree["gpt"]["encoder"])):
        path, block = f"encoder/layer_{i}", f"h.{i}"
        for leaf in ("kernel", "bias"):
            parts = [ours[f"{path}/attention/{n}/{leaf}"] for n in ("query", "key", "value")]
            theirs[f"{block}.attn.c_attn.{LEAVES[leaf]}"] = np.concatenate(parts, axis=-1)
        for ours_name, theirs_name in MODULES.items():
            for leaf in ("kernel", "scale", "bias"):
                if (array := ours.get(f"{path}/{ours_name}/{leaf}")) is not None:
                    theirs[f"{block}.{theirs_name}.{LEAVES[leaf]}"] = array
    return {f"transformer.{name}": array for name, array in theirs.items()}


@pytest.fixture(scope="module")
def params():
    """Far from the initial values, so that every parameter has an effect."""
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(lambda: init_params(CausalLM(MODEL), make_key(0, "init")))

    def draw(path, leaf):
        return ((path[-1].key == "scale") + 0.1 * rng.standard_normal(leaf.shape)).astype("f4")

    return jax.tree_util.tree_map_with_path(draw, shapes)


@pytest.fixture(scope="module")
def theirs(params):
    config = transformers.OpenAIGPTConfig(
        vocab_size=MODEL.vocab_size,
        n_positions=LONGEST,
        n_embd=32,
        n_layer=2,
        n_head=4,
        attn_implementation="eager",
    )
    model = transformers.OpenAIGPTLMHeadModel(config).eval()
    state = {name: torch.tensor(array) for name, array in to_theirs(params).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model


def make_batch(lengths, seq):
    """Rows of random ids; rows shorter than `seq` end in padding."""
    lengths = np.asarray(lengths)[:, None]
    place = np.broadcast_to(np.arange(seq), (len(lengths), seq))
    is_token = place < lengths
    ids = np.random.default_rng(0).integers(0, MODEL.vocab_size, place.shape)
    arrays = {"input_ids": ids, "position_ids": place, "token_type_ids": 0 * place}
    arrays = {name: np.where(is_token, array, 0) for name, array in arrays.items()}
    arrays |= {"example_ids": is_token, "cls_positions": np.zeros((len(lengths), 1))}
    return {name: array.astype(np.int32) for name, array in arrays.items()}


@jax.jit
def ours(params, batch):
    encoded = Gpt(MODEL).apply(
        {"params": params["gpt"]}, batch, deterministic=True, keep_all=True, keep_attention=True
    )
    scores: Any = CausalLMModel(MODEL).apply({"params": params}, batch, deterministic=True)
    return encoded.all_hidden, encoded.attention, scores.logits()


def check_lengths(params, theirs, lengths, rows):
    """Ours in padded batches of one size, theirs each length for itself."""
    for start in range(0, len(lengths), rows):
        part = list(lengths[start : start + rows])
        batch = make_batch(part + [1] * (rows - len(part)), LONGEST)
        hidden, attention, logits = jax.device_get(ours(params, batch))
        for row, length in enumerate(part):
            ids = torch.tensor(batch["input_ids"][row : row + 1, :length]).long()
            with torch.no_grad():
                out = theirs(ids, output_hidden_states=True, output_attentions=True)
            assert len(hidden) == len(out.hidden_states) == MODEL.num_layers + 1
            for mine, other in zip(hidden, out.hidden_states, strict=True):
                np.testing.assert_allclose(mine[row, :length], other[0], rtol=0, atol=1e-5)
            for mine, other in zip(attention, out.attentions, strict=True):
                mine = mine[row, :, :length, :length]
                np.testing.assert_allclose(mine, other[0], rtol=0, atol=1e-5)
            np.testing.assert_allclose(logits[row, :length], out.logits[0], rtol=0, atol=1e-5)


def test_hidden_states_attention_and_logits(params, theirs):
    check_lengths(params, theirs, [1, 2, 3, 17, 64, 200, 511, 512], rows=8)


@pytest.mark.slow
def test_hidden_states_and_logits_of_every_length(params, theirs):
    check_lengths(params, theirs, range(1, LONGEST + 1), rows=32)


def test_loss_and_gradients(params, theirs):
    """Rows of different lengths; padding has no label."""
    batch = make_batch([40, 7, 23, 2], 40)
    is_token = batch["example_ids"] > 0
    labels = np.where(is_token, batch["input_ids"], -100)  # transformers shifts them
    theirs.zero_grad()
    out = theirs(
        torch.tensor(batch["input_ids"]).long(),
        attention_mask=torch.tensor(is_token.astype(int)),
        labels=torch.tensor(labels).long(),
    )
    out.loss.backward()
    task = CausalLM(MODEL, 40)

    def loss_of(params):
        outputs: Any = task.make_model().apply({"params": params}, batch, deterministic=True)
        sums = task.losses(outputs, batch)["causal_lm_loss"]
        return sums.numerator / sums.denominator

    loss, gradients = jax.jit(jax.value_and_grad(loss_of))(params)
    assert float(loss) == pytest.approx(float(out.loss.detach()), abs=1e-5)
    expected = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    found = to_theirs(gradients)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=0, atol=1e-5, err_msg=name)


def test_its_initial_values_are_those_of_transformers(theirs):
    """N(0, 0.02) in kernels and tables, biases 0, scales 1: deviations agree within 6 %."""
    fresh = transformers.OpenAIGPTLMHeadModel(theirs.config).state_dict()
    init = jax.jit(lambda key: init_params(CausalLM(MODEL), key))
    start = to_theirs(init(make_key(1, "init")))
    for name, array in start.items():
        other = fresh[name].numpy()
        assert array.mean() == pytest.approx(other.mean(), abs=2e-3), name
        if array.size > 2_000:
            assert array.std() == pytest.approx(other.std(), rel=0.06), name
        elif array.ndim == 1:
            np.testing.assert_array_equal(array, other)
