"""Questions whose answer is a span of a text, or which have none (paper, sections 4.2 and 4.3)."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.group import setting
from bert_jax.data.labelled.encode_questions import QuestionRows, encode_questions
from bert_jax.data.labelled.examples import Question
from bert_jax.data.labelled.questions import read_questions
from bert_jax.data.labelled.spans import choose_spans
from bert_jax.files.errors import UserError
from bert_jax.models.task_heads import IMPOSSIBLE, SpanModel, SpanOutputs
from bert_jax.scores.cmrc import cmrc2018
from bert_jax.scores.squad import squad_v1, squad_v2
from bert_jax.tasks.losses import Sums, cross_entropy, divergence, weighted_sum, weighted_sums
from bert_jax.tasks.span.review import make_review
from bert_jax.tasks.supervised import Headed
from bert_jax.tasks.task import (
    Answer,
    Batch,
    Prediction,
)

# Keyed by whether "no answer" is an answer.
METRICS = {
    False: ("f1", "exact_match"),
    True: ("f1", "exact", "exact_match", "best_f1", "best_exact"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span(Headed):
    """The span of a text that answers a question.

    Attributes:
      metrics: some of METRICS.
    """

    name: str = "span"
    # Stride in tokens between the windows of a long text.
    doc_stride: int = setting(128)
    # Maximum tokens of a question; the rest is cut off.
    max_query_length: int = setting(64)
    # Maximum tokens of an answer.
    max_answer_length: int = setting(30)
    # Number of best spans to list.
    n_best: int = setting(20)
    # Whether "no answer" is an answer (SQuAD 2.0).
    null_answers: bool = setting(False)
    # "No answer" is predicted if its score exceeds the best span's by more than this (results.json
    # has the best threshold).
    null_threshold: float = setting(0.0, any_number=True)
    # `cmrc2018` has its own scores; empty: those of SQuAD.
    published: str = setting("", choices=("", "cmrc2018"))

    HEAD = "span"
    TOP = 100.0
    PACKS = True
    EXAMPLE = Question

    @classmethod
    def default_config(cls) -> FinetuningConfig:
        """Returns the defaults for answers that are spans of a text (paper, section 4.2)."""
        config = FinetuningConfig(task=cls(), max_length=384, metrics=METRICS[False])
        return config.replace({"optimizer.learning_rate": 5e-5})

    @property
    def known_metrics(self) -> tuple[str, ...]:
        return METRICS[self.null_answers]

    @property
    def reads_features(self) -> bool:
        return self.layers != "last" or self.has_bilstm

    @property
    def is_chinese(self) -> bool:
        """Whether it is scored as CMRC 2018."""
        return self.published == "cmrc2018"

    def read(self, path, counts, labelled) -> Iterator[Question]:
        """The questions of a file.

        Raises:
          UserError: see `read_questions`; or, without `null_answers`, no question has an answer in
            its text.
        """
        has_answers = self.null_answers or not labelled
        for question in read_questions(path, counts, labelled):
            has_answers = has_answers or any(start >= 0 for _, start in question.answers)
            yield question
        if not has_answers:
            raise UserError(
                f"{path} has no question with an answer that is in its text: nothing to learn or"
                " to score. Where no answer is one, set --config.task.null_answers=true."
            )

    def encode(self, examples, tokenizer, counts) -> QuestionRows:
        lengths = self.max_sequence_length, self.doc_stride, self.max_query_length
        return encode_questions(examples, tokenizer, *lengths, counts)

    def make_model(self) -> SpanModel:
        return SpanModel(self.model, self)

    def losses(self, outputs: SpanOutputs, batch: Batch) -> Sums:
        """The mean of the cross-entropies of the start and of the end, as in `run_squad.py`.

        `task_accuracy` is how often both positions are right.
        """
        start_logits, end_logits = _logits(outputs, batch)
        start_losses, start_hits = cross_entropy(start_logits, batch["start_positions"])
        end_losses, end_hits = cross_entropy(end_logits, batch["end_positions"])
        losses = (start_losses + end_losses) / 2
        return weighted_sums("task", losses, start_hits * end_hits, batch["weights"])

    def distilled_losses(self, outputs, teacher, batch, temperature):
        """The mean of the divergences of the start and of the end."""
        pairs = zip(_logits(outputs, batch), _logits(teacher, batch), strict=True)
        start, end = (divergence(*pair, temperature) for pair in pairs)
        return {"task_loss": weighted_sum((start + end) / 2, batch["weights"])}

    def answers(self, outputs: SpanOutputs, batch: Batch) -> dict[str, jax.Array]:
        return {"start": outputs.start_logits, "end": outputs.end_logits}

    def collect(self, examples, rows: QuestionRows, answers):
        """`answer` with its place and score, `null_odds`, and the `n_best` spans."""
        return [self._predict(example, rows, n, answers) for n, example in enumerate(examples)]

    def _predict(
        self, example: Question, rows: QuestionRows, number: int, answers: Sequence[Answer]
    ) -> Prediction:
        windows = rows.windows(number)
        starts, ends = (
            [answers[window.row][name][: rows.lengths[window.row]] for window in windows]
            for name in ("start", "end")
        )
        limits = self.max_answer_length, self.n_best
        found = choose_spans(example.context, windows, starts, ends, *limits)
        threshold = self.null_threshold if self.null_answers else math.inf
        n_best = [
            {
                "text": span.text,
                "start": span.start,
                "end": span.stop,
                "score": score,
                "probability": probability,
            }
            for _, probability, score, span in found.n_best(with_null=self.null_answers)
            if span is not None
        ]
        return {
            "id": example.id,
            "question": example.question,
            "answer": found.text(threshold),
            "null_odds": found.null_odds if math.isfinite(found.null_odds) else None,
            "n_best": n_best,
        }

    def review(self, examples, predictions):
        return make_review(self, examples, predictions)

    def score(self, examples, predictions):
        gold = {e.id: [text for text, _ in e.answers] for e in examples}
        if self.null_answers:
            # The best span of each, and how much better "no answer" is.
            found = {p["id"]: p["n_best"][0]["text"] if p["n_best"] else "" for p in predictions}
            odds = {p["id"]: p["null_odds"] for p in predictions}
            odds = {key: math.inf if value is None else value for key, value in odds.items()}
            values = squad_v2(gold, found, odds, self.null_threshold)
            if "exact_match" in self.metrics:  # SQuAD 1.1's name for it
                values["exact_match"] = values["exact"]
        else:
            answered = {key: answers for key, answers in gold.items() if answers}
            found = {p["id"]: p["answer"] for p in predictions}
            values = _cmrc2018(answered, found) if self.is_chinese else squad_v1(answered, found)
        return {name: values[name] for name in self.metrics} | values

    def baseline(self, examples):
        """Returns the score of answering no question."""
        if not self.null_answers:
            return 0.0
        return 100 * sum(not example.answers for example in examples) / len(examples)


def _logits(outputs: SpanOutputs, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """float32[batch, seq] logits of the start and of the end.

    For rows with several examples, [batch, examples, seq], each only within its own example.
    """
    start, end, weights = outputs.start_logits, outputs.end_logits, batch["weights"]
    if weights.ndim == 1:
        return start, end
    numbers = 1 + jnp.arange(weights.shape[1], dtype=jnp.int32)
    is_here = batch["example_ids"][:, None, :] == numbers[None, :, None]
    start, end = (jnp.where(is_here, logits[:, None], IMPOSSIBLE) for logits in (start, end))
    return start, end


def _cmrc2018(
    gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str]
) -> dict[str, float]:
    values = cmrc2018(gold, predictions)
    return {"f1": values["F1"], "exact_match": values["EM"], "average": values["AVERAGE"]}
