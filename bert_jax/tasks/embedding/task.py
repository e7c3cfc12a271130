"""Embeddings: text vectors, close for texts that belong together (Reimers and Gurevych 2019).

An example is a pair (anchor, positive), a triplet with a negative, or a pair with a score. The
vector of a text is pooled from the encoder's last layer; there are no other parameters, so
`encode` and sentence-transformers compute the same vectors.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.group import setting
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.sequences import GroupedRows
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import SentenceVectors
from bert_jax.models.reading import PooledHeadConfig
from bert_jax.models.task_heads import EmbeddingModel, EmbeddingOutputs
from bert_jax.scores import correlation, retrieval
from bert_jax.tasks.embedding.losses import SCORED, embedding_loss
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.supervised import check_pool
from bert_jax.tasks.task import Batch
from bert_jax.tasks.text_pairs import TextVectors


def _check_sizes(name: str, sizes: tuple[Any, ...]) -> None:
    are_numbers = all(type(size) is int and size > 0 for size in sizes)
    if not are_numbers or list(sizes) != sorted(set(sizes)):
        raise UserError(
            f"{name}={sizes!r} are not ascending, positive numbers of dimensions, such as (32, 64)."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedding(TextVectors):
    """Dense vectors of texts."""

    name: str = "embedding"
    # Column of the score of a pair; empty: pairs have none.
    label: str = setting("")
    # Decimal mark of the scores; the other mark may group thousands.
    decimal: str = setting(".", choices=(".", ","))
    # The vector of a text, pooled from the last layer: `mean`, `max` (over its tokens), `cls` (its
    # first token).
    pool: str = setting("mean", choices=("mean", "max", "cls"))
    # For pairs in_batch (the other examples of the batch are negatives) or in_batch_symmetric (also
    # from the second text to the first); for scored pairs cosent (the order of the scores) or
    # cosine_mse (squared error of the cosine).
    loss: str = setting(
        "in_batch", choices=("in_batch", "in_batch_symmetric", "cosent", "cosine_mse")
    )
    # Cosines are divided by it, except with cosine_mse.
    temperature: float = setting(0.05)
    # Numbers of first dimensions whose losses are added to that of the whole vector (Matryoshka
    # representations, arXiv 2205.13147); (): none.
    matryoshka: tuple[int, ...] = setting((), check=_check_sizes)

    EMBEDS = "dense"

    @classmethod
    def default_config(cls, kind: str = "pairs") -> FinetuningConfig:
        """Returns the defaults for `pairs` that belong together, or for `scored` ones.

        Raises:
          UserError: for another kind of pairs.
        """
        if kind == "pairs":
            return super().default_config()
        if kind != "scored":
            raise UserError(f"Unknown pairs {kind!r}. Available: pairs, scored.")
        task = cls(text_a="sentence1", text_b="sentence2", label="score", loss="cosent")
        return FinetuningConfig(task=task, global_batch_size=64, metrics=tuple(correlation.METRICS))

    def check(self) -> None:
        super().check()
        if bool(self.label) != (self.loss in SCORED):
            needs, fix = (
                ("scores", "config.task.label to their column")
                if self.loss in SCORED
                else ("no scores", "config.task.label='', or config.task.loss=cosent")
            )
            raise UserError(
                f"loss={self.loss!r} reads {needs} of pairs, and config.task.label="
                f"{self.label!r}: set {fix}."
            )
        if self.negative and self.loss in SCORED:
            raise UserError(f"loss={self.loss!r} reads no negatives: set config.task.negative=''.")

    @property
    def known_metrics(self) -> Mapping[str, Any]:
        return correlation.METRICS if self.loss in SCORED else retrieval.METRICS

    def encode(self, examples, tokenizer, counts) -> GroupedRows:
        if self.loss == "cosine_mse":
            for example in examples:
                _check_cosine(example)
        return super().encode(examples, tokenizer, counts)

    def bind(self, model, tokenizer, phase=None, evaluate=False):
        check_pool(self.pool, model)
        if (sizes := self.matryoshka) and sizes[-1] >= model.hidden_size:
            raise UserError(
                f"task.matryoshka={sizes} must be below the {model.hidden_size} dimensions of the"
                " model, whose loss is always added."
            )
        return dataclasses.replace(self, model=model)

    @property
    def couples_examples(self) -> bool:
        return self.loss != "cosine_mse"

    def make_model(self) -> EmbeddingModel:
        return EmbeddingModel(self.model, PooledHeadConfig(pool=self.pool, pooler=False))

    def losses(self, outputs: EmbeddingOutputs, batch: Batch) -> Sums:
        """Losses of the whole vectors, `task_loss`, and of each prefix, such as `task_64_loss`."""
        vectors = outputs.vectors
        sums = embedding_loss("task", self.loss, vectors, batch, self.temperature)
        for size in self.matryoshka:
            part = vectors[..., :size]
            sums |= embedding_loss(f"task_{size}", self.loss, part, batch, self.temperature)
        return sums

    def collect(self, examples, rows, answers):
        """`similarity`, the cosine of the two texts."""
        first, second = (retrieval.unit(self.vectors_of(answers, text)) for text in (0, 1))
        cosines = (first * second).sum(-1).tolist()
        return [
            {"id": example.id, "similarity": cosine}
            for example, cosine in zip(examples, cosines, strict=True)
        ]

    @property
    def sentence_vectors(self) -> SentenceVectors:
        # Losses read cosines, so only the directions of vectors are trained.
        return SentenceVectors(self.pool, True, self.max_sequence_length)

    def evaluate(self, rows, answers, means):
        """Also the scores of each prefix of the vectors, named METRIC_dim_SIZE."""
        values, predictions = super().evaluate(rows, answers, means)
        loss = {name: values.pop(name) for name in [*values] if name.endswith("loss")}
        for size in self.matryoshka:
            part = [{"vectors": answer["vectors"][:, :size]} for answer in answers]
            scores, _ = super().evaluate(rows, part, {"loss": 0.0})
            values |= {f"{name}_dim_{size}": scores[name] for name in scores.keys() - loss.keys()}
        return values | loss, predictions

    def score(self, examples, predictions):
        if not self.has_scores:
            return super().score(examples, predictions)
        return self.correlations(examples, [p["similarity"] for p in predictions])


def _check_cosine(example: TextExample) -> None:
    for label in example.labels or ():
        if not -1 <= float(label) <= 1:
            raise UserError(
                f"{example.where}: the score {label} is not a cosine, from -1 to 1, which"
                " config.task.loss='cosine_mse' compares it with: scale the scores, or"
                " take cosent, which reads their order only."
            )
