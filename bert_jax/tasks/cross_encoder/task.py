"""Cross-encoders: how well one text answers another, from reading both at once.

The encoder reads the two texts as a pair, whose score is the sigmoid of a logit (Nogueira and Cho
2019, arXiv 1901.04085), as in sentence-transformers' CrossEncoder. The loss is the binary
cross-entropy of the score, with the target 1 for the second text of a pair, 0 for a negative, or
the score in the file.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import optax

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.group import setting
from bert_jax.data.labelled.encode_texts import encode_texts
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.sequences import EncodedRows
from bert_jax.data.labelled.table_rows import read_rows
from bert_jax.files.errors import UserError
from bert_jax.models.task_heads import ClassificationModel, ClassificationOutputs
from bert_jax.scores import correlation, retrieval
from bert_jax.tasks.losses import Sums, weighted_sum
from bert_jax.tasks.supervised import Pooled
from bert_jax.tasks.task import Batch
from bert_jax.tasks.text_pairs import TextPairs

# The label of a pair without a score.
_POSITIVE, _NEGATIVE = ("1",), ("0",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossEncoder(TextPairs, Pooled):
    """The score of a pair of texts, from 0 to 1."""

    name: str = "cross_encoder"
    # Column of the score of a pair, from 0 to 1; empty: pairs have none.
    label: str = setting("")
    # Decimal mark of the scores; the other mark may group thousands.
    decimal: str = setting(".", choices=(".", ","))
    # Negatives of each pair that are drawn from the second texts of the file, where there is
    # neither a column of negatives nor one of scores.
    drawn_negatives: int = setting(4, minimum=1)

    HEAD = "classifier"
    PACKS = True
    EXAMPLE = TextExample
    STORED_AS = "classification"
    COLUMNS = {"text_a": "text_a", "text_b": "text_b"}
    reads_pairs = True

    @classmethod
    def default_config(cls) -> FinetuningConfig:
        """Returns the defaults for pairs without scores."""
        return FinetuningConfig(task=cls(), metrics=tuple(retrieval.METRICS))

    def check(self) -> None:
        super().check()
        if self.label and self.negative:
            raise UserError(
                f"label={self.label!r} and config.task.negative={self.negative!r}: pairs have"
                " scores or negatives; set one of the two to ''."
            )

    @property
    def known_metrics(self) -> Mapping[str, Any]:
        return correlation.METRICS if self.has_scores else retrieval.METRICS

    view = ("Score", "How well the second text answers the first one, from 0 to 1.")

    def more_parts(self) -> Iterator[str]:
        yield "sigmoid"

    def row_texts(self, example):
        return ((example.text_a, example.text_b),)

    def mean_rows(self, lengths, max_length):
        if self.has_scores:
            return 1.0
        return 2.0 if self.negative else 1.0 + self.drawn_negatives

    def read(self, path, counts, labelled) -> Iterator[TextExample]:
        for example in super().read(path, counts, labelled):
            if not labelled:
                yield example
            elif not self.has_scores:
                yield dataclasses.replace(example, labels=_POSITIVE)
            elif 0 <= float(score := (example.labels or ("",))[0]) <= 1:
                yield example
            else:
                raise UserError(
                    f"{example.where}: the score {score} is not from 0 to 1: scale the scores, or"
                    " train a regression (task=regression)."
                )

    def encode(self, examples, tokenizer, counts) -> EncodedRows:
        """Encodes each pair, followed by those of its negatives."""
        groups = list(self.with_negatives(examples))
        pairs = [pair for group in groups for pair in group]
        rows = encode_texts(pairs, tokenizer, self.max_sequence_length, None, "regression", counts)
        numbers = np.repeat(np.arange(len(groups)), list(map(len, groups)))
        return dataclasses.replace(rows, example=numbers.astype(np.int32))

    def with_negatives(self, examples: Iterable[TextExample]) -> Iterator[list[TextExample]]:
        """Yields each example as a pair with the label 1, then those of its negatives with 0.

        Examples without labels and those with scores are yielded alone. The draw depends only on
        the examples; texts that belong to an equal first text are not drawn.
        """
        examples = list(examples)
        own: dict[str, set[str]] = {}
        for example in examples:
            own.setdefault(example.text_a, {example.text_a}).add(str(example.text_b))
        texts = list(dict.fromkeys(str(example.text_b) for example in examples))
        for number, example in enumerate(examples):
            negatives: list[str] = []
            if example.labels and example.negative is not None:
                negatives = [example.negative]
            elif example.labels and not self.has_scores:
                negatives = self._draw(number, texts, own[example.text_a])
            yield [
                dataclasses.replace(example, negative=None),
                *(
                    dataclasses.replace(example, text_b=text, labels=_NEGATIVE, negative=None)
                    for text in negatives
                ),
            ]

    def _draw(self, number: int, texts: list[str], own: set[str]) -> list[str]:
        size = min(len(texts), self.drawn_negatives + len(own))
        places = np.random.default_rng(number).choice(len(texts), size, replace=False)
        drawn = (texts[place] for place in places.tolist())
        return [text for text in drawn if text not in own][: self.drawn_negatives]

    def make_model(self) -> ClassificationModel:
        return ClassificationModel(self.model, 1, self)

    def losses(self, outputs: ClassificationOutputs, batch: Batch) -> Sums:
        values = optax.sigmoid_binary_cross_entropy(outputs.logits[..., 0], batch["labels"])
        return {"task_loss": weighted_sum(values, batch["weights"])}

    def answers(self, outputs: ClassificationOutputs, batch: Batch) -> dict[str, jax.Array]:
        return {"logit": outputs.logits[..., 0]}

    def collect(self, examples, rows, answers):
        """`score`, and `rank` among the negatives of the pair, if it has any.

        The rank of a pair is the number of pairs, itself included, that score at least as high.
        """
        logits = np.array([answer["logit"] for answer in answers], np.float64)
        groups = np.split(logits, np.flatnonzero(np.diff(rows.example)) + 1)
        predictions = []
        for example, group in zip(examples, groups, strict=True):
            found = {"id": example.id, "score": float(1 / (1 + np.exp(-group[0])))}
            if example.labels and not self.has_scores:
                found["rank"] = int((group >= group[0]).sum())
            predictions.append(found)
        return predictions

    def score(self, examples, predictions):
        if not self.has_scores:
            ranks = np.array([prediction["rank"] for prediction in predictions])
            return {name: retrieval.METRICS[name](ranks) for name in self.metrics}
        return self.correlations(examples, [p["score"] for p in predictions])

    def relevance(self, prediction):
        return prediction["score"]

    has_tables = True

    def input_rows(self, path):
        return (row for _, row in read_rows(path, Counter(), self.columns.has_header))

    def cells(self, prediction):
        return [{"predicted_score": prediction["score"]}]
