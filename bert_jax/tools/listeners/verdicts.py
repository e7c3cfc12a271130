"""Health verdicts: what the metrics of an evaluation say, and what to change."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.scores.bag_of_words import MAX_EXAMPLES
from bert_jax.training import metrics
from bert_jax.training.listener import Evaluation

# A difference from chance of fewer standard errors than this may be luck.
_STANDARD_ERRORS = 3
# Shares of the way from the baseline to a perfect score.
_GOOD, _FAIR = 0.5, 0.2
# For a corpus: how far below the unigram entropy the loss of a good model is.
_GOOD_LOSS = 0.75
_NAMES_SHOWN = 8


def verdict(
    run: Any, step: int, evaluation: Evaluation, simple: Sequence[Any] | None = None
) -> list[str]:
    """Returns lines that compare an evaluation after `step` steps with simple baselines.

    `simple` are the predictions of a model without an encoder, if there is one.

    The last line begins with "health: ", followed by `good`, `fair`, `weak` or `degenerate` for
    labelled examples, or what is wrong.
    """
    phase, values = run.phase_at(step - 1), evaluation.values
    splits = run.evaluation_rows(phase)
    if not run.config.has_corpus:
        examples = next(rows.examples for rows in splits if rows.name == "eval")
        return labelled_verdict(_outcome(run, step, evaluation, examples, simple))
    return corpus_verdict(values, run.training_rows(phase).statistics, splits[0].statistics)


# ------------------------------------------------------------------ labelled examples


@dataclasses.dataclass(frozen=True)
class Outcome:
    """An evaluation on labelled examples.

    Attributes:
      metric: name of the first score.
      value: the score.
      error: its standard error, from the number of examples.
      baseline: score of a constant prediction; None: unknown.
      top: the best possible score.
      losses: training losses of the reports so far, in order.
      held_out_loss: loss of the evaluation.
      classes: classes of the gold labels.
      missing: classes that are never predicted.
      simple: score of a model without an encoder, trained on the same examples; None: there is
        none, or it was not trained.
      difference_error: standard error of the difference of both scores.
    """

    metric: str
    value: float
    error: float = 0.0
    baseline: float | None = 0.0
    top: float = 1.0
    losses: Sequence[float] = ()
    held_out_loss: float = float("nan")
    classes: int = 0
    missing: Sequence[str] = ()
    simple: float | None = None
    difference_error: float = 0.0


def labelled_verdict(outcome: Outcome) -> list[str]:
    """Returns the score beside its baseline, and a verdict with advice."""
    value, baseline = outcome.value, outcome.baseline
    score = f"  {outcome.metric} {value:.4f} ± {outcome.error:.4f}"
    if baseline is None:
        return [score]
    margin = value - baseline
    share = margin / (outcome.top - baseline) if baseline < outcome.top else 1.0
    lines = [f"{score}   constant prediction {baseline:.4f}"]
    if outcome.simple is not None:
        adds = f"{value - outcome.simple:+.4f} ± {outcome.difference_error:.4f}"
        lines.append(f"  without an encoder {outcome.simple:.4f}   the encoder adds {adds}")
    if not margin > 2 * outcome.error:
        how = f"not reliably above a constant prediction ({margin:+.4f} ± {outcome.error:.4f})"
        return [*lines, " ".join([f"health: degenerate, {how}.", *_causes(outcome)])]
    level = "good" if share >= _GOOD else "fair" if share >= _FAIR else "weak"
    how = f"{margin:.4f} ± {outcome.error:.4f} above a constant prediction"
    if outcome.simple is not None and value < outcome.simple:
        level = "weak"
        how += (
            ", but below a model of single words, without an encoder: start from one that"
            " is pre-trained on more text (a folder or a name of the hub), or give more examples"
        )
    return [*lines, " ".join([f"health: {level}, {how}.", *_findings(outcome, level)])]


def _causes(outcome: Outcome) -> list[str]:
    """Returns why a model has not learned, judging by its losses."""
    losses = outcome.losses
    if len(losses) < 2:
        return ["Train longer: see --config.epochs."]
    first, last = losses[0], losses[-1]
    fell = f"from {first:.3g} to {last:.3g}"
    if last > 1.1 * first:
        return [f"The training loss rose, {fell}: lower optimizer.learning_rate."]
    if last > 0.9 * first:
        return [
            f"The training loss hardly fell, {fell}: the model is not trained yet. Raise"
            " optimizer.learning_rate or epochs."
        ]
    if overfit := _overfit(outcome):
        return [
            f"{overfit}: the training examples were memorized. Give more examples, or check that"
            " both files have the same kind of labels."
        ]
    return [f"The training loss fell {fell}: train longer, or try other seeds (seeds=5)."]


def _findings(outcome: Outcome, level: str) -> list[str]:
    """Returns what an expert would look at in a model that has learned something."""
    found = []
    if outcome.missing:
        names = ", ".join(outcome.missing[:_NAMES_SHOWN])
        more = ", ..." if len(outcome.missing) > _NAMES_SHOWN else ""
        found.append(
            f"{len(outcome.missing)} of {outcome.classes} classes are never predicted"
            f" ({names}{more})."
        )
    if overfit := _overfit(outcome):
        found.append(f"{overfit}: overfitting; fewer epochs or more examples may help.")
    elif level != "good" and _still_falls(outcome.losses):
        found.append(
            f"The training loss is still falling ({outcome.losses[-1]:.3g}): train longer"
            " (epochs), or raise optimizer.learning_rate."
        )
    return found


def _overfit(outcome: Outcome) -> str:
    """Returns how far the losses are apart, if the training examples are memorized."""
    held_out = outcome.held_out_loss
    if not outcome.losses or not outcome.losses[-1] < 0.25 * held_out:
        return ""
    last = outcome.losses[-1]
    return f"The training loss ({last:.3g}) is far below the held-out loss ({held_out:.3g})"


def _still_falls(losses: Sequence[float]) -> bool:
    """Whether the last quarter of the losses is clearly below the quarter before."""
    size = len(losses) // 4
    before, last = losses[-2 * size : -size], losses[-size:]
    return size > 0 and bool(np.mean(last) < 0.95 * np.mean(before))


def _outcome(
    run: Any,
    step: int,
    evaluation: Evaluation,
    examples: Sequence[Any],
    simple: Sequence[Any] | None,
) -> Outcome:
    """Returns the outcome, with the score of a model without an encoder, if there is one."""
    metric, predictions = run.task.metrics[0], evaluation.predictions
    rows = [row for row in metrics.read_metrics(run.workdir) if row["split"] == "train"]
    name = "task_loss" if run.teacher else "loss"  # of the labels, as the held-out loss
    losses = [row[name] for row in rows if row["step"] <= step and row.get(name) is not None]
    counts = run.task.counts(examples, predictions)
    gold = [name for name, count in counts.items() if count.gold]
    outcome = Outcome(
        metric=metric,
        value=evaluation.values[metric],
        error=run.task.error(examples, predictions, metric),
        baseline=run.task.baseline(examples),
        top=run.task.TOP,
        losses=losses,
        held_out_loss=evaluation.values["loss"],
        classes=len(gold),
        missing=[str(name) for name in gold if not counts[name].predicted],
    )
    if simple is None:
        return outcome
    return dataclasses.replace(
        outcome,
        simple=run.task.score(examples, simple)[metric],
        difference_error=run.task.difference_error(examples, predictions, simple, metric),
    )


def predict_without_encoder(run: Any) -> Sequence[Any] | None:
    """Trains a model without an encoder on the examples of a run; returns what it predicts.

    None if the task has no such model, or if there is nothing to train on.
    """
    if run.config.has_corpus or not run.training:
        return None
    train = run.training[0].examples
    train = train[:: -(-len(train) // MAX_EXAMPLES) or 1]
    splits = run.evaluation_rows(run.phases[0])
    examples = next(rows.examples for rows in splits if rows.name == "eval")
    return run.task.predict_without_encoder(train, examples) if train else None


# ------------------------------------------------------------------ corpora


def corpus_verdict(
    values: Mapping[str, float], train: Mapping[str, Any], held_out: Mapping[str, Any]
) -> list[str]:
    """Returns lines that compare an evaluation with the statistics of the corpus.

    Args:
      values: metrics of the held-out split, of a model that predicts masked or next tokens.
      train, held_out: row statistics of both splits (`RowCounts.describe`).

    Returns:
      A line for each comparison, then the verdict, with advice where it is bad.
    """
    if "masked_lm_loss" in values:
        name, about = "MLM", "The MLM loss"
        loss, accuracy = values["masked_lm_loss"], values["masked_lm_accuracy"]
    else:
        name, about, loss = "next-token", "The loss", values["loss"]
        # None if it is not reported.
        accuracy = next((values[m] for m in values if m.endswith("_accuracy")), None)
    entropy = train["unigram_entropy"]
    token, share = train["most_frequent_token"]["piece"], train["most_frequent_token"]["share"]
    lines = [f"  {name + ' loss':<22}{loss:.3f} nats   unigram entropy      {entropy:.3f}"]
    if accuracy is not None:
        always = f"always {token!r:<12}  {share:.1%}"
        lines.append(f"  {name + ' accuracy':<22}{accuracy:6.1%}       {always}")
    advice = []
    if not loss < entropy:
        advice.append(
            f"{about} is no better than knowing how frequent each token is: train longer, or look"
            " at optimizer.learning_rate and warmup, and at the data with"
            " bert_jax prepare --workdir=DIR --dump=5."
        )
    elif accuracy is not None and not accuracy > share:
        advice.append("No better than always predicting the most frequent token yet: train longer.")
    if (pairs := values.get("next_sentence_accuracy")) is not None:
        chance = max(held_out["random_next_share"], 1 - held_out["random_next_share"])
        margin = _STANDARD_ERRORS * (chance * (1 - chance) / held_out["rows"]) ** 0.5
        lines.append(f"  {'NSP accuracy':<22}{pairs:6.1%}       majority class       {chance:.1%}")
        if not pairs > chance + margin:
            advice.append(
                "Next-sentence accuracy is at chance: usual early in training; if it stays so,"
                " look at the documents (are they really separate, are sentences in order?)."
            )
    if held_out["unknown_token_share"] > 0.02:
        advice.append(
            f"{held_out['unknown_token_share']:.1%} of the tokens are unknown: does the vocabulary"
            " fit the language, and data.lowercase the vocabulary?"
        )
    if advice:
        return [*lines, "health: " + " ".join(advice)]
    below = f"the loss is {entropy - loss:.2f} nats below the unigram entropy"
    if loss < _GOOD_LOSS * entropy:
        return [*lines, f"health: good, it has learned from context: {below}."]
    return [
        *lines,
        f"health: fair, it has begun to learn from context: {below}. Train longer.",
    ]
