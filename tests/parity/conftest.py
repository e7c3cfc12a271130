"""The same weights and batches for bert_jax and for transformers' BERT on torch."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.devices.trees import path_name
from bert_jax.models.heads import PreTrainingModel
from bert_jax.models.pooling import EncoderWithPooler
from bert_jax.training.state import init_params

# Ours -> theirs, on purpose independent of bert_jax.formats. A module's leaves follow by LEAVES; a
# dense kernel is the transpose of their weight.
MODULES = {
    "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings",
    "bert/embeddings/position_embeddings": "bert.embeddings.position_embeddings",
    "bert/embeddings/token_type_embeddings": "bert.embeddings.token_type_embeddings",
    "bert/embeddings/layer_norm": "bert.embeddings.LayerNorm",
    "bert/pooler": "bert.pooler.dense",
    "masked_lm": "cls.predictions",
    "masked_lm/transform": "cls.predictions.transform.dense",
    "masked_lm/layer_norm": "cls.predictions.transform.LayerNorm",
    "next_sentence": "cls.seq_relationship",
}
MODULES_OF_A_LAYER = {
    "attention/query": "attention.self.query",
    "attention/key": "attention.self.key",
    "attention/value": "attention.self.value",
    "attention/output": "attention.output.dense",
    "attention/layer_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "layer_norm": "output.LayerNorm",
}
LEAVES = {"embedding": "weight", "kernel": "weight", "scale": "weight", "bias": "bias"}


def their_name(ours):
    """`bert/encoder/layer_3/output/kernel` -> `bert.encoder.layer.3.output.dense.weight`."""
    module, _, leaf = ours.rpartition("/")
    if module.startswith("bert/encoder/layer_"):
        number, _, module = module.removeprefix("bert/encoder/layer_").partition("/")
        theirs = f"bert.encoder.layer.{number}.{MODULES_OF_A_LAYER[module]}"
    else:
        theirs = MODULES[module]
    return f"{theirs}.{LEAVES[leaf]}"


@pytest.fixture
def to_theirs():
    """Returns a function from our tree (of parameters or gradients) to {their name: array}."""

    def convert(tree):
        leaves = ((path_name(p), leaf) for p, leaf in jax.tree_util.tree_leaves_with_path(tree))
        return {
            their_name(name): np.array(leaf.T if name.endswith("kernel") else leaf)
            for name, leaf in leaves
        }

    return convert


@pytest.fixture
def from_theirs():
    """Returns a function from {their name: array} and our shapes to our tree."""

    def convert(arrays, shapes):
        def pick(path, leaf):
            name = path_name(path)
            array = arrays[their_name(name)]
            array = array.T if name.endswith("kernel") else array
            assert array.shape == leaf.shape, name
            return array

        return jax.tree_util.tree_map_with_path(pick, shapes)

    return convert


@pytest.fixture(autouse=True)
def one_thread():
    """Limits torch to one thread, since tests that run in parallel slow each other down."""
    pytest.importorskip("torch").set_num_threads(1)


@pytest.fixture
def as_users_run_it():
    """Turns on XLA's optimizations, which are off in other tests."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def make_model(make_task, to_theirs):
    """Returns a function that makes one random model in both programs.

    Its arguments are fields of BertConfig, and `initial` for weights as training starts from. It
    returns our task, without dropout and with masks that come with the batch, our parameters, and
    their BertForPreTraining.
    """
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def make(initial=False, **sizes):
        sizes = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0, "activation": "gelu"} | sizes
        task = dataclasses.replace(make_task(**sizes), rule=None)
        params = init_params(task, jax.random.key(0)) if initial else random_params(task)
        config = task.model
        theirs = transformers.BertForPreTraining(
            transformers.BertConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                intermediate_size=config.intermediate_size,
                max_position_embeddings=config.max_position_embeddings,
                type_vocab_size=config.type_vocab_size,
                layer_norm_eps=config.layer_norm_epsilon,
                hidden_act={"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}[config.activation],
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                attn_implementation="eager",
            )
        )
        state = {name: torch.tensor(array) for name, array in to_theirs(params).items()}
        missing, unexpected = theirs.load_state_dict(state, strict=False)
        assert not unexpected
        assert set(missing) == {f"cls.predictions.decoder.{leaf}" for leaf in ("weight", "bias")}
        return task, params, theirs.eval()

    return make


def random_params(task):
    """Weights for values of order 1 in all layers; every bias and scale is random too.

    Those of queries and keys are larger: attention is then uneven as in trained models. Otherwise
    all tokens become similar, and gradients consist of rounding errors.
    """
    shapes = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        kind = path[-1].key
        values = rng.standard_normal(leaf.shape, np.float32)
        if kind in ("bias", "scale"):
            return np.float32(kind == "scale") + np.float32(0.1) * values
        inputs = leaf.shape[0] if kind == "kernel" else leaf.shape[1]
        gain = 1.5 if path[-2].key in ("query", "key") else 1
        return values * np.float32(gain / inputs**0.5)

    return jax.tree_util.tree_map_with_path(draw, shapes)


@pytest.fixture
def make_rows():
    """Returns a function that makes a masked batch with rows of the given lengths, padded."""

    def make(config, lengths, width=None, predictions=6, seed=0):
        rng = np.random.default_rng(seed)
        lengths = np.asarray(lengths)[:, None]
        shape = len(lengths), width or lengths.max()
        place = np.broadcast_to(np.arange(shape[1]), shape)
        real = place < lengths
        weights = np.arange(predictions) < lengths
        masked = [rng.permutation(int(n))[:predictions] for n in lengths[:, 0]]
        masked = np.stack([np.pad(np.sort(m), (0, predictions - len(m))) for m in masked])
        masked_ids = rng.integers(1, config.vocab_size, weights.shape)
        arrays = {
            "input_ids": np.where(real, rng.integers(1, config.vocab_size, shape), 0),
            "token_type_ids": real & (place >= rng.integers(1, lengths + 1)),
            "position_ids": place,
            "example_ids": real,
            "cls_positions": np.zeros((shape[0], 1)),
            "masked_lm_positions": masked,
            "masked_lm_ids": np.where(weights, masked_ids, 0),
            "next_sentence_labels": rng.integers(0, 2, (shape[0], 1)),
        }
        return {name: array.astype(np.int32) for name, array in arrays.items()} | {
            "masked_lm_weights": weights.astype(np.float32),
            "next_sentence_weights": np.ones((shape[0], 1), np.float32),
        }

    return make


@pytest.fixture
def ours():
    """Returns a function that makes (params, batch) -> every output by its name, compiled."""

    def make(config, heads=True):
        @jax.jit
        def run(params, batch):
            encoded_and_pooled: Any = EncoderWithPooler(config).apply(
                {"params": params["bert"]},
                batch,
                deterministic=True,
                keep_all=True,
                keep_attention=True,
            )
            encoded, pooled = encoded_and_pooled
            outputs = {
                "hidden states": encoded.all_hidden,
                "attention": encoded.attention,
                "pooled output": pooled[:, 0],
            }
            if heads:
                model = PreTrainingModel(config, next_sentence=True)
                logits: Any = model.apply({"params": params}, batch, deterministic=True)
                outputs["masked LM logits"] = logits.masked_lm_logits
                outputs["next sentence logits"] = logits.next_sentence_logits[:, 0]
            return outputs

        return lambda params, batch: jax.tree.map(np.asarray, run(params, batch))

    return make


@pytest.fixture
def theirs():
    """Returns the function (model, batch) -> the same outputs of transformers' model."""
    torch = pytest.importorskip("torch")

    def run(model, batch):
        tensors = {name: torch.tensor(array) for name, array in batch.items()}
        with torch.no_grad():
            encoded = getattr(model, "bert", model)(
                input_ids=tensors["input_ids"].long(),
                token_type_ids=tensors["token_type_ids"].long(),
                attention_mask=tensors["example_ids"].long(),
                output_hidden_states=True,
                output_attentions=True,
            )
            outputs = {
                "hidden states": encoded.hidden_states,
                "attention": encoded.attentions,
                "pooled output": encoded.pooler_output,
            }
            if hasattr(model, "cls"):
                masked = tensors["masked_lm_positions"].long()[..., None]
                masked = encoded.last_hidden_state.take_along_dim(masked, 1)
                logits = model.cls(masked, encoded.pooler_output)
                outputs["masked LM logits"], outputs["next sentence logits"] = logits
        return jax.tree.map(lambda tensor: tensor.numpy(), outputs)

    return run


@pytest.fixture
def assert_same():
    """Returns a function that compares two sets of outputs at all positions but padding.

    `to_scale`: the tolerance is for values up to 1, and in proportion for larger ones.
    """

    def compare(mine, other, batch, tolerance, to_scale=False):
        assert mine.keys() == other.keys()
        real, masked = batch["example_ids"] > 0, batch["masked_lm_weights"] > 0
        of_positions = {
            "hidden states": lambda x: x[real],
            # [batch, heads, query, key] -> [real queries, heads, key]
            "attention": lambda x: np.moveaxis(x, 1, 2)[real],
            "masked LM logits": lambda x: x[masked],
        }
        for name in mine:
            pick = of_positions.get(name, lambda x: x)
            pairs = zip(jax.tree.leaves(mine[name]), jax.tree.leaves(other[name]), strict=True)
            for number, (one, two) in enumerate(pairs):
                one, two = pick(one), pick(two)
                scale = max(1, np.abs(two).max()) if to_scale else 1
                where = f"{name}, number {number}"
                np.testing.assert_allclose(one, two, rtol=0, atol=tolerance * scale, err_msg=where)

    return compare
