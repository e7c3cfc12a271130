"""Embeddings: vectors of texts, near for texts that belong together (Reimers and Gurevych 2019).

An example is a pair (anchor, positive), a triplet with a negative, or a pair with a score. The
vector of a text is pooled from the encoder's last layer; there are no other parameters, so that
`encode` and sentence-transformers compute the same vectors.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.group import setting
from bert_jax.config.run import RunConfig
from bert_jax.data.labelled.encode_texts import encode_separately
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.sequences import GroupedRows
from bert_jax.data.labelled.tables import Columns, parse_column, read_table
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import SentenceVectors
from bert_jax.models.reading import PooledHeadConfig
from bert_jax.models.task_heads import EmbeddingModel, EmbeddingOutputs
from bert_jax.scores import correlation, retrieval
from bert_jax.tasks.embedding.losses import SCORED, embedding_loss
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.supervised import Labelled, check_pool
from bert_jax.tasks.task import Batch

_CORRELATIONS = {"spearman": correlation.spearman, "pearson": correlation.pearson}


def _check_sizes(name: str, sizes: tuple[Any, ...]) -> None:
    are_numbers = all(type(size) is int and size > 0 for size in sizes)
    if not are_numbers or list(sizes) != sorted(set(sizes)):
        raise UserError(
            f"{name}={sizes!r} are not ascending, positive numbers of dimensions, such as (32, 64)."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedding(Labelled):
    """Vectors of texts.

    Attributes:
      labels: none.
    """

    name: str = "embedding"
    # Column of the first text of a pair.
    text_a: str = setting("anchor")
    # Column of the second one.
    text_b: str = setting("positive")
    # Column of a third text that is not to be near the first one; empty: none.
    negative: str = setting("")
    # Column of the score of a pair; empty: pairs have none.
    label: str = setting("")
    # Column of an ID, which predictions repeat.
    id: str = setting("")
    # Decimal mark of the scores; the other mark may group thousands.
    decimal: str = setting(".", choices=(".", ","))
    # Rows without the text or the score that training and evaluation need: an `error` that counts
    # them all, or `skip` them.
    on_missing: str = setting("error", choices=("error", "skip"))
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
        if kind == "scored":
            task = cls(text_a="sentence1", text_b="sentence2", label="score", loss="cosent")
            metrics = tuple(_CORRELATIONS)
        elif kind == "pairs":
            task = cls()
            metrics = ("mrr_at_10", "ndcg_at_10", "accuracy", "recall_at_10")
        else:
            raise UserError(f"Unknown pairs {kind!r}. Available: pairs, scored.")
        return FinetuningConfig(task=task, global_batch_size=64, metrics=metrics)

    def check(self) -> None:
        super().check()
        for name in ("text_a", "text_b"):
            if not getattr(self, name):
                raise UserError(f"{name} is missing: the column of a text of each pair.")
        _ = self.columns  # which may not go together
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
        return _CORRELATIONS if self.loss in SCORED else retrieval.METRICS

    def for_run(self, config: RunConfig) -> Self:
        if config.optimizer.frozen_layers == -1:
            raise UserError(
                "optimizer.frozen_layers=-1 freezes the encoder, and embeddings have no other"
                " parameters: set --config.optimizer.frozen_layers=0."
            )
        return super().for_run(config)

    @functools.cached_property
    def columns(self) -> Columns:
        """The columns of the files."""
        text_a: Any = parse_column(self.text_a)  # `check` refuses ""
        return Columns(
            text_a,
            parse_column(self.text_b),
            parse_column(self.label),
            id=parse_column(self.id),
            negative=parse_column(self.negative),
            decimal=self.decimal,
        )

    @property
    def reads_numbers(self) -> bool:
        return self.has_scores

    def row_texts(self, example):
        texts = (example.text_a, example.text_b, example.negative)
        return tuple((text,) for text in texts if text)

    @property
    def has_scores(self) -> bool:
        """Whether the pairs of a file have scores."""
        return self.columns.label is not None

    def read(self, path, counts, labelled) -> Iterator[TextExample]:
        how = {"on_missing": self.on_missing, "has_labels": self.has_scores}
        return read_table(path, self.columns, counts, labelled, **how)

    def encode(self, examples, tokenizer, counts) -> GroupedRows:
        if self.loss == "cosine_mse":
            for example in examples:
                _check_cosine(example)
        return encode_separately(examples, tokenizer, self.max_sequence_length, counts)

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

    def example_batch(self) -> dict[str, jax.Array]:
        return {name: array[:, None] for name, array in super().example_batch().items()}

    def losses(self, outputs: EmbeddingOutputs, batch: Batch) -> Sums:
        """Those of the whole vectors, `task_loss`, and of each prefix, such as `task_64_loss`."""
        vectors = outputs.vectors
        sums = embedding_loss("task", self.loss, vectors, batch, self.temperature)
        for size in self.matryoshka:
            part = vectors[..., :size]
            sums |= embedding_loss(f"task_{size}", self.loss, part, batch, self.temperature)
        return sums

    def answers(self, outputs: EmbeddingOutputs, batch: Batch) -> dict[str, jax.Array]:
        return {"vectors": outputs.vectors}

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
        """How a trained model makes the vector of a text.

        Losses read cosines, so that only the directions of vectors are trained.
        """
        return SentenceVectors(self.pool, True, self.max_sequence_length)

    def evaluate(self, rows, answers, means):
        """The scores, those of each prefix, named metric_dim_SIZE, then the loss.

        The predictions for pairs without scores also have `rank`, that of the own positive of an
        anchor among all positives of the file.
        """
        values, kept = {}, []
        for size in (None, *self.matryoshka):
            part = [{"vectors": answer["vectors"][:, :size]} for answer in answers]
            predictions = self.collect(rows.examples, rows.rows, part)
            if not self.has_scores:
                ranks = self.ranks(rows.examples, part)
                for prediction, rank in zip(predictions, ranks.tolist(), strict=True):
                    prediction["rank"] = rank
            suffix = f"_dim_{size}" if size else ""
            scores = self.score(rows.examples, predictions)
            values |= {name + suffix: value for name, value in scores.items()}
            kept = kept or predictions
        values["loss"] = means["loss"]
        prefix = "" if rows.name == "eval" else f"{rows.name}_"
        return {prefix + name: value for name, value in values.items()}, kept

    def ranks(self, examples: Sequence[Any], answers: Sequence[Any]) -> np.ndarray:
        """Returns int64[examples], see `retrieval.rank_pairs`."""
        anchors = [example.text_a for example in examples]
        positives = [example.text_b for example in examples]
        first, second = (self.vectors_of(answers, text) for text in (0, 1))
        return retrieval.rank_pairs(anchors, positives, first, second, self.similarities)

    similarities = staticmethod(retrieval.cosines)

    def vectors_of(self, answers: Sequence[Any], text: int) -> Any:
        """Returns float32[examples, features], the vectors of one of the texts of each example."""
        return np.stack([answer["vectors"][text] for answer in answers])

    def score(self, examples, predictions):
        if not self.has_scores:
            ranks = np.array([prediction["rank"] for prediction in predictions])
            return {name: retrieval.METRICS[name](ranks) for name in self.metrics}
        gold = np.array([float(example.labels[0]) for example in examples])
        found = np.array([prediction["similarity"] for prediction in predictions])
        return {name: _CORRELATIONS[name](gold, found) for name in self.metrics}

    def baseline(self, examples):
        return 0.0 if self.has_scores else None  # of a constant; ranks of one are undefined


def _check_cosine(example: TextExample) -> None:
    for label in example.labels or ():
        if not -1 <= float(label) <= 1:
            raise UserError(
                f"{example.where}: the score {label} is not a cosine, from -1 to 1, which"
                " config.task.loss='cosine_mse' compares it with: scale the scores, or"
                " take cosent, which reads their order only."
            )
