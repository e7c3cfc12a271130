"""Classification and regression of texts and pairs of texts (paper, section 4.1)."""

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import defaults
from bert_jax.config.class_fields import DECISION_FIELDS, LOSS_FIELDS
from bert_jax.config.data import LabelledConfig
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.data.labelled.encode_texts import encode_texts
from bert_jax.data.labelled.examples import Labels, TextExample
from bert_jax.data.labelled.published_sets import CHINESE, GLUE, TextTask
from bert_jax.data.labelled.reading import ending_of
from bert_jax.data.labelled.sequences import EncodedRows
from bert_jax.data.labelled.table_rows import first_row
from bert_jax.data.labelled.tables import Columns, parse_column, read_plain_texts, read_table
from bert_jax.files.errors import UserError
from bert_jax.models.task_heads import ClassificationModel, ClassificationOutputs
from bert_jax.scores import classification as scores
from bert_jax.scores import correlation
from bert_jax.tasks import losses
from bert_jax.tasks.class_loss import ClassLoss, balanced_weights
from bert_jax.tasks.decisions import Decision
from bert_jax.tasks.losses import Sum, Sums
from bert_jax.tasks.supervised import Labelled, shared_fields
from bert_jax.tasks.task import Answer, Batch, Prediction, check_metrics

# (gold, predicted) -> score, of class numbers.
_CLASS_METRICS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": scores.accuracy,
    "f1": scores.f1,
    "macro_f1": lambda gold, found: scores.macro_f1(scores.class_counts(gold, found)),
    "matthews": correlation.matthews,
}
# Of bool[examples, classes].
_MULTI_LABEL_METRICS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": scores.accuracy,
    "f1": lambda gold, found: scores.micro(scores.multi_label_counts(gold, found)).f1,
    "macro_f1": lambda gold, found: scores.macro_f1(scores.multi_label_counts(gold, found)),
}
_NUMBER_METRICS: dict[str, Callable[[Any, Any], float]] = {
    "pearson": correlation.pearson,
    "spearman": correlation.spearman,
}
METRICS = {
    "single": _CLASS_METRICS,
    "multi": _MULTI_LABEL_METRICS,
    "regression": _NUMBER_METRICS,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(Labelled):
    """Classes, several labels or a number for each text or pair.

    Attributes:
      metrics: rows of METRICS[kind].
      kind: single, multi or regression.
      long_texts, stride: what is done with texts of more than `max_sequence_length` tokens; see
        `encode_texts`.
      columns: the columns of the files.
      on_missing: what is done with rows without text or label; see `read_table`.
      published: the published set, if it is one.
      decision: from logits to labels.
      class_loss: the loss of classes, set by `bind`.
    """

    kind: str = "single"
    long_texts: str = "truncate"
    stride: int = 0
    columns: Columns | None = None
    on_missing: str = "error"
    published: TextTask | None = dataclasses.field(default=None, hash=False)  # it has dicts
    decision: Decision = Decision()
    class_loss: ClassLoss = ClassLoss()

    HEAD = "classifier"
    POOLS = True
    PACKS = True
    EXAMPLE = TextExample

    default_config = staticmethod(defaults.classification)

    @classmethod
    def make(cls, config: FinetuningConfig) -> "Classification":
        """Returns the task of a configuration, without labels.

        Raises:
          UserError: for a set, a kind of labels, a metric or a head that does not exist.
        """
        data, metrics = config.data, config.metrics
        known, kind, published = GLUE | CHINESE, config.head.problem_type, None
        if name := data.published:
            if name not in known:
                raise UserError(f"Unknown data.published={name!r}. Available: {', '.join(known)}.")
            published = known[name]
            kind = "regression" if published.is_regression else "single"
        note = f", the metrics for head.problem_type={kind!r}"
        check_metrics(metrics, METRICS[kind], note)
        columns = None if published else _columns(data, kind)
        labels = published.labels if published else ()
        class_fields = () if kind == "regression" else (*LOSS_FIELDS, *DECISION_FIELDS)
        return cls(
            kind=kind,
            long_texts=data.long_texts,
            stride=data.stride,
            **shared_fields(config, "classification", class_fields),
            columns=columns,
            on_missing=data.on_missing,
            published=published,
            labels=labels,
            decision=Decision(several=kind == "multi"),
        )

    def read(self, path, counts, labelled) -> Iterator[TextExample]:
        if not labelled and self.is_plain(path):
            return read_plain_texts(path, counts)
        if self.published:
            return self.published.read(path, counts, labelled)
        assert self.columns is not None
        return read_table(path, self.columns, counts, labelled, on_missing=self.on_missing)

    def is_plain(self, path: str) -> bool:
        """Returns whether each line of a file is a text: a .txt without the columns of the task."""
        if ending_of(path) != ".txt" or not os.path.isfile(path):
            return False
        cells = first_row(path)
        return not self.reads_pairs and not any(form.are_in(cells) for form in self._forms)

    @property
    def _forms(self) -> list[Columns]:
        """All forms that a file of the task may have."""
        published = self.published
        forms = (*published.test_columns, *published.columns) if published else (self.columns,)
        return [form for form in forms if form is not None]

    @property
    def reads_pairs(self) -> bool:
        """Whether an example is a pair of texts."""
        return any(form.text_b is not None for form in self._forms)

    def __post_init__(self):
        if self.kind == "single" and "f1" in self.metrics and len(self.labels) not in (0, 2):
            raise UserError(
                f"metrics: f1 is of one of two labels, and there are {len(self.labels)}"
                f" ({', '.join(self.labels)}): take macro_f1."
            )

    def find_labels(self, examples):
        if self.labels or self.kind == "regression":
            return self.labels
        if self.columns is not None and self.columns.multi_hot:
            return self.columns.multi_hot
        names = Labels.find(label for e in examples for label in e.labels or ()).names
        if len(names) == 1 and self.kind == "single":
            raise UserError(
                f"All examples have the label {names[0]!r}: a classifier needs two classes."
            )
        return names

    def bind(self, model, tokenizer, phase=None, evaluate=False):
        bound = super().bind(model, tokenizer, phase, evaluate)
        class_loss = ClassLoss.make(self.head, self.labels, several=self.kind == "multi")
        return dataclasses.replace(bound, class_loss=class_loss)

    def make_model(self) -> ClassificationModel:
        return ClassificationModel(self.model, max(1, len(self.labels)), self.head)

    def example_batch(self) -> dict[str, jax.Array]:
        batch = super().example_batch()
        if self.head.both_orders:
            return {name: jnp.stack([array, array], axis=1) for name, array in batch.items()}
        return batch

    def losses(self, outputs: ClassificationOutputs, batch: Batch) -> Sums:
        """Cross-entropy; of several labels the mean binary one; of a number the squared error."""
        logits, labels, weights = outputs.logits, batch["labels"], batch["weights"]
        if self.kind == "single":
            return self.class_loss.single("task", logits, labels, weights)
        if self.kind == "multi":
            values = self.class_loss.several(logits, labels)
        else:
            values = (logits[..., 0] - labels) ** 2
        return {"task_loss": Sum((values * weights).sum(), weights.sum())}

    def distilled_losses(self, outputs, teacher, batch, temperature):
        """Divergence; of several labels the mean binary one; of a number the squared error."""
        logits, targets = outputs.logits, teacher.logits
        if self.kind == "single":
            values = losses.divergence(logits, targets, temperature)
        elif self.kind == "multi":
            values = losses.binary_divergence(logits, targets, temperature).mean(-1)
        else:
            values = (logits[..., 0] - targets[..., 0]) ** 2
        return {"task_loss": losses.weighted_sum(values, batch["weights"])}

    def answers(self, outputs: ClassificationOutputs, batch: Batch) -> dict[str, jax.Array]:
        return {"logits": outputs.logits}

    def encode(self, examples, tokenizer, counts) -> EncodedRows:
        labels, length = Labels(self.labels) if self.labels else None, self.max_sequence_length
        both = self.head.both_orders
        long = (both, self.long_texts, self.stride)
        return encode_texts(examples, tokenizer, length, labels, self.kind, counts, *long)

    def collect(self, examples, rows, answers):
        """`label` and `probabilities`; or `labels` and `probabilities`; or `value`."""
        logits = self._logits(examples, rows, answers)
        if self.kind == "regression":
            pairs = zip(examples, logits[:, 0], strict=True)
            return [{"id": example.id, "value": float(value)} for example, value in pairs]
        probabilities = self.decision.probabilities(logits)
        chosen = self.decision.choose(probabilities)
        return [
            {"id": example.id, **self._choice(choice), "probabilities": self._named(row)}
            for example, choice, row in zip(examples, chosen, probabilities, strict=True)
        ]

    def _logits(self, examples, rows, answers: Sequence[Answer]) -> np.ndarray:
        """Returns float64[examples, classes]; see `collect` for the arguments."""
        logits = np.array([answer["logits"] for answer in answers], np.float64)
        if len(logits) > len(examples):
            logits = pool_windows(logits, rows.example, self.head.window_pool)
        return logits

    def _choice(self, chosen: np.ndarray) -> dict[str, Any]:
        if self.kind == "single":
            return {"label": self.labels[int(chosen)]}
        pairs = zip(self.labels, chosen, strict=True)
        return {"labels": [name for name, is_chosen in pairs if is_chosen]}

    def _named(self, probabilities: np.ndarray) -> dict[str, float]:
        return dict(zip(self.labels, map(float, probabilities), strict=True))

    def score(self, examples, predictions):
        gold, found = self.gold(examples), self.found(predictions)
        return {name: METRICS[self.kind][name](gold, found) for name in self.metrics}

    def balanced_weights(self, examples):
        examples = list(examples)
        counts: Counter[str] = Counter(label for e in examples for label in set(e.labels or ()))
        if self.kind == "multi":
            return {
                name: balanced_weights([len(examples) - counts[name], counts[name]])
                for name in self.labels
            }
        weights = balanced_weights([counts[name] for name in self.labels])
        return dict(zip(self.labels, weights, strict=True))

    def fitted(self, rows, answers):
        if self.kind == "regression":
            return self
        score, gold = METRICS[self.kind][self.metrics[0]], self.gold(rows.examples)
        logits = self._logits(rows.examples, rows.rows, answers)
        decision = self.decision.fitted(self.head, logits, gold, score)
        return dataclasses.replace(self, decision=decision)

    def fitted_values(self):
        return self.decision.to_json(self.labels)

    def with_fitted(self, values):
        decision = self.decision.with_values(values, self.labels)
        return dataclasses.replace(self, decision=decision)

    def decision_scores(self, examples, rows, answers):
        """Scores without thresholds, and the calibration with and without a temperature."""
        values: dict[str, float] = {}
        if self.head.thresholds == "tuned":
            plain = dataclasses.replace(self.decision, thresholds=())
            found = dataclasses.replace(self, decision=plain).collect(examples, rows, answers)
            before = self.score(examples, found)
            values |= {f"untuned_{name}": value for name, value in before.items()}
        if self.head.calibration == "temperature":
            logits, gold = self._logits(examples, rows, answers), self.gold(examples)
            values |= {"temperature": self.decision.temperature}
            values |= self.decision.calibration_scores(logits, gold)
            plain = dataclasses.replace(self.decision, temperature=1.0)
            before = plain.calibration_scores(logits, gold)
            values |= {f"uncalibrated_{name}": value for name, value in before.items()}
        return values

    def baseline(self, examples):
        if self.kind == "regression":
            return 0.0  # of a constant
        metric = METRICS[self.kind][self.metrics[0]]
        return scores.majority_class_score(metric, self.gold(examples))

    def gold(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Returns the labels as int[examples], bool[examples, classes] or float[examples]."""
        return self._numbers(example.labels or () for example in examples)

    def found(self, predictions: Sequence[Prediction]) -> np.ndarray:
        """Returns the predictions in the form of `gold`."""
        if self.kind == "multi":
            return self._numbers(prediction["labels"] for prediction in predictions)
        name = "value" if self.kind == "regression" else "label"
        return self._numbers([str(prediction[name])] for prediction in predictions)

    def _numbers(self, labels: Iterable[Sequence[str]]) -> np.ndarray:
        if self.kind == "regression":
            return np.array([float(names[0]) for names in labels])
        if self.kind == "multi":
            return np.array([[name in names for name in self.labels] for names in labels])
        numbers = {name: number for number, name in enumerate(self.labels)}
        return np.array([numbers[names[0]] for names in labels])


def pool_windows(logits: np.ndarray, example: np.ndarray, pool: str) -> np.ndarray:
    """Returns the mean or the maximum of the logits of each text's windows.

    Args:
      logits: float[rows, classes].
      example: int[rows], the text of each row, ascending.
      pool: mean or max.
    """
    starts = np.flatnonzero(np.diff(example, prepend=-1))
    if pool == "max":
        return np.maximum.reduceat(logits, starts)
    counts = np.diff(np.append(starts, len(example)))
    return np.add.reduceat(logits, starts) / counts[:, None]


def _columns(data: LabelledConfig, kind: str) -> Columns:
    text_a = parse_column(data.text_a)
    if text_a is None:
        raise UserError("data.text_a is missing: the column of the text.")
    label: Any = parse_column(data.label)
    if kind == "multi" and "," in data.label:
        label = tuple(name.strip() for name in data.label.split(","))
    return Columns(
        text_a,
        parse_column(data.text_b),
        label,
        separator=data.label_separator or None,
        id=parse_column(data.id),
        multi_hot=data.multi_hot,
        decimal=data.decimal if kind == "regression" else None,
    )
