"""What train and evaluate print: devices, data, model, progress lines."""

import itertools
import math
import sys
from collections.abc import Mapping

import jax

from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.devices import compilation_cache
from bert_jax.devices.sharding import describe_devices
from bert_jax.tools.listeners.banner import banner, describe_padding, describe_rows
from bert_jax.tools.pages.scales import duration
from bert_jax.training.listener import Evaluation, Listener
from bert_jax.training.metrics import GENERAL, read_first_evaluation
from bert_jax.training.run import Run
from bert_jax.training.state import TrainState

# Metrics of a held-out line; the report has all.
_MAX_HELD_OUT = 4


class Terminal(Listener):
    """Prints what a run reports, with a progress bar below the lines on a terminal.

    Args:
      name: what every line begins with, if several runs report at once; they have no bar.
    """

    def __init__(self, name: str = ""):
        self._bar = sys.stdout.isatty() and not name
        self._name = f"{name:<10} " if name else ""
        self._steps = 0

    def line(self, text: str = "") -> None:
        """Prints a line above the bar."""
        print("\r\x1b[K" + text if self._bar else self._name + text, flush=True)

    def progress(self, step: int, steps: int) -> None:
        """Redraws the bar; does nothing if the output is not a terminal."""
        if self._bar:
            done = math.floor(40 * min(step / max(steps, 1), 1))
            bar = "#" * done + "-" * (40 - done)
            print(f"\r\x1b[K[{bar}] {step}/{steps}", end="", flush=True)

    def opened(self, run: Run) -> None:
        self._steps = run.steps
        self.line(f"devices    {describe_devices(run.mesh)}")
        if kept := compilation_cache.describe():
            self.line(f"compiled   {kept}")
        for text in (*describe_padding(run), *banner(run)):
            self.line(text)

    def started(self, run: Run, state: TrainState) -> None:
        model = run.config.model
        sizes = f"{model.num_layers} layers, hidden size {model.hidden_size}"
        count = sum(leaf.size for leaf in jax.tree.leaves(state.params))
        self.line(f"model      {model.name}, {sizes}, {count:,} parameters")

    def metrics(
        self, step: int, split: str, values: Mapping[str, float], speed: Mapping[str, float]
    ) -> None:
        if split == "train":
            self.line(progress_line(step, self._steps, values, speed))
        else:
            title = f"step {step}  held-out  " if step else "before     held-out "
            for text, shown in _by_text(values).items():
                self.line(title.replace("held-out", text) + "  ".join(named_values(_first(shown))))

    def evaluation(
        self, run: Run, step: int, evaluation: Evaluation, *, is_last: bool, is_chosen: bool
    ) -> None:
        if is_last and run.config.checkpoint.use != "best":
            self._change(run, evaluation.values)

    def chosen(self, run: Run, step: int, values: Mapping[str, float]) -> None:
        use = run.config.checkpoint.use
        self.line(f"{use:<10} step {step}: " + "  ".join(named_values(values)))
        if use == "best":
            self._change(run, values)

    def _change(self, run: Run, values: Mapping[str, float]) -> None:
        """Compares an evaluation with the one before the first step, if there is one."""
        before = read_first_evaluation(run.workdir)
        old = _by_text(before)
        for text, shown in _by_text({n: x for n, x in values.items() if n in before}).items():
            pairs = (
                f"{_short(name)} {_number(name, old[text][name])} -> {_number(name, value)}"
                for name, value in _first(shown).items()
            )
            self.line(f"change     {text} {'  '.join(pairs)}")
        if values.get("loss", 0.0) >= before.get("loss", math.inf):
            self.line(
                "           The model was better on the held-out text before: train on more text,"
                " fewer epochs, or with a lower optimizer.learning_rate."
            )


class EvaluationTerminal(Terminal):
    """Prints what the command `evaluate` reports."""

    def opened(self, run: Run) -> None:
        for rows in run.evaluation[0]:
            if isinstance(rows, LabelledRows):
                self.line(describe_rows(rows))

    def evaluation(
        self, run: Run, step: int, evaluation: Evaluation, *, is_last: bool, is_chosen: bool
    ) -> None:
        self.line(f"{describe_devices(run.mesh)}; checkpoint of step {step}")
        self.line("held-out  " + "  ".join(named_values(evaluation.values)))


def _by_text(values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Returns the metrics of the held-out text, and those of general text, if any."""
    texts: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        text = "general " if name.startswith(GENERAL) else "held-out"
        texts.setdefault(text, {})[name.removeprefix(GENERAL)] = value
    return texts


def _first(values: Mapping[str, float]) -> dict[str, float]:
    return dict(itertools.islice(values.items(), _MAX_HELD_OUT))


def progress_line(
    step: int, steps: int, values: Mapping[str, float], speed: Mapping[str, float]
) -> str:
    """Returns the line that reports training metrics and speed."""
    parts = [f"step {step:>{len(str(steps))}}/{steps}", *named_values(values)]
    parts += [
        f"{speed['tokens_per_second']:,.0f} tokens/s",
        f"{speed['examples_per_second']:,.1f} examples/s",
        f"data wait {speed['waiting_for_data']:.0%}",
    ]
    if "mfu" in speed:
        parts.append(f"MFU {speed['mfu']:.1%}")
    if remaining := steps - step:
        parts.append(f"ETA {duration(remaining / max(speed['steps_per_second'], 1e-9))}")
    return "  ".join(parts)


def named_values(values: Mapping[str, float]) -> list[str]:
    """Returns metrics for display: "MLM loss 2.345", "NSP accuracy 97.1%" ..."""
    return [f"{_short(name)} {_number(name, value)}" for name, value in values.items()]


_SHORT = {
    "masked_lm": "MLM",
    "causal_lm": "LM",
    "bidirectional_lm": "biLM",
    "next_sentence": "NSP",
    "learning_rate": "lr",
}


def _short(name: str) -> str:
    for long, short in _SHORT.items():
        name = name.replace(long, short)
    return name.replace("_", " ")


def _number(name: str, value: float) -> str:
    if name.endswith("accuracy"):
        return f"{value:.1%}"
    return f"{value:.2e}" if name == "learning_rate" else f"{value:.4g}"
