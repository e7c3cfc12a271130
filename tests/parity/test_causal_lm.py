"""Left-to-right BERT against transformers' BertLMHeadModel: logits, loss and gradients."""

from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.models.heads import CausalLMModel
from bert_jax.tasks.causal_lm import CausalLM
from bert_jax.training.state import init_params, make_key
from tests.tiny import make_batch
from tests.tiny import make_model as make_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LENGTH = 24


@pytest.fixture(scope="module")
def model():
    return make_config(attention_pattern="causal", max_position_embeddings=LENGTH)


@pytest.fixture(scope="module")
def params(model):
    """Far from the initial values, so that every parameter has an effect."""
    rng = np.random.default_rng(3)
    shapes = init_params(CausalLM(model, LENGTH), make_key(0, "init"))
    return jax.tree.map(lambda x: np.asarray(x) + 0.2 * rng.standard_normal(x.shape, "f4"), shapes)


@pytest.fixture
def theirs(model, params, to_theirs):
    theirs = transformers.BertLMHeadModel(
        transformers.BertConfig(
            vocab_size=model.vocab_size,
            hidden_size=model.hidden_size,
            num_hidden_layers=model.num_layers,
            num_attention_heads=model.num_heads,
            intermediate_size=model.intermediate_size,
            max_position_embeddings=model.max_position_embeddings,
            hidden_act="gelu_new",
            is_decoder=True,
        )
    ).eval()
    state = {name: torch.tensor(array) for name, array in to_theirs(params).items()}
    _, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected
    theirs.tie_weights()
    return theirs


def test_logits_loss_and_gradients(model, params, theirs, to_theirs):
    batch = make_batch(6, LENGTH, seed=2)
    is_token = batch["example_ids"] > 0
    inputs = {
        "input_ids": torch.tensor(batch["input_ids"], dtype=torch.long),
        "token_type_ids": torch.tensor(batch["token_type_ids"], dtype=torch.long),
        "attention_mask": torch.tensor(is_token.astype(int)),
    }
    labels = np.where(is_token, batch["input_ids"], -100)  # transformers shifts them
    out = theirs(**inputs, labels=torch.tensor(labels, dtype=torch.long))
    out.loss.backward()

    logits: Any = CausalLMModel(model).apply({"params": params}, batch, deterministic=True)
    difference = np.abs(np.asarray(logits) - out.logits.detach().numpy())[is_token]
    assert difference.max() < 1e-4

    task = CausalLM(model, LENGTH)

    def loss_of(params):
        outputs: Any = task.make_model().apply({"params": params}, batch, deterministic=True)
        sums = task.losses(outputs, batch)["causal_lm_loss"]
        return sums.numerator / sums.denominator

    loss, gradients = jax.jit(jax.value_and_grad(loss_of))(params)
    assert float(loss) == pytest.approx(float(out.loss.detach()), rel=1e-5)
    found = {name: p.grad.numpy() for name, p in theirs.named_parameters() if p.grad is not None}
    for name, gradient in to_theirs(gradients).items():
        np.testing.assert_allclose(gradient, found[name], rtol=1e-3, atol=1e-5, err_msg=name)
