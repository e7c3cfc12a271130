"""Embeddings: vectors of texts, near for texts that belong together (Reimers and Gurevych 2019).

An example is a pair (anchor, positive), a triplet with a negative, or a pair with a score. The
vector of a text is pooled from the encoder's last layer; there are no other parameters, so that
`encode` and sentence-transformers compute the same vectors.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.config import defaults
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.groups import HeadConfig
from bert_jax.data.labelled.encode_texts import encode_separately
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.sequences import GroupedRows
from bert_jax.data.labelled.tables import Columns, parse_column, read_table
from bert_jax.files.errors import UserError
from bert_jax.models.task_heads import EmbeddingModel, EmbeddingOutputs
from bert_jax.scores import correlation, retrieval
from bert_jax.tasks.embedding_losses import SCORED, embedding_loss
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.supervised import Labelled, check_head, shared_fields
from bert_jax.tasks.task import Batch, check_metrics

_CORRELATIONS = {"spearman": correlation.spearman, "pearson": correlation.pearson}
# Fields of config.head that other heads read, and the only value here.
_FIXED = {"layers": "last", "pooler": False, "lm_weight": 0.0, "both_orders": False}
_POOLS = ("mean", "max", "cls")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedding(Labelled):
    """Vectors of texts.

    Attributes:
      columns: the columns of the files.
      on_missing: what is done with rows without texts or score; see `read_table`.
      labels: none.
    """

    columns: Columns = Columns("text_a", "text_b", None)
    on_missing: str = "error"

    EMBEDS = True

    default_config = staticmethod(defaults.embedding)

    @classmethod
    def make(cls, config: FinetuningConfig) -> "Embedding":
        """Returns the task of a configuration.

        Raises:
          UserError: for columns, a loss, metrics or a head that do not fit together.
        """
        data, head, loss = config.data, config.head, config.head.embedding_loss
        columns = Columns(
            parse_column(data.text_a) or "",
            parse_column(data.text_b),
            parse_column(data.label),
            id=parse_column(data.id),
            negative=parse_column(data.negative),
            decimal=data.decimal,
        )
        for name in ("text_a", "text_b"):
            if not getattr(data, name):
                raise UserError(f"data.{name} is missing: the column of a text of each pair.")
        if (columns.label is not None) != (loss in SCORED):
            needs, fix = (
                ("scores", "config.data.label to their column")
                if loss in SCORED
                else ("no scores", "config.data.label='', or config.head.embedding_loss=cosent")
            )
            raise UserError(
                f"head.embedding_loss={loss!r} reads {needs} of pairs, and"
                f" config.data.label={data.label!r}: set {fix}."
            )
        if columns.negative is not None and loss in SCORED:
            raise UserError(
                f"head.embedding_loss={loss!r} reads no negatives: set config.data.negative=''."
            )
        if data.long_texts != "truncate":
            raise UserError(
                f"data.long_texts={data.long_texts!r} is not for embeddings: set it to truncate;"
                " `encode` reads long texts in windows."
            )
        check_metrics(
            config.metrics,
            _CORRELATIONS if loss in SCORED else retrieval.METRICS,
            f", the metrics for head.embedding_loss={loss!r}",
        )
        _check_embedding_head(head, config.optimizer.frozen_layers)
        return cls(**shared_fields(config), columns=columns, on_missing=data.on_missing)

    @property
    def has_scores(self) -> bool:
        """Whether the pairs of a file have scores."""
        return self.columns.label is not None

    def read(self, path, counts, labelled) -> Iterator[TextExample]:
        how = {"on_missing": self.on_missing, "has_labels": self.has_scores}
        return read_table(path, self.columns, counts, labelled, **how)

    def encode(self, examples, tokenizer, counts) -> GroupedRows:
        if self.head.embedding_loss == "cosine_mse":
            for example in examples:
                _check_cosine(example)
        return encode_separately(examples, tokenizer, self.max_sequence_length, counts)

    def bind(self, model, tokenizer, phase=None, evaluate=False):
        check_head(self.head, model, pools=True)
        if (sizes := self.head.matryoshka) and sizes[-1] >= model.hidden_size:
            raise UserError(
                f"head.matryoshka={sizes} must be below the {model.hidden_size} dimensions of the"
                " model, whose loss is always added."
            )
        return dataclasses.replace(self, model=model)

    @property
    def couples_examples(self) -> bool:
        return self.head.embedding_loss != "cosine_mse"

    def make_model(self) -> EmbeddingModel:
        return EmbeddingModel(self.model, self.head)

    def example_batch(self) -> dict[str, jax.Array]:
        return {name: array[:, None] for name, array in super().example_batch().items()}

    def losses(self, outputs: EmbeddingOutputs, batch: Batch) -> Sums:
        """Those of the whole vectors, `task_loss`, and of each prefix, such as `task_64_loss`."""
        head, vectors = self.head, outputs.vectors
        sums = embedding_loss("task", head.embedding_loss, vectors, batch, head.temperature)
        for size in head.matryoshka:
            part = vectors[..., :size]
            sums |= embedding_loss(
                f"task_{size}", head.embedding_loss, part, batch, head.temperature
            )
        return sums

    def answers(self, outputs: EmbeddingOutputs, batch: Batch) -> dict[str, jax.Array]:
        return {"vectors": outputs.vectors}

    def collect(self, examples, rows, answers):
        """`similarity`, the cosine of the two texts."""
        first, second = (retrieval.unit(_vectors(answers, text)) for text in (0, 1))
        cosines = (first * second).sum(-1).tolist()
        return [
            {"id": example.id, "similarity": cosine}
            for example, cosine in zip(examples, cosines, strict=True)
        ]

    def evaluate(self, rows, answers, means):
        """The scores, those of each prefix, named metric_dim_SIZE, then the loss.

        The predictions for pairs without scores also have `rank`, that of the own positive of an
        anchor among all positives of the file.
        """
        values, kept = {}, []
        for size in (None, *self.head.matryoshka):
            part = [{"vectors": answer["vectors"][:, :size]} for answer in answers]
            predictions = self.collect(rows.examples, rows.rows, part)
            if not self.has_scores:
                anchors = [example.text_a for example in rows.examples]
                positives = [example.text_b for example in rows.examples]
                vectors = _vectors(part, 0), _vectors(part, 1)
                ranks = retrieval.rank_pairs(anchors, positives, *vectors)
                for prediction, rank in zip(predictions, ranks.tolist(), strict=True):
                    prediction["rank"] = rank
            suffix = f"_dim_{size}" if size else ""
            scores = self.score(rows.examples, predictions)
            values |= {name + suffix: value for name, value in scores.items()}
            kept = kept or predictions
        values["loss"] = means["loss"]
        prefix = "" if rows.name == "eval" else f"{rows.name}_"
        return {prefix + name: value for name, value in values.items()}, kept

    def score(self, examples, predictions):
        if not self.has_scores:
            ranks = np.array([prediction["rank"] for prediction in predictions])
            return {name: retrieval.METRICS[name](ranks) for name in self.metrics}
        gold = np.array([float(example.labels[0]) for example in examples])
        found = np.array([prediction["similarity"] for prediction in predictions])
        return {name: _CORRELATIONS[name](gold, found) for name in self.metrics}

    def baseline(self, examples):
        return 0.0 if self.has_scores else None  # of a constant; ranks of one are undefined


def _vectors(answers: Sequence[Any], text: int) -> np.ndarray:
    """Returns float32[examples, features], the vectors of one of the texts of each example."""
    return np.stack([answer["vectors"][text] for answer in answers])


def _check_cosine(example: TextExample) -> None:
    for label in example.labels or ():
        if not -1 <= float(label) <= 1:
            raise UserError(
                f"{example.where}: the score {label} is not a cosine, from -1 to 1, which"
                " config.head.embedding_loss='cosine_mse' compares it with: scale the scores, or"
                " take cosent, which reads their order only."
            )


def _check_embedding_head(head: HeadConfig, frozen_layers: int) -> None:
    """Refuses settings with which `encode` would not compute the vectors that are trained."""
    for name, value in _FIXED.items():
        if (got := getattr(head, name)) != value:
            raise UserError(
                f"head.{name}={got!r}: the vector of a text is pooled from the last layer, with"
                f" nothing else: set --config.head.{name}={value}."
            )
    if head.pool not in _POOLS:
        raise UserError(f"head.pool={head.pool!r} must be one of {', '.join(_POOLS)} here.")
    if frozen_layers == -1:
        raise UserError(
            "optimizer.frozen_layers=-1 freezes the encoder, and embeddings have no other"
            " parameters: set --config.optimizer.frozen_layers=0."
        )
