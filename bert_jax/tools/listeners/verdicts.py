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
    return corpus_verdict(values, run.training_rows(phase).statistics, evaluation[0].statistics)


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


def corpus_verdict(
    values: Mapping[str, float], train: Mapping[str, Any], held_out: Mapping[str, Any]
) -> list[str]:
    """Returns lines that compare an evaluation with the statistics of the corpus.

    Args:
      values: metrics of the held-out split, of a model that predicts masked or next tokens.
      train, held_out: statistics of the rows of both splits (statistics.RowCounts.describe).

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
            " python -m bert_jax prepare --workdir=DIR --dump=5."
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
    return [*lines, "health: " + (" ".join(advice) or "good, it has learned from context.")]
