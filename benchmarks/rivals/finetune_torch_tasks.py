"""The tasks of the fine-tuning benchmark on the side of torch.

Each does what transformers' example program for it does, in short: its fast tokenizer, its model
and its collator, a usual score. They share with this program only the readers of files, so that
both have the same examples, and the scores of classes, numbers and answers.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import seqeval.metrics
import transformers

from bert_jax.data.labelled.conll import read_tagged
from bert_jax.data.labelled.examples import Question, TaggedExample, TextExample
from bert_jax.data.labelled.questions import read_questions
from bert_jax.data.labelled.tables import Columns, parse_column, read_table
from bert_jax.scores.squad import squad_v1, squad_v2
from bert_jax.tasks.classification import METRICS

Rows = list[dict[str, Any]]
# Left out of the loss and of the scores.
_IGNORED = -100


class Tagging:
    """Entities: a label at each word's first piece, scored by seqeval (`run_ner.py`)."""

    model_class = transformers.AutoModelForTokenClassification
    collator_class = transformers.DataCollatorForTokenClassification

    def __init__(self, config: dict[str, Any], tokenizer: Any):
        self._longest, self._tokenizer = config["max_length"], tokenizer
        self.labels: list[str] = []

    def read(self, path: str) -> list[TaggedExample]:
        return list(read_tagged(path, Counter(), True, "tokens", "tags"))

    def set_labels(self, examples: Sequence[TaggedExample]) -> dict[str, Any]:
        """Takes the labels of the training examples; returns arguments of the model."""
        self.labels = sorted({tag for example in examples for tag in example.tags or ()})
        return {"num_labels": len(self.labels)}

    def encode(self, examples: Sequence[TaggedExample]) -> tuple[Rows, list[list[int | None]]]:
        """Rows of ids with labels, cut off at the maximum length.

        Returns:
          The rows, and for each of them the place of each word's first piece, or None.
        """
        numbers = {label: number for number, label in enumerate(self.labels)}
        rows, places = [], []
        for example in examples:
            row = self._tokenizer(
                list(example.words),
                is_split_into_words=True,
                truncation=True,
                max_length=self._longest,
            )
            firsts: list[int | None] = [None] * len(example.words)
            row["labels"] = [_IGNORED] * len(row["input_ids"])
            for place, word in reversed(list(enumerate(row.word_ids()))):
                if word is not None:
                    firsts[word] = place
            for place, tag in zip(firsts, example.tags or (), strict=True):
                if place is not None:
                    row["labels"][place] = numbers.get(tag, _IGNORED)
            rows.append(dict(row))
            places.append(firsts)
        return rows, places

    def score(
        self,
        outputs: Iterator[Any],
        examples: Sequence[TaggedExample],
        places: list[list[int | None]],
    ) -> float:
        best = (row["logits"].argmax(-1) for row in outputs)
        found = [self.tags(*row) for row in zip(best, places, strict=True)]
        gold = [list(example.tags or ()) for example in examples]
        score: Any = seqeval.metrics.f1_score(gold, found)
        return float(score)

    def tags(self, best: np.ndarray, firsts: Sequence[int | None]) -> list[str]:
        """The tags of a sentence's words; O for words that were cut off, or have no piece."""
        return [self.labels[best[first]] if first is not None else "O" for first in firsts]


class Classification:
    """A class or a number for a text or a pair of texts (`run_glue.py`)."""

    model_class = transformers.AutoModelForSequenceClassification
    collator_class = transformers.DataCollatorWithPadding

    def __init__(self, config: dict[str, Any], tokenizer: Any):
        self._longest, self._tokenizer = config["max_length"], tokenizer
        data = config["data"]
        text_a, text_b, label = (parse_column(data[n]) for n in ("text_a", "text_b", "label"))
        assert text_a is not None
        self._columns = Columns(text_a, text_b, label)
        kind = config["head"]["problem_type"]
        self._is_regression = kind == "regression"
        self._metric = METRICS[kind][config["metrics"][0]]
        self.labels: list[str] = []

    def read(self, path: str) -> list[TextExample]:
        return list(read_table(path, self._columns, Counter()))

    def set_labels(self, examples: Sequence[TextExample]) -> dict[str, Any]:
        if self._is_regression:
            return {"num_labels": 1}
        self.labels = sorted({label for example in examples for label in example.labels or ()})
        return {"num_labels": len(self.labels)}

    def _gold(self, example: TextExample) -> Any:
        (label,) = example.labels or ("",)
        return float(label) if self._is_regression else self.labels.index(label)

    def encode(self, examples: Sequence[TextExample]) -> tuple[Rows, list[Any]]:
        gold = list(map(self._gold, examples))
        rows = []
        for example, label in zip(examples, gold, strict=True):
            row = self._tokenizer(
                example.text_a, example.text_b, truncation=True, max_length=self._longest
            )
            rows.append({**row, "labels": label})
        return rows, gold

    def score(
        self, outputs: Iterator[Any], examples: Sequence[TextExample], gold: list[Any]
    ) -> float:
        logits = np.array([row["logits"] for row in outputs])
        found = logits[:, 0] if self._is_regression else logits.argmax(-1)
        return float(self._metric(np.array(gold), found))


class Span:
    """An answer in a text, cut into windows, scored by SQuAD's F1 (`run_qa.py`)."""

    model_class = transformers.AutoModelForQuestionAnswering
    collator_class = transformers.DataCollatorWithPadding

    def __init__(self, config: dict[str, Any], tokenizer: Any):
        self._longest, self._tokenizer = config["max_length"], tokenizer
        head = config["head"]
        self._stride, self._null_answers = head["doc_stride"], head["null_answers"]
        self._longest_answer, self._n_best = head["max_answer_length"], head["n_best"]

    def read(self, path: str) -> list[Question]:
        return list(read_questions(path, Counter()))

    def set_labels(self, examples: Sequence[Question]) -> dict[str, Any]:
        return {}

    def encode(self, examples: Sequence[Question]) -> tuple[Rows, list[tuple[int, list[Any]]]]:
        """Rows of windows; for each the number of its question and the characters of its tokens."""
        rows, windows = [], []
        for number, example in enumerate(examples):
            question = example.question.lstrip()
            asked = len(self._tokenizer(question, add_special_tokens=False)["input_ids"])
            # The tokenizer's stride is the overlap of windows, ours their distance; 3 are special.
            shared = max(0, self._longest - asked - 3 - self._stride)
            encoded = self._tokenizer(
                question,
                example.context,
                truncation="only_second",
                max_length=self._longest,
                stride=shared,
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            for window in range(len(encoded["input_ids"])):
                kinds = encoded.sequence_ids(window)
                offsets = [
                    span if kind == 1 else None
                    for span, kind in zip(encoded["offset_mapping"][window], kinds, strict=True)
                ]
                names = ("input_ids", "token_type_ids", "attention_mask")
                row = {name: encoded[name][window] for name in names if name in encoded}
                start, end = _positions(example, offsets)
                rows.append({**row, "start_positions": start, "end_positions": end})
                windows.append((number, offsets))
        return rows, windows

    def score(
        self,
        outputs: Iterator[Any],
        examples: Sequence[Question],
        windows: list[tuple[int, list[Any]]],
    ) -> float:
        best: dict[int, tuple[float, str]] = {}
        nulls: dict[int, float] = {}
        for row, (number, offsets) in zip(outputs, windows, strict=True):
            starts, ends = row["start_logits"], row["end_logits"]
            null = float(starts[0] + ends[0])
            nulls[number] = min(null, nulls.get(number, null))
            found = self._best(starts, ends, offsets, examples[number].context)
            best[number] = max(found, best.get(number, found))
        predictions = {}
        for number, example in enumerate(examples):
            score, text = best[number]
            is_null = self._null_answers and nulls[number] > score
            predictions[example.id] = "" if is_null else text
        gold = {e.id: [text for text, _ in e.answers] for e in examples}
        scores = squad_v2(gold, predictions) if self._null_answers else squad_v1(gold, predictions)
        return scores["f1"]

    def _best(
        self, starts: np.ndarray, ends: np.ndarray, offsets: list[Any], context: str
    ) -> tuple[float, str]:
        """The best valid pair of the best starts and the best ends: its score and its text."""
        best = (-np.inf, "")
        for start in np.argsort(-starts[: len(offsets)])[: self._n_best]:
            for end in np.argsort(-ends[: len(offsets)])[: self._n_best]:
                is_span = start <= end < start + self._longest_answer
                if is_span and offsets[start] and offsets[end]:
                    text = context[offsets[start][0] : offsets[end][1]]
                    best = max(best, (float(starts[start] + ends[end]), text))
        return best


def _positions(example: Question, offsets: list[Any]) -> tuple[int, int]:
    """The first and last token of the answer; [CLS] if it is not in the window."""
    if not example.answers or example.answers[0][1] < 0:
        return 0, 0
    text, first = example.answers[0]
    last = first + len(text)
    inside = [i for i, span in enumerate(offsets) if span and span[1] > first and span[0] < last]
    spans = [span for span in offsets if span]
    if not inside or spans[0][0] > first or spans[-1][1] < last:
        return 0, 0
    return inside[0], inside[-1]


def open_task(config: dict[str, Any]) -> tuple[Any, Any, Any, list[Any], list[Any]]:
    """Returns the task of a configuration, its tokenizer and model, and the examples of its files.

    Returns:
      The task, the tokenizer, the model, and the examples to train on and to evaluate on.
    """
    folder, data = config["init_from"], config["data"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    task = TASKS[config["task"]](config, tokenizer)
    train, held_out = (task.read(data[name]) for name in ("train", "eval"))
    model = task.model_class.from_pretrained(folder, **task.set_labels(train))
    return task, tokenizer, model, train, held_out


TASKS = {"tagging": Tagging, "classification": Classification, "span": Span}
