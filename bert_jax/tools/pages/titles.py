"""Names that pages share: titles of metrics, and the file of a report."""

# The file name of a report in a workdir.
REPORT = "report.html"
_SUBJECTS = {
    "masked_lm": "Masked tokens",
    "next_sentence": "Next sentence",
    "causal_lm": "Next word",
    "bidirectional_lm": "Next word, both directions",
}
_RESTS = {"loss": "loss (nats)", "f1": "F1"}


def title_of(metric: str) -> str:
    """Returns "Masked tokens: loss (nats)" for masked_lm_loss."""
    if metric.startswith("general_"):
        return f"General text, {title_of(metric.removeprefix('general_')).lower()}"
    for prefix, subject in _SUBJECTS.items():
        if metric.startswith(f"{prefix}_"):
            rest = metric.removeprefix(f"{prefix}_")
            return f"{subject}: {_RESTS.get(rest, rest.replace('_', ' '))}"
    rest = _RESTS.get(metric, metric.replace("_", " "))
    return rest[:1].upper() + rest[1:]
