"""Shared parts of the tasks on pairs of texts that belong together: columns, vectors and ranks."""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.group import derived, setting
from bert_jax.config.run import RunConfig
from bert_jax.data.labelled.encode_texts import encode_separately
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.sequences import GroupedRows
from bert_jax.data.labelled.table_rows import read_rows
from bert_jax.data.labelled.tables import Columns, parse_column, read_table
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import SentenceVectors
from bert_jax.scores import correlation, retrieval
from bert_jax.tasks.supervised import Labelled
from bert_jax.tasks.task import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextPairs(Labelled):
    """A task on pairs (anchor, positive), on triplets with a negative, or on pairs with a score.

    Attributes:
      labels: none.
      label, decimal: column and decimal mark of the score of a pair; a task that reads scores
        makes them settings.
    """

    # Column of the first text of a pair.
    text_a: str = setting("anchor")
    # Column of the second one.
    text_b: str = setting("positive")
    # Column of a third text that does not belong to the first one; empty: none.
    negative: str = setting("")
    # Column of an ID, which predictions repeat.
    id: str = setting("")
    # Rows without the text or the score that training and evaluation need: an `error` that counts
    # them all, or `skip` them.
    on_missing: str = setting("error", choices=("error", "skip"))

    label: str = derived("")
    decimal: str = derived(".")

    def check(self) -> None:
        super().check()
        for name in ("text_a", "text_b"):
            if not getattr(self, name):
                raise UserError(f"{name} is missing: the column of a text of each pair.")
        _ = self.columns  # raises if they cannot be combined

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
    def has_scores(self) -> bool:
        """Whether the pairs of a file have scores."""
        return self.columns.label is not None

    @property
    def reads_numbers(self) -> bool:
        return self.has_scores

    def read(self, path, counts, labelled) -> Iterator[TextExample]:
        # Negatives are for training and for its loss: predictions need none.
        columns = self.columns if labelled else dataclasses.replace(self.columns, negative=None)
        how = {"on_missing": self.on_missing, "has_labels": self.has_scores}
        return read_table(path, columns, counts, labelled, **how)

    def for_evaluation(self, source):
        # Negatives are mined for training: an evaluation file may have only the pairs.
        rows = read_rows(source, Counter(), self.columns.has_header)
        has_negatives = any(self.columns.negative in row for _, row in itertools.islice(rows, 1))
        return self if has_negatives else dataclasses.replace(self, negative="")

    def correlations(self, examples: Sequence[Any], found: Sequence[float]) -> dict[str, float]:
        """Returns `metrics`, computed from the scores of examples and the predicted numbers."""
        gold = np.array([float(example.labels[0]) for example in examples])
        return {name: correlation.METRICS[name](gold, np.array(found)) for name in self.metrics}

    def baseline(self, examples):
        return 0.0 if self.has_scores else None  # for a constant, whose ranks are undefined


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextVectors(TextPairs):
    """A task whose model gives texts vectors that are close for texts that belong together.

    The other examples of a batch are negatives, so losses read the whole batch.
    """

    COMPARES_EXAMPLES = True
    # Whether there are parameters besides those of the encoder.
    PROJECTS: ClassVar[bool] = False

    # The other examples of the batch are negatives: of the first text of a pair (in_batch), or also
    # of the second one (in_batch_symmetric).
    loss: str = setting("in_batch", choices=("in_batch", "in_batch_symmetric"))
    # Similarities are divided by it.
    temperature: float = setting(1.0)

    @classmethod
    def default_config(cls, *_: str) -> FinetuningConfig:
        """Returns the defaults for pairs."""
        return FinetuningConfig(task=cls(), global_batch_size=64, metrics=tuple(retrieval.METRICS))

    @property
    def known_metrics(self) -> Mapping[str, Any]:
        return retrieval.METRICS

    def for_run(self, config: RunConfig) -> Self:
        if config.optimizer.frozen_layers == -1 and not self.PROJECTS:
            raise UserError(
                "optimizer.frozen_layers=-1 freezes the encoder, and embeddings have no other"
                " parameters: set --config.optimizer.frozen_layers=0."
            )
        return super().for_run(config)

    @property
    def sentence_vectors(self) -> SentenceVectors:
        """How a trained model makes the vector of a text."""
        raise NotImplementedError

    couples_examples = True

    def row_texts(self, example):
        texts = (example.text_a, example.text_b, example.negative)
        return tuple((text,) for text in texts if text)

    def encode(self, examples, tokenizer, counts) -> GroupedRows:
        return encode_separately(examples, tokenizer, self.max_sequence_length, counts)

    def example_batch(self) -> dict[str, jax.Array]:
        return {name: array[:, None] for name, array in super().example_batch().items()}

    def answers(self, outputs, batch: Batch) -> dict[str, jax.Array]:
        return {"vectors": outputs.vectors}

    @staticmethod
    def similarities(queries: Any, candidates: Any) -> np.ndarray:
        """Returns float[m, n], the similarities of the vectors of m texts and n others."""
        return retrieval.cosines(queries, candidates)

    def vectors_of(self, answers: Sequence[Any], text: int) -> Any:
        """Returns the vectors of one of the texts of each example, as `similarities` takes them."""
        return np.stack([answer["vectors"][text] for answer in answers])

    def ranks(self, examples: Sequence[Any], answers: Sequence[Any]) -> np.ndarray:
        """Returns int64[examples], see `retrieval.rank_pairs`."""
        anchors = [example.text_a for example in examples]
        positives = [example.text_b for example in examples]
        first, second = (self.vectors_of(answers, text) for text in (0, 1))
        return retrieval.rank_pairs(anchors, positives, first, second, self.similarities)

    def evaluate(self, rows, answers, means):
        """The scores, then the loss.

        Predictions for pairs without scores also have `rank`, the rank of an anchor's own positive
        among all positives of the file.
        """
        predictions = self.collect(rows.examples, rows.rows, answers)
        if not self.has_scores:
            ranks = self.ranks(rows.examples, answers).tolist()
            predictions = [{**p, "rank": r} for p, r in zip(predictions, ranks, strict=True)]
        values = self.score(rows.examples, predictions) | {"loss": means["loss"]}
        prefix = "" if rows.name == "eval" else f"{rows.name}_"
        return {prefix + name: value for name, value in values.items()}, predictions

    def score(self, examples, predictions):
        ranks = np.array([prediction["rank"] for prediction in predictions])
        return {name: retrieval.METRICS[name](ranks) for name in self.metrics}
