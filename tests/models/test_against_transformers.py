"""The same weights in transformers' BertForPreTraining give the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.models import Bert, BertForPreTraining

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Ours -> theirs; a dense kernel is the transpose of their weight.
TABLE = {
    "bert/embeddings/word_embeddings/embedding": "bert.embeddings.word_embeddings.weight",
    "bert/embeddings/position_embeddings/embedding": "bert.embeddings.position_embeddings.weight",
    "bert/embeddings/token_type_embeddings/embedding": (
        "bert.embeddings.token_type_embeddings.weight"
    ),
    "bert/embeddings/layer_norm": "bert.embeddings.LayerNorm",
    "bert/pooler": "bert.pooler.dense",
    "masked_lm/transform": "cls.predictions.transform.dense",
    "masked_lm/layer_norm": "cls.predictions.transform.LayerNorm",
    "masked_lm/bias": "cls.predictions.bias",
    "next_sentence": "cls.seq_relationship",
}
LAYER_TABLE = {
    "attention/query": "attention.self.query",
    "attention/key": "attention.self.key",
    "attention/value": "attention.self.value",
    "attention/output": "attention.output.dense",
    "attention/layer_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "layer_norm": "output.LayerNorm",
}
LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}


def to_theirs(params, num_layers):
    """{their name: array} from our tree of parameters or of gradients."""
    table = dict(TABLE)
    for i in range(num_layers):
        table |= {
            f"bert/encoder/layer_{i}/{ours}": f"bert.encoder.layer.{i}.{theirs}"
            for ours, theirs in LAYER_TABLE.items()
        }
    state = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        module, _, kind = name.rpartition("/")
        theirs = table.get(name) or f"{table[module]}.{LEAVES[kind]}"
        state[theirs] = np.array(leaf.T if kind == "kernel" else leaf)
    return state


@pytest.fixture(params=["small", "12 layers"])
def pair(request, make_config, make_batch, random_params):
    """Our config, parameters and batch, their model, and the tolerance."""
    sizes, tolerance = {
        "small": ({}, 1e-5),
        "12 layers": ({"num_layers": 12, "hidden_size": 48, "intermediate_size": 192}, 1e-4),
    }[request.param]
    config = make_config(**sizes)
    batch = make_batch(config)
    params = random_params(config, batch)
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
            hidden_act="gelu",
            attn_implementation="eager",
        )
    ).eval()
    state = {name: torch.tensor(x) for name, x in to_theirs(params, config.num_layers).items()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) == {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    return config, params, batch, theirs, tolerance


def run_theirs(model, batch, **options):
    return model(
        input_ids=torch.tensor(batch["input_ids"]).long(),
        token_type_ids=torch.tensor(batch["token_type_ids"]).long(),
        attention_mask=torch.tensor(batch["example_ids"]).long(),
        **options,
    )


def test_hidden_states_attention_and_pooled_output(pair):
    config, params, batch, model, tolerance = pair
    ours = Bert(config).apply({"params": params["bert"]}, batch, deterministic=True, keep_all=True)
    with torch.no_grad():
        theirs = run_theirs(model.bert, batch, output_hidden_states=True, output_attentions=True)
    real = batch["example_ids"] > 0
    assert len(ours.all_hidden) == len(theirs.hidden_states) == config.num_layers + 1
    for mine, other in zip(ours.all_hidden, theirs.hidden_states, strict=True):
        np.testing.assert_allclose(mine[real], other.numpy()[real], atol=tolerance, rtol=0)
    for mine, other in zip(ours.attention, theirs.attentions, strict=True):
        by_query = np.moveaxis(np.array(mine), 1, 2), np.moveaxis(other.numpy(), 1, 2)
        np.testing.assert_allclose(by_query[0][real], by_query[1][real], atol=tolerance, rtol=0)
    np.testing.assert_allclose(
        ours.pooled[:, 0], theirs.pooler_output.numpy(), atol=tolerance, rtol=0
    )


def test_logits_of_both_heads(pair):
    config, params, batch, model, tolerance = pair
    ours = BertForPreTraining(config).apply({"params": params}, batch, deterministic=True)
    with torch.no_grad():
        theirs = run_theirs(model, batch)
    asked = np.take_along_axis(
        theirs.prediction_logits.numpy(), batch["masked_lm_positions"][..., None], axis=1
    )
    np.testing.assert_allclose(ours.masked_lm_logits, asked, atol=tolerance, rtol=0)
    np.testing.assert_allclose(
        ours.next_sentence_logits[:, 0],
        theirs.seq_relationship_logits.numpy(),
        atol=tolerance,
        rtol=0,
    )


def test_loss_and_its_gradient(pair):
    config, params, batch, model, _ = pair

    def loss_of(params):
        outputs = BertForPreTraining(config).apply({"params": params}, batch, deterministic=True)
        sums = objectives.masked_lm(outputs.masked_lm_logits, batch)
        sums |= objectives.next_sentence(outputs.next_sentence_logits, batch)
        losses = [sums["masked_lm_loss"], sums["next_sentence_loss"]]
        return sum(term.numerator / term.denominator for term in losses)

    loss, grads = jax.value_and_grad(loss_of)(jax.tree.map(jnp.asarray, params))

    labels = np.full(batch["input_ids"].shape, -100)
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    labels[rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]
    theirs = run_theirs(
        model,
        batch,
        labels=torch.tensor(labels),
        next_sentence_label=torch.tensor(batch["next_sentence_labels"][:, 0]).long(),
    )
    theirs.loss.backward()
    np.testing.assert_allclose(loss, theirs.loss.item(), rtol=1e-5)
    named = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    for name, mine in to_theirs(grads, config.num_layers).items():
        scale = np.abs(named[name]).max()
        if name.endswith("key.bias"):  # its gradient is zero but for rounding
            scale = np.abs(named[name.replace("key", "query")]).max()
        np.testing.assert_allclose(mine, named[name], atol=1e-4 * scale, rtol=0, err_msg=name)
