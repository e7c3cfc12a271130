"""Losses of embeddings and their gradients, compared with those of sentence-transformers."""

import jax
import numpy as np
import pytest

from bert_jax.tasks.embedding.losses import embedding_loss
from tests.twins import torch

ROWS, FEATURES = 7, 6
SYMMETRIC = {
    "directions": ("query_to_doc", "doc_to_query"),
    "partition_mode": "per_direction",
}
# Loss -> the class of sentence-transformers, its options, and the texts of an example.
LOSSES = {
    "in_batch": ("MultipleNegativesRankingLoss", {"scale": 10.0}, 3),
    "in_batch_symmetric": ("MultipleNegativesRankingLoss", {"scale": 10.0} | SYMMETRIC, 3),
    "cosent": ("CoSENTLoss", {"scale": 10.0}, 2),
    "cosine_mse": ("CosineSimilarityLoss", {}, 2),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_are_those_of_sentence_transformers(kind):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import losses

    name, options, texts = LOSSES[kind]
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((ROWS, texts, FEATURES)).astype(np.float32)
    scores = rng.integers(0, 4, ROWS).astype(np.float32) / 3
    batch = {
        "text_ids": np.arange(ROWS * texts).reshape(ROWS, texts),
        "scores": scores,
        "weights": np.ones(ROWS, np.float32),
    }

    def ours(vectors):
        loss = embedding_loss("task", kind, vectors, batch, 0.1)["task_loss"]
        return loss.numerator / loss.denominator

    theirs = torch.tensor(vectors, requires_grad=True)
    loss = getattr(losses, name)(torch.nn.Identity(), **options)
    labels = torch.tensor(scores)
    value = loss.compute_loss_from_embeddings(list(theirs.unbind(1)), labels)
    value.backward()
    found, gradient = jax.value_and_grad(ours)(vectors)
    np.testing.assert_allclose(found, value.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient, theirs.grad.numpy(), atol=1e-5)
