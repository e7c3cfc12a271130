"""ColBERT: a vector of each token (Khattab and Zaharia 2020, arXiv 2004.12832).

The last hidden states are projected to a few dimensions and scaled to length 1. Texts are compared
by MaxSim: the sum, over the tokens of one, of the largest dot product with a token of the other.
All tokens count, [CLS], [SEP] and punctuation too, and queries are not filled up with [MASK], as
sentence-transformers' MultiVectorEncoder has it by default.
"""

import dataclasses

from bert_jax.config.group import setting
from bert_jax.formats.sentence_transformers import MULTI, SentenceVectors
from bert_jax.scores import retrieval
from bert_jax.tasks.colbert.model import ColbertModel, ColbertOutputs, max_similarities
from bert_jax.tasks.embedding.losses import in_batch_loss
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.task import Batch
from bert_jax.tasks.text_pairs import TextVectors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Colbert(TextVectors):
    """Vectors of the tokens of texts."""

    name: str = "colbert"
    # Dimensions of the vector of a token.
    features: int = setting(128, minimum=1)

    EMBEDS = "multi"
    PROJECTS = True

    @property
    def sentence_vectors(self) -> SentenceVectors:
        return SentenceVectors(MULTI, True, self.max_sequence_length, features=self.features)

    def describe(self):
        yield f"head       projection of each token to {self.features} dimensions -> MaxSim"

    def head_flops_per_token(self) -> float:
        return 2.0 * self.model.hidden_size * self.features

    def make_model(self) -> ColbertModel:
        return ColbertModel(self.model, self.features)

    def losses(self, outputs: ColbertOutputs, batch: Batch) -> Sums:
        logits = max_similarities(outputs) / self.temperature
        return in_batch_loss("task", self.loss, logits, batch)

    def answers(self, outputs: ColbertOutputs, batch: Batch):
        return {"vectors": outputs.vectors, "is_token": outputs.is_token}

    similarities = staticmethod(retrieval.max_similarities)

    def vectors_of(self, answers, text):
        """Returns an object array, with float32[tokens, features] for each example."""
        return retrieval.ragged([a["vectors"][text][a["is_token"][text]] for a in answers])

    def collect(self, examples, rows, answers):
        """`similarity`, the MaxSim of the first text with the second one."""
        first, second = (self.vectors_of(answers, text) for text in (0, 1))
        return [
            {"id": example.id, "similarity": float((a @ b.T).max(axis=1).sum())}
            for example, a, b in zip(examples, first, second, strict=True)
        ]
