"""Health verdicts: held-out metrics compared with what an untrained model would reach."""

from collections.abc import Mapping
from typing import Any

# A difference from chance of fewer standard errors than this may be luck.
_STANDARD_ERRORS = 3


def verdict(run: Any, step: int, values: Mapping[str, float]) -> list[str]:
    """Returns lines that compare the metrics after `step` steps with those of simple baselines."""
    phase = run.phase_at(step - 1)
    evaluation = run.evaluation_rows(phase)
    if not run.config.has_corpus:
        examples = next(rows.examples for rows in evaluation if rows.name == "eval")
        metric = run.data.metrics[0]
        return labelled_verdict(metric, values[metric], run.data.baseline(examples))
    train, held_out = run.training_rows(phase).statistics, evaluation[0].statistics
    if "masked_lm_loss" in values:
        return pretraining_verdict(values, train, held_out)
    accuracy = next((v for name, v in values.items() if name.endswith("_accuracy")), None)
    return next_token_verdict(values["loss"], accuracy, train, held_out)


def labelled_verdict(metric: str, value: float, baseline: float | None) -> list[str]:
    """Returns the lines for a task on labelled files.

    Args:
      metric: name of the score.
      value: of the model.
      baseline: of a constant prediction; None: unknown, and there is no verdict.
    """
    if baseline is None:
        return [f"  {metric} {value:.4f}"]
    lines = [f"  {metric} {value:.4f}   constant prediction {baseline:.4f}"]
    if value > baseline:
        return [*lines, "health: good, it has learned to tell examples apart."]
    return [
        *lines,
        "health: degenerate, no better than always the same answer: try another seed, a smaller"
        " learning rate or more epochs, and bias correction (optimizer.name=adamw).",
    ]


def pretraining_verdict(
    values: Mapping[str, float], train: Mapping[str, Any], held_out: Mapping[str, Any]
) -> list[str]:
    """Returns lines that compare an evaluation with the statistics of the corpus.

    Args:
      values: metrics of the held-out split.
      train, held_out: statistics of the rows of both splits (statistics.RowCounts.describe).

    Returns:
      A line for each comparison, then the verdict, with advice where it is bad.
    """
    token, share = _most_frequent(train)
    entropy = train["unigram_entropy"]
    loss, accuracy = values["masked_lm_loss"], values["masked_lm_accuracy"]
    pairs = values.get("next_sentence_accuracy")  # None: the model has no such head
    chance = max(held_out["random_next_share"], 1 - held_out["random_next_share"])
    margin = _STANDARD_ERRORS * (chance * (1 - chance) / held_out["rows"]) ** 0.5

    advice = []
    if not loss < entropy:
        advice.append(
            "The MLM loss is no better than knowing how frequent each token is: train"
            " longer, or look at optimizer.learning_rate and warmup, and at the data with"
            " python -m bert_jax prepare --workdir=DIR --dump=5."
        )
    elif not accuracy > share:
        advice.append("No better than always predicting the most frequent token yet: train longer.")
    if pairs is not None and not pairs > chance + margin:
        advice.append(
            "Next-sentence accuracy is at chance: usual early in training; if it stays so, look"
            " at the documents (are they really separate, are sentences in order?)."
        )
    advice += _about_unknown(held_out)
    lines = [
        f"  MLM loss              {loss:.3f} nats   unigram entropy      {entropy:.3f}",
        f"  MLM accuracy          {accuracy:6.1%}       always {token!r:<12}  {share:.1%}",
    ]
    if pairs is not None:
        lines.append(
            f"  NSP accuracy          {pairs:6.1%}       majority class       {chance:.1%}"
        )
    return [*lines, _conclusion(advice)]


def next_token_verdict(
    loss: float, accuracy: float | None, train: Mapping[str, Any], held_out: Mapping[str, Any]
) -> list[str]:
    """Returns the lines of `verdict` for a model that predicts next tokens.

    Args:
      loss: of the held-out split, in nats per token.
      accuracy: of the held-out split, if reported.
      train, held_out: statistics of the rows of both splits.
    """
    token, share = _most_frequent(train)
    entropy = train["unigram_entropy"]
    advice = []
    if not loss < entropy:
        advice.append(
            "The loss is no better than knowing how frequent each token is: train longer, or look"
            " at optimizer.learning_rate and warmup, and at the data with"
            " python -m bert_jax prepare --workdir=DIR --dump=5."
        )
    elif accuracy is not None and not accuracy > share:
        advice.append("No better than always predicting the most frequent token yet: train longer.")
    advice += _about_unknown(held_out)
    lines = [f"  next-token loss       {loss:.3f} nats   unigram entropy      {entropy:.3f}"]
    if accuracy is not None:
        lines.append(
            f"  next-token accuracy   {accuracy:6.1%}       always {token!r:<12}  {share:.1%}"
        )
    return [*lines, _conclusion(advice)]


def _most_frequent(train: Mapping[str, Any]) -> tuple[str, float]:
    return train["most_frequent_token"]["piece"], train["most_frequent_token"]["share"]


def _about_unknown(held_out: Mapping[str, Any]) -> list[str]:
    if held_out["unknown_token_share"] <= 0.02:
        return []
    return [
        f"{held_out['unknown_token_share']:.1%} of the tokens are unknown: does the vocabulary"
        " fit the language, and data.lowercase the vocabulary?"
    ]


def _conclusion(advice: list[str]) -> str:
    return "health: " + (" ".join(advice) if advice else "good, it has learned from context.")
