"""SPLADE: sparse vectors of texts, weights of words (Formal et al. 2021, arXiv 2109.10086).

The weight of a word is the maximum of log(1 + relu(logit)) over the tokens of a text, with the
logits of the encoder's masked-LM head. Texts are compared by the dot product of their vectors,
which an inverted index computes. A regularizer on the expected number of its operations makes
vectors sparse: FLOPS (Paria et al. 2020, arXiv 2004.05665), the sum over all words of the squared
mean weight in a batch.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np

from bert_jax.config.group import derived, setting
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import SPLADE, SentenceVectors
from bert_jax.models.heads import word_flops
from bert_jax.models.task_heads import EmbeddingOutputs
from bert_jax.scores import retrieval
from bert_jax.tasks.embedding.losses import dot_products, in_batch_loss
from bert_jax.tasks.losses import Sum, Sums, metric
from bert_jax.tasks.splade.model import SpladeModel
from bert_jax.tasks.task import Batch
from bert_jax.tasks.text_pairs import TextVectors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Splade(TextVectors):
    """Sparse vectors of texts.

    Attributes:
      is_trained: whether batches are for training, in which the regularizers' weights grow.
    """

    name: str = "splade"
    # Products of vectors are divided by it.
    temperature: float = setting(10.0)
    # Weight of the FLOPS regularizer of first texts (queries).
    anchor_flops: float = setting(3e-3, minimum=0.0)
    # Weight of the FLOPS regularizer of all other texts (documents).
    positive_flops: float = setting(3e-3, minimum=0.0)
    # Fraction of the training steps in which both weights grow from 0, as the square of the steps.
    flops_warmup: float = setting(1 / 3, minimum=0.0)

    is_trained: bool = derived(False)

    EMBEDS = "sparse"

    def bind(self, model, tokenizer, phase=None, evaluate=False):
        if model.is_causal or not model.has_word_table:
            raise UserError(
                f"task.name='splade' needs a masked-LM head, which a model of the kind"
                f" {model.name!r} lacks: choose a bidirectional Transformer."
            )
        is_trained = phase is not None and not evaluate
        return dataclasses.replace(self, model=model, is_trained=is_trained)

    @property
    def sentence_vectors(self) -> SentenceVectors:
        return SentenceVectors(SPLADE, False, self.max_sequence_length)

    def describe(self):
        yield "head       masked-LM head -> maximum over tokens of log(1 + relu(logit))"

    def head_flops_per_token(self) -> float:
        return word_flops(self.model)

    def make_model(self) -> SpladeModel:
        return SpladeModel(self.model)

    def transform(self, key, batch, progress=0.0):
        """Adds float32[batch] `flops_growth`, the factor of the regularizers in training."""
        if not self.is_trained or not self.flops_warmup:
            return dict(batch)
        growth = jnp.minimum(1.0, jnp.asarray(progress, jnp.float32) / self.flops_warmup) ** 2
        return {**batch, "flops_growth": jnp.full(batch["weights"].shape, growth)}

    def losses(self, outputs: EmbeddingOutputs, batch: Batch) -> Sums:
        """`task_loss` of the pairs, `anchor_flops_loss` and `positive_flops_loss`.

        The metrics `anchor_words` and `positive_words` are mean numbers of weights above 0.
        """
        vectors, weights = outputs.vectors, batch["weights"]
        logits = dot_products(vectors) / self.temperature
        sums = in_batch_loss("task", self.loss, logits, batch)
        total = weights.sum()
        growth = batch["flops_growth"].max() if "flops_growth" in batch else 1.0
        texts = {
            "anchor": (vectors[:, :1], self.anchor_flops),
            "positive": (vectors[:, 1:], self.positive_flops),
        }
        for name, (part, factor) in texts.items():
            means = jnp.einsum("btv,b->v", part, weights) / jnp.maximum(total, 1) / part.shape[1]
            sums[f"{name}_flops_loss"] = Sum(factor * growth * (means**2).sum() * total, total)
            words = (part > 0).sum(axis=-1).mean(axis=-1)
            sums[f"{name}_words"] = metric((words * weights).sum(), total)
        return sums

    similarities = staticmethod(retrieval.sparse_products)

    def vectors_of(self, answers, text):
        """Returns a CSR array, float32[examples, vocab_size]."""
        from scipy import sparse  # imported here, since it adds a warnings filter

        return sparse.csr_array(np.stack([answer["vectors"][text] for answer in answers]))

    def collect(self, examples, rows, answers):
        """`similarity`, the product of the two vectors, and `words`, their weights above 0."""
        first, second = (self.vectors_of(answers, text) for text in (0, 1))
        products = first.multiply(second).sum(axis=1).tolist()
        words = np.stack([np.diff(first.indptr), np.diff(second.indptr)], axis=1).tolist()
        return [
            {"id": example.id, "similarity": product, "words": numbers}
            for example, product, numbers in zip(examples, products, words, strict=True)
        ]
