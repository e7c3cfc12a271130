"""The same weights and batches for bert_jax and for transformers on torch, and their outputs."""

import dataclasses
import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.config.encoders import ElectraConfig, ModernBertConfig
from bert_jax.models import make_encoder
from bert_jax.models.gpt import GptConfig
from bert_jax.models.pooling import EncoderWithPooler
from bert_jax.tasks.causal_lm import CausalLM
from bert_jax.tasks.losses import loss_names
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training.state import TrainState, init_params
from bert_jax.training.step import train_step
from tests import tiny
from tests.twins import make_twin, torch

CLASSES = {
    "bert": "BertForPreTraining",
    "gpt": "OpenAIGPTLMHeadModel",
    "modernbert": "ModernBertForMaskedLM",
    "electra": "ElectraForMaskedLM",
}
SIZES = dict(hidden_size=32, num_heads=4, max_position_embeddings=40, prng_impl="threefry2x32")


def make_pair(encoder: str = "bert", initial: bool = False, **sizes: Any):
    """Makes one random model in both programs.

    Args:
      encoder: a key of CLASSES.
      initial: whether the weights are those that training starts from.
      **sizes: fields of the encoder, and of `tiny.make_task` for BERT.

    Returns:
      Our task, without dropout and with masks that come with the batch, our parameters, and their
      model.
    """
    sizes = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0} | sizes
    if encoder == "bert":
        task = dataclasses.replace(tiny.make_task(**{"activation": "gelu"} | sizes), rule=None)
    elif encoder == "gpt":
        sizes = SIZES | {"num_layers": 2, "intermediate_size": 128} | sizes
        task = CausalLM(model=GptConfig(vocab_size=97, **sizes))
    elif encoder == "electra":
        sizes = SIZES | {"intermediate_size": 64, "embedding_size": 24} | sizes
        task = Pretraining(model=ElectraConfig(vocab_size=97, **sizes), next_sentence=False)
    else:
        # The window is shorter than the rows; layers 0 and 3 see everything.
        sizes = SIZES | {"num_layers": 5, "intermediate_size": 48, "attention_window": 3} | sizes
        task = Pretraining(model=ModernBertConfig(vocab_size=97, **sizes), next_sentence=False)
    params = init_params(task, jax.random.key(0)) if initial else random_params(task)
    return task, params, make_twin(CLASSES[encoder], task.model, params)


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


def make_rows(config, lengths, width=None, predictions=6, seed=0):
    """Returns a masked batch with rows of the given lengths, padded."""
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


def our_outputs(task):
    """Returns (params, batch) -> every output by its name, compiled."""
    config = task.model

    @jax.jit
    def run(params, batch):
        of_encoder = {"params": params[config.name]}
        has_pooler = "pooler" in params[config.name]
        module = EncoderWithPooler(config) if has_pooler else make_encoder(config)
        keep = {"deterministic": True, "keep_all": True, "keep_attention": True}
        outputs: Any = module.apply(of_encoder, batch, **keep)
        encoded, pooled = outputs if has_pooler else (outputs, None)
        found = {"hidden states": encoded.all_hidden, "attention": encoded.attention}
        if pooled is not None:
            found["pooled output"] = pooled[:, 0]
        heads: Any = task.make_model().apply({"params": params}, batch, deterministic=True)
        if config.name == "gpt":
            return found | {"next-word logits": heads.logits()}
        found["masked LM logits"] = heads.masked_lm_logits
        if pooled is not None:
            found["next sentence logits"] = heads.next_sentence_logits[:, 0]
        return found

    return lambda params, batch: jax.tree.map(np.asarray, run(params, batch))


def their_outputs(model, batch):
    """Returns the same outputs of transformers' model."""
    tensors = {name: torch.tensor(array).long() for name, array in batch.items()}
    with torch.no_grad():
        encoded = getattr(model, model.base_model_prefix, model)(
            **their_inputs(model, batch), output_hidden_states=True, output_attentions=True
        )
        last = encoded.last_hidden_state
        # The last of ModernBERT's `hidden_states` is not normalized.
        outputs = {
            "hidden states": (*encoded.hidden_states[:-1], last),
            "attention": encoded.attentions,
        }
        if getattr(encoded, "pooler_output", None) is not None:
            outputs["pooled output"] = encoded.pooler_output
        masked = last.take_along_dim(tensors["masked_lm_positions"][..., None], 1)
        if hasattr(model, "cls"):
            logits = model.cls(masked, encoded.pooler_output)
            outputs["masked LM logits"], outputs["next sentence logits"] = logits
        elif type(model).__name__.endswith("ForMaskedLM"):
            logits = model(**their_inputs(model, batch)).logits
            places = tensors["masked_lm_positions"][..., None]
            outputs["masked LM logits"] = logits.take_along_dim(places, 1)
        elif hasattr(model, "lm_head"):
            outputs["next-word logits"] = model.lm_head(last)
    return jax.tree.map(lambda tensor: tensor.numpy(), outputs)


def their_inputs(model, batch):
    """Returns the ids, and the token types that a model reads: GPT's class takes them for words."""
    names = {"input_ids": "input_ids", "example_ids": "attention_mask"}
    if model.config.model_type in ("bert", "electra") and model.config.type_vocab_size:
        names["token_type_ids"] = "token_type_ids"
    return {theirs: torch.tensor(batch[ours]).long() for ours, theirs in names.items()}


def assert_same(mine, other, batch, tolerance):
    """Compares two sets of outputs at all positions but padding."""
    assert mine.keys() == other.keys()
    real, masked = batch["example_ids"] > 0, batch["masked_lm_weights"] > 0
    of_positions = {
        "hidden states": lambda x: x[real],
        # [batch, heads, query, key] -> [real queries, heads, key]
        "attention": lambda x: np.moveaxis(x, 1, 2)[real],
        "masked LM logits": lambda x: x[masked],
        "next-word logits": lambda x: x[real],
    }
    for name in mine:
        pick = of_positions.get(name, lambda x: x)
        pairs = zip(jax.tree.leaves(mine[name]), jax.tree.leaves(other[name]), strict=True)
        for number, (one, two) in enumerate(pairs):
            where = f"{name}, number {number}"
            np.testing.assert_allclose(pick(one), pick(two), rtol=0, atol=tolerance, err_msg=where)


def train(task, params, batches, tx):
    """Returns {name: mean} of each training step, with the loss as `total`, and the last state."""
    keys = dict.fromkeys(("dropout", "masking"), jax.random.key(0))
    step = jax.jit(functools.partial(train_step, task=task, tx=tx, steps=len(batches)))
    zero = jnp.zeros((), jnp.int32)
    state, losses = TrainState(zero, params, tx.init(params), zero), []
    for batch in batches:
        state, metrics = step(state, batch, keys)
        means = {n: float(s.numerator / s.denominator) for n, s in metrics.sums.items()}
        means["total"] = sum(means[name] for name in loss_names(metrics.sums))
        losses.append(means)
    return losses, state


def loss_and_gradient(task, params, batch):
    """Of the real training step: an optimizer that keeps the gradient and changes nothing."""
    tx = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
    (losses,), state = train(task, params, [batch], tx)
    return losses, state.opt_state[0].trace


def assert_same_gradients(mine, model):
    """Compares {their name: our gradient} with those of all parameters of their model."""
    other = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    assert mine.keys() == other.keys()
    for name in mine:
        # A bias of the keys or of the choices shifts all scores alike: its gradient is 0 but for
        # the rounding of what the gradient of their kernel is a sum of too.
        of = re.sub(r"(key|k_lin|summary)\.bias$", r"\1.weight", name)
        scale = np.abs(other[of]).max()
        assert scale > 0, name
        np.testing.assert_allclose(mine[name], other[name], atol=1e-4 * scale, rtol=0, err_msg=name)
