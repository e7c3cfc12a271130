"""Questions whose answer is a span of a text, or which have none (paper, sections 4.2 and 4.3)."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import jax
import numpy as np

from bert_jax.config import defaults
from bert_jax.config.phases import Phase
from bert_jax.data.labelled.encode_questions import QuestionRows, encode_questions
from bert_jax.data.labelled.examples import Question
from bert_jax.data.labelled.questions import read_questions
from bert_jax.data.labelled.spans import choose_spans
from bert_jax.files.errors import UserError
from bert_jax.models.model import EncoderConfig
from bert_jax.models.reading import HeadConfig
from bert_jax.models.task_heads import SpanModel, SpanOutputs
from bert_jax.scores.cmrc import cmrc2018
from bert_jax.scores.squad import squad_v1, squad_v2
from bert_jax.tasks import losses
from bert_jax.tasks.auxiliary import Losses
from bert_jax.tasks.head_settings import check_head, make_head
from bert_jax.tasks.losses import Sums
from bert_jax.tasks.outputs import SQUAD_FORM
from bert_jax.tasks.supervised import Labelled, shared_fields
from bert_jax.tasks.task import Batch, Prediction, Task, TaskRow, TaskSettings
from bert_jax.text.tokenization import Tokenizer

# By whether "no answer" is an answer.
METRICS = {
    False: ("f1", "exact_match"),
    True: ("f1", "exact", "exact_match", "best_f1", "best_exact"),
}


@dataclasses.dataclass(frozen=True)
class SpanTask(Task):
    """The device side.

    Attributes:
      model: the encoder.
      head: what is read of it.
    """

    head: HeadConfig = HeadConfig()

    def make_model(self) -> SpanModel:
        return SpanModel(self.model, self.head)

    def losses(self, outputs: SpanOutputs, batch: Batch) -> Sums:
        return losses.span(outputs.start_logits, outputs.end_logits, batch)

    def answers(self, outputs: SpanOutputs, batch: Batch) -> dict[str, jax.Array]:
        return {"start": outputs.start_logits, "end": outputs.end_logits}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanData(Labelled):
    """The host side.

    Attributes:
      metrics: of METRICS.
      max_sequence_length: longer contexts take several rows.
      doc_stride, max_query_length, max_answer_length, n_best: as in `run_squad.py`.
      null_answers: whether "no answer" is an answer (SQuAD 2.0).
      null_threshold: "no answer" is the answer where its score exceeds the best span's by more.
      is_chinese: scored as CMRC 2018.
      head: what is read of the encoder.
      losses: further losses.
      labels: none.
    """

    doc_stride: int
    max_query_length: int
    max_answer_length: int
    n_best: int
    null_answers: bool
    null_threshold: float
    is_chinese: bool
    head: HeadConfig
    losses: Losses

    @property
    def can_pack(self) -> bool:
        """A BiLSTM, and further losses, read whole rows."""
        return not self.head.has_bilstm and self.losses == Losses()

    @classmethod
    def make(cls, settings: TaskSettings) -> "SpanData":
        """Returns the host side for a configuration, without labels.

        Raises:
          UserError: for a metric or a head that does not exist, or another set than CMRC 2018.
        """
        data, head = settings.data, settings.head
        known = METRICS[head["null_answers"]]
        for metric in settings.metrics:
            if metric not in known:
                raise UserError(
                    f"metrics: {metric!r} is none of {', '.join(known)}, which there are for"
                    f" head.null_answers={head['null_answers']}."
                )
        if (published := data["published"]) not in ("", "cmrc2018"):
            raise UserError(f"Unknown data.published={published!r}. Available: cmrc2018.")
        names = ("doc_stride", "max_query_length", "max_answer_length", "n_best")
        return cls(
            **shared_fields(settings),
            **{name: head[name] for name in (*names, "null_answers", "null_threshold")},
            is_chinese=published == "cmrc2018",
            head=make_head(settings, "span"),
            losses=Losses.make(settings),
        )

    def read(self, path: str, counts: Counter, labelled: bool) -> Iterator[Question]:
        """The questions of a file.

        Raises:
          UserError: as `read_questions`, or without `null_answers` none has an answer in its text.
        """
        has_answers = self.null_answers or not labelled
        for question in read_questions(path, counts, labelled):
            has_answers = has_answers or any(start >= 0 for _, start in question.answers)
            yield question
        if not has_answers:
            raise UserError(
                f"{path} has no question with an answer that is in its text: nothing to learn or"
                " to score. Where no answer is one, set --config.head.null_answers=true."
            )

    def make_task(
        self,
        model: EncoderConfig,
        tokenizer: Tokenizer,
        phase: Phase | None = None,
        evaluate: bool = False,
    ) -> Task:
        check_head(self.head, model)
        return self.losses.add_to(SpanTask(model, self.head))

    def describe(self) -> tuple[str, ...]:
        return self.losses.describe()

    def encode(
        self, examples: Iterable[Question], tokenizer: Tokenizer, counts: Counter
    ) -> QuestionRows:
        return encode_questions(
            examples,
            tokenizer,
            self.max_sequence_length,
            self.doc_stride,
            self.max_query_length,
            counts,
        )

    def collect(self, examples: Sequence[Question], rows: QuestionRows) -> "SpanAnswers":
        return SpanAnswers(examples, rows, self)

    def score(
        self, examples: Sequence[Question], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        gold = {e.id: [text for text, _ in e.answers] for e in examples}
        if self.null_answers:
            # The best span of each, and how much better "no answer" is.
            found = {p["id"]: p["n_best"][0]["text"] if p["n_best"] else "" for p in predictions}
            odds = {p["id"]: _or_infinity(p["null_odds"]) for p in predictions}
            values = squad_v2(gold, found, odds, self.null_threshold)
            if "exact_match" in self.metrics:  # SQuAD 1.1's name of it
                values["exact_match"] = values["exact"]
        else:
            answered = {key: answers for key, answers in gold.items() if answers}
            found = {p["id"]: p["answer"] for p in predictions}
            values = _cmrc2018(answered, found) if self.is_chinese else squad_v1(answered, found)
        return {name: values[name] for name in self.metrics} | values

    def baseline(self, examples: Sequence[Question]) -> float:
        """Of no answer to anything."""
        if not self.null_answers:
            return 0.0
        return 100 * sum(not example.answers for example in examples) / len(examples)


def _cmrc2018(
    gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str]
) -> dict[str, float]:
    values = cmrc2018(gold, predictions)
    return {"f1": values["F1"], "exact_match": values["EM"], "average": values["AVERAGE"]}


def _or_infinity(value: float | None) -> float:
    return math.inf if value is None else value


class SpanAnswers:
    """The logits of all rows; a question has one row for each window of its context."""

    def __init__(self, examples: Sequence[Question], rows: QuestionRows, data: SpanData):
        self._examples, self._rows, self._data = examples, rows, data
        self._starts: dict[int, np.ndarray] = {}
        self._ends: dict[int, np.ndarray] = {}

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        for place, row in enumerate(row_numbers.tolist()):
            if row >= 0:
                size = int(self._rows.lengths[row])
                self._starts[row] = answers["start"][place, :size]
                self._ends[row] = answers["end"][place, :size]

    def predictions(self) -> list[Prediction]:
        """`answer` with its place and score, `null_odds`, and the `n_best` spans."""
        return [self._predict(number, example) for number, example in enumerate(self._examples)]

    def _predict(self, number: int, example: Question) -> Prediction:
        windows = self._rows.windows(number)
        found = choose_spans(
            example.context,
            windows,
            [self._starts[window.row] for window in windows],
            [self._ends[window.row] for window in windows],
            self._data.max_answer_length,
            self._data.n_best,
        )
        threshold = self._data.null_threshold if self._data.null_answers else math.inf
        ranked = found.n_best(with_null=self._data.null_answers)
        n_best = [
            {
                "text": span.text,
                "start": span.start,
                "end": span.stop,
                "score": score,
                "probability": probability,
            }
            for _, probability, score, span in ranked
            if span is not None
        ]
        return {
            "id": example.id,
            "question": example.question,
            "answer": found.text(threshold),
            "null_odds": found.null_odds if math.isfinite(found.null_odds) else None,
            "n_best": n_best,
        }


SPAN = TaskRow(
    make=SpanData.make,
    default_config=defaults.span,
    head="span",
    pools=False,
    outputs={".json": SQUAD_FORM},
    example=Question,
)
