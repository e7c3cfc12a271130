"""Classification and regression of texts and pairs of texts (paper, section 4.1)."""

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.group import derived, setting
from bert_jax.config.run import RunConfig
from bert_jax.data.labelled.encode_texts import encode_texts
from bert_jax.data.labelled.examples import Labels, TextExample
from bert_jax.data.labelled.forms.label_kinds import PROBLEM_TYPES
from bert_jax.data.labelled.published_sets import CHINESE, GLUE, TextTask
from bert_jax.data.labelled.reading import ending_of
from bert_jax.data.labelled.sequences import EncodedRows, window_starts
from bert_jax.data.labelled.table_rows import first_row, read_rows
from bert_jax.data.labelled.tables import Columns, parse_column, read_plain_texts, read_table
from bert_jax.files.errors import UserError
from bert_jax.models.task_heads import ClassificationModel, ClassificationOutputs
from bert_jax.scores import bag_of_words, correlation
from bert_jax.scores import classification as scores
from bert_jax.tasks import losses
from bert_jax.tasks.class_loss import LOSS_FIELDS, ClassLoss, ClassLossConfig, balanced_weights
from bert_jax.tasks.classification.decisions import Decision
from bert_jax.tasks.classification.review import make_review
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.supervised import Pooled
from bert_jax.tasks.task import Answer, Batch, Prediction

# (gold, predicted) -> score, of class numbers.
_CLASS_METRICS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": scores.accuracy,
    "f1": scores.f1,
    "macro_f1": lambda gold, found: scores.macro_f1(scores.class_counts(gold, found)),
    "matthews": correlation.matthews,
}
# The same for bool[examples, classes].
_MULTI_LABEL_METRICS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": scores.accuracy,
    "f1": lambda gold, found: scores.micro(scores.multi_label_counts(gold, found)).f1,
    "macro_f1": lambda gold, found: scores.macro_f1(scores.multi_label_counts(gold, found)),
}
_PUBLISHED = GLUE | CHINESE
METRICS = {
    "single": _CLASS_METRICS,
    "multi": _MULTI_LABEL_METRICS,
    "regression": correlation.METRICS,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(ClassLossConfig, Pooled):
    """Classes, several labels or a number for each text or pair.

    Attributes:
      metrics: names in METRICS[kind].
      decision: from logits to labels.
      class_loss: the loss of classes, set by `bind`.
    """

    name: str = "classification"
    # `single`, `multi` (any number of labels) or `regression`.
    problem_type: str = setting("single", choices=("single", "multi", "regression"))
    # Column of the text, by name, or by number from 0 in files without a header; empty: none.
    text_a: str = setting("text_a")
    # Column of the second text of a pair.
    text_b: str = setting("")
    # Column of the label; for several labels per example also a comma-separated list of columns.
    label: str = setting("label")
    # Column of an ID, which predictions repeat.
    id: str = setting("")
    # Texts with more than `max_length` tokens. `truncate`: their end is cut off; `windows`: they
    # are read in overlapping windows, a row each, with the label of the text, and the logits of
    # its windows are pooled (window_pool).
    long_texts: str = setting("truncate", choices=("truncate", "windows"))
    # Tokens from the start of a window to that of the next one; 0: half of a window.
    stride: int = setting(0, minimum=0)
    # Windows of a text that an epoch trains on, drawn anew for each epoch; 0: all.
    windows_per_epoch: int = setting(0, minimum=0)
    # The logits of a text are the `mean` or the `max` of those of its windows.
    window_pool: str = setting("mean", choices=("mean", "max"))
    # Separator of several labels in the label column; `[]`: cells are lists, such as `['a', 'b']`;
    # empty: one label per row.
    label_separator: str = setting("")
    # Names of the classes, where a label is a list of 0 and 1 with a place for each class.
    multi_hot: tuple[str, ...] = setting(())
    # Decimal mark of labels that are numbers; the other mark may group thousands.
    decimal: str = setting(".", choices=(".", ","))
    # Rows without the text or the label that training and evaluation need: an `error` that counts
    # them all, or `skip` them.
    on_missing: str = setting("error", choices=("error", "skip"))
    # A row of GLUE or CHINESE in data/labelled/published_sets.py, which defines columns and labels.
    published: str = setting("")
    # Whether to encode both orders of a pair and add the two vectors.
    both_orders: bool = setting(False)
    # `tuned` chooses a threshold for each label on `data.eval`, which evaluation
    # and prediction use: with one label per text the thresholds with the best first metric, with
    # several those with the best F1 of each label. `default`: the most probable label, or all above
    # one half.
    thresholds: str = setting("default", choices=("default", "tuned"))
    # `temperature` divides the logits by the number with the lowest negative
    # log-likelihood of `data.eval`, for evaluation and prediction (Guo et al. 2017, arXiv
    # 1706.04599).
    calibration: str = setting("none", choices=("none", "temperature"))
    decision: Decision = derived(Decision())
    class_loss: ClassLoss = derived(ClassLoss())

    HEAD = "classifier"
    TAUGHT = ("problem_type", "both_orders")
    PACKS = True
    EXAMPLE = TextExample
    COLUMNS = {"text_a": "text_a", "text_b": "text_b"}

    @property
    def published_set(self) -> TextTask | None:
        """The published set that the task reads, if any."""
        return _PUBLISHED[self.published] if self.published else None

    @property
    def title(self) -> str:
        return next(name for name, kind in PROBLEM_TYPES.items() if kind == self.kind)

    @property
    def kind(self) -> str:
        """What labels are: single, multi or regression."""
        published = self.published_set
        if published is None:
            return self.problem_type
        return "regression" if published.is_regression else "single"

    @functools.cached_property
    def columns(self) -> Columns | None:
        """The columns of the files; None: those of the published set."""
        if self.published:
            return None
        text_a = parse_column(self.text_a)
        if text_a is None:
            raise UserError("text_a is missing: the column of the text.")
        label: Any = parse_column(self.label)
        if self.kind == "multi" and "," in self.label:
            label = tuple(name.strip() for name in self.label.split(","))
        return Columns(
            text_a,
            parse_column(self.text_b),
            label,
            separator=self.label_separator or None,
            id=parse_column(self.id),
            multi_hot=self.multi_hot,
            decimal=self.decimal if self.kind == "regression" else None,
        )

    def check(self) -> None:
        super().check()
        if self.published and self.published not in _PUBLISHED:
            raise UserError(
                f"published={self.published!r} is not a published set. Available:"
                f" {', '.join(_PUBLISHED)}."
            )
        _ = self.columns  # raises if they cannot be combined
        if self.windows_per_epoch and self.long_texts != "windows":
            raise UserError(
                f"windows_per_epoch={self.windows_per_epoch} has no effect with"
                f" config.task.long_texts={self.long_texts!r}: set config.task.long_texts=windows."
            )
        if self.both_orders and self.long_texts == "windows":
            raise UserError(
                "both_orders=True encodes whole pairs, and config.task.long_texts='windows' parts"
                " of them: set one of the two to its default."
            )
        if self.kind == "regression":
            self.check_unset((*LOSS_FIELDS, "thresholds", "calibration"), "there are no classes")
        if self.kind == "single" and "f1" in self.metrics and len(self.labels) not in (0, 2):
            raise UserError(
                f"metrics: f1 is of one of two labels, and there are {len(self.labels)}"
                f" ({', '.join(self.labels)}): take macro_f1."
            )

    @property
    def known_metrics(self) -> Mapping[str, Any]:
        return METRICS[self.kind]

    def for_run(self, config: RunConfig) -> Self:
        """Returns the task with the metrics of a run and the labels of a published set."""
        temperature = config.distillation.temperature
        if self.kind == "regression" and temperature != 1:
            raise UserError(
                f"distillation.temperature={temperature} divides logits, and"
                " config.task.problem_type='regression' has none: set"
                " config.distillation.temperature=1."
            )
        published = self.published_set
        return dataclasses.replace(
            super().for_run(config),
            labels=published.labels if published else self.labels,
            decision=Decision(several=self.kind == "multi"),
        )

    @property
    def view(self) -> tuple[str, str]:
        if self.kind == "regression":
            return "Value", "The number that the model gives."
        return "Classify", "The probability of each class."

    def describe(self):
        yield from super().describe()
        yield from self.describe_classes(("thresholds", "calibration"))

    def more_parts(self):
        if self.both_orders:
            yield "sum of both orders"
        if self.splits_texts:
            yield f"{self.window_pool} of a text's windows"

    @property
    def reads_numbers(self) -> bool:
        return self.kind == "regression"

    @property
    def splits_texts(self) -> bool:
        return self.long_texts == "windows"

    def row_texts(self, example):
        return ((example.text_a, *filter(None, [example.text_b])),)

    def mean_rows(self, lengths, max_length):
        if not self.splits_texts:
            return 1.0
        counts = [len(window_starts(n - 2, max_length - 2, self.stride)) for n in lengths]
        return sum(min(n, self.windows_per_epoch or n) for n in counts) / max(1, len(counts))

    @property
    def can_pack(self) -> bool:
        return super().can_pack and not self.both_orders

    def read(self, path, counts, labelled) -> Iterator[TextExample]:
        if not labelled and self.is_plain(path):
            return read_plain_texts(path, counts)
        if published := self.published_set:
            return published.read(path, counts, labelled)
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
        published = self.published_set
        forms = (*published.test_columns, *published.columns) if published else (self.columns,)
        return [form for form in forms if form is not None]

    @property
    def reads_pairs(self) -> bool:
        """Whether an example is a pair of texts."""
        return any(form.text_b is not None for form in self._forms)

    def relevance(self, prediction):
        """The number, or the probability of the second of two classes, such as 1 of 0 and 1."""
        if self.kind != "regression" and (self.kind == "multi" or len(self.labels) != 2):
            return super().relevance(prediction)
        if self.kind == "regression":
            return prediction["value"]
        return prediction["probabilities"][self.labels[1]]

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
        class_loss = ClassLoss.make(self, self.labels, several=self.kind == "multi")
        return dataclasses.replace(bound, class_loss=class_loss)

    def make_model(self) -> ClassificationModel:
        return ClassificationModel(self.model, max(1, len(self.labels)), self, self.both_orders)

    def example_batch(self) -> dict[str, jax.Array]:
        batch = super().example_batch()
        if self.both_orders:
            return {name: jnp.stack([array, array], axis=1) for name, array in batch.items()}
        return batch

    def losses(self, outputs: ClassificationOutputs, batch: Batch) -> Sums:
        """Cross-entropy; for several labels, the mean binary one; for numbers, squared error."""
        logits, labels, weights = outputs.logits, batch["labels"], batch["weights"]
        if self.kind == "single":
            return self.class_loss.single("task", logits, labels, weights)
        if self.kind == "multi":
            values = self.class_loss.several(logits, labels)
        else:
            values = (logits[..., 0] - labels) ** 2
        return {"task_loss": losses.weighted_sum(values, weights)}

    def distilled_losses(self, outputs, teacher, batch, temperature):
        """Divergence; for several labels, the mean binary one; for numbers, squared error."""
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
        both = self.both_orders
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
            logits = pool_windows(logits, rows.example, self.window_pool)
        return logits

    def _choice(self, chosen: np.ndarray) -> dict[str, Any]:
        if self.kind == "single":
            return {"label": self.labels[int(chosen)]}
        pairs = zip(self.labels, chosen, strict=True)
        return {"labels": [name for name, is_chosen in pairs if is_chosen]}

    def _named(self, probabilities: np.ndarray) -> dict[str, float]:
        return dict(zip(self.labels, map(float, probabilities), strict=True))

    def counts(self, examples, predictions):
        if self.kind == "regression":
            return {}
        count = scores.multi_label_counts if self.kind == "multi" else scores.class_counts
        counts = count(self.gold(examples), self.found(predictions))
        names = enumerate(self.labels)
        return {name: counts.get(number, scores.Counts()) for number, name in names}

    def review(self, examples, predictions):
        return make_review(self, examples, predictions)

    @property
    def has_tables(self) -> bool:
        return not self.published

    def input_rows(self, path):
        if self.is_plain(path):
            return ({"text": text.text_a} for text in read_plain_texts(path, Counter()))
        has_header = self.columns is None or self.columns.has_header
        return (row for _, row in read_rows(path, Counter(), has_header))

    def cells(self, prediction):
        if self.kind == "regression":
            return [{"predicted_value": prediction["value"]}]
        if self.kind == "multi":
            return [{"predicted_labels": ", ".join(prediction["labels"])}]
        label = prediction["label"]
        return [{"predicted_label": label, "probability": prediction["probabilities"][label]}]

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
        decision = self.decision.fitted(
            self.calibration == "temperature", self.thresholds == "tuned", logits, gold, score
        )
        return dataclasses.replace(self, decision=decision)

    def fitted_values(self):
        return self.decision.to_json(self.labels)

    def with_fitted(self, values):
        decision = self.decision.with_values(values, self.labels)
        if self.thresholds != "tuned":
            decision = dataclasses.replace(decision, thresholds=())
        if self.calibration != "temperature":
            decision = dataclasses.replace(decision, temperature=1.0)
        return dataclasses.replace(self, decision=decision)

    def decision_scores(self, examples, rows, answers):
        """Scores without thresholds, and the calibration with and without a temperature."""
        values: dict[str, float] = {}
        if self.thresholds == "tuned":
            plain = dataclasses.replace(self.decision, thresholds=())
            found = dataclasses.replace(self, decision=plain).collect(examples, rows, answers)
            before = self.score(examples, found)
            values |= {f"untuned_{name}": value for name, value in before.items()}
        if self.calibration == "temperature":
            logits, gold = self._logits(examples, rows, answers), self.gold(examples)
            values |= {"temperature": self.decision.temperature}
            values |= self.decision.calibration_scores(logits, gold)
            plain = dataclasses.replace(self.decision, temperature=1.0)
            before = plain.calibration_scores(logits, gold)
            values |= {f"uncalibrated_{name}": value for name, value in before.items()}
        return values

    def baseline(self, examples):
        if self.kind == "regression":
            return 0.0  # for a constant
        metric = METRICS[self.kind][self.metrics[0]]
        return scores.majority_class_score(metric, self.gold(examples))

    def predict_without_encoder(self, train, examples):
        """Predicts by logistic regression on TF-IDF, or for numbers by ridge regression."""
        x, test = bag_of_words.tf_idf(*([e.texts for e in part] for part in (train, examples)))
        gold = self.gold(train)
        if self.kind == "regression":
            return [{"value": value} for value in bag_of_words.regress(x, gold, test).tolist()]
        if self.kind == "multi":
            return list(map(self._choice, bag_of_words.classify(x, gold, test, False) > 0))
        classes = np.eye(len(self.labels), dtype=bool)[gold]
        return list(map(self._choice, bag_of_words.classify(x, classes, test, True).argmax(1)))

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
