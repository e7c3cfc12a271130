"""The groups of a run's configuration, other than its encoder and its data."""

import dataclasses
import math
import re
from typing import Any

from bert_jax.config.group import Group, derived, setting
from bert_jax.config.phases import check_durations, parse_duration
from bert_jax.files.errors import UserError


def _check_patterns(name: str, patterns: tuple[Any, ...]) -> None:
    try:
        re.compile("|".join(patterns))
    except (re.error, TypeError) as error:
        raise UserError(f"{name}={patterns!r} are not regular expressions: {error}.") from None


def _check_phase_schedules(name: str, entries: tuple[Any, ...]) -> None:
    pairs = [entry for entry in entries if isinstance(entry, tuple) and len(entry) == 2]
    numbers = [number for pair in pairs for number in pair]
    if (
        len(pairs) < len(entries)
        or not all(isinstance(number, int | float) for number in numbers)
        or not all(peak > 0 and 0 <= warmup < 1 for peak, warmup in pairs)
    ):
        raise UserError(bad_phase_schedules(name, entries))


def bad_phase_schedules(name: str, entries: tuple[Any, ...]) -> str:
    """Returns the message about schedules that are malformed or not one for each phase."""
    return (
        f"{name}={entries!r} is not a pair of a learning rate and a fraction below 1 of warm-up for"
        " each of config.phases, such as ((6e-3, 0.28), (4e-3, 0.13)): correct it, or () for one"
        " schedule over the whole run."
    )


def _check_rates(name: str, entries: tuple[Any, ...]) -> None:
    pairs = [entry for entry in entries if isinstance(entry, tuple) and len(entry) == 2]
    if len(pairs) < len(entries) or not all(
        isinstance(pattern, str) and type(factor) in (int, float) and 0 <= factor < math.inf
        for pattern, factor in pairs
    ):
        raise UserError(
            f"{name}={entries!r} are not pairs of a regular expression and a factor of at least 0,"
            ' such as (("embedding", 0.5), ("scale$", 3.0)): correct it, or () for none.'
        )
    _check_patterns(name, tuple(pattern for pattern, _ in pairs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Group):
    """The optimizer and the learning rate."""

    # A row of bert_jax.optim.optimizers.OPTIMIZERS: bert_adam, adamw, gpt_adam, adagrad,
    # adafactor, lamb, muon.
    name: str = setting("bert_adam")
    # Peak of the schedule.
    learning_rate: float = setting(1e-4, minimum=0)
    # A row of bert_jax.optim.schedules.SCHEDULES: bert_linear, linear, trapezoid, constant,
    # cosine, root, gpt_linear, gpt_cosine.
    schedule: str = setting("bert_linear")
    # Duration in which the learning rate rises.
    warmup: str = setting("10000", check=parse_duration)
    # Schedule `trapezoid`: fraction of the run, at its end, in which the rate falls to 0.
    decay_fraction: float = setting(0.5, below=1)
    # The schedule restarts in each phase: (peak, fraction of the phase that is warm-up), ..., in
    # place of `learning_rate` and `warmup`; (): one schedule over the whole run.
    phase_schedules: tuple[tuple[float, float], ...] = setting((), check=_check_phase_schedules)
    # Factor of the parameters in the update (decoupled weight decay).
    weight_decay: float = setting(0.01, minimum=0)
    # Decay rate of the gradient average.
    beta1: float = setting(0.9, minimum=0, below=1)
    # Decay rate of the average squared gradient.
    beta2: float = setting(0.999, below=1)
    # Added to the root of the average squared gradient.
    epsilon: float = setting(1e-6)
    # Adagrad: initial value of the squared-gradient sums.
    initial_accumulator: float = setting(1.0)
    # Maximum global norm of the gradient; 0: no clipping.
    clip_norm: float = setting(1.0, minimum=0)
    # Parameters without weight decay: regular expressions searched in their paths.
    no_decay: tuple[str, ...] = setting(("layer_norm", "bias"), check=_check_patterns)
    # Factor of the learning rate from each layer to the layer below; 1: none.
    layer_decay: float = setting(1.0)
    # Factors of the learning rate, weight decay included: (regular expression searched in a
    # parameter's path, factor), ...; the first that matches decides; 0: not trained.
    rates: tuple[tuple[str, float], ...] = setting((), check=_check_rates)
    # Fraction of the run, at its end, after whose steps the parameters are averaged: evaluations
    # and checkpoints have the mean, which training does not use; 0: none.
    average_fraction: float = setting(0.0, minimum=0, below=1)
    # Freezes the embeddings and this many layers; 0: none.
    frozen_layers: int = setting(0, minimum=0, also=(-1, "all layers"))
    # Top-level name of the encoder's parameters.
    encoder: str = derived("bert")
    # Share of each phase's steps.
    phase_shares: tuple[float, ...] = derived(())


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig(Group):
    """The number of devices along each axis of the mesh."""

    # Data parallelism: parameters are replicated.
    data: int = setting(-1, minimum=1, also=(-1, "all remaining devices"), free=True)
    # Data parallelism with sharded parameters and optimizer state.
    fsdp: int = setting(1, minimum=1, also=(-1, "all remaining devices"), free=True)
    # Tensor parallelism: matrices are sharded.
    tensor: int = setting(1, minimum=1, also=(-1, "all remaining devices"), free=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogConfig(Group):
    """The logging of training metrics."""

    # Duration between two lines of metrics; "0": none.
    every: str = setting("100", check=parse_duration, free=True)


def _check_part(name: str, part: tuple[Any, ...]) -> None:
    numbers = [end for end in part if type(end) in (int, float)]
    if len(part) != 2 or len(numbers) != 2 or not 0 <= part[0] < part[1] <= 1:
        raise UserError(
            f"{name}={part!r} is not where a part begins and ends, such as (0.0, 0.5) for the first"
            " half."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig(Group):
    """The evaluation on held-out data."""

    # Duration between two evaluations; "0": none but the last.
    every: str = setting("10000", check=parse_duration, free=True)
    # Whether the initial parameters are evaluated too, as step 0.
    at_start: bool = setting(False, free=True)
    # Pre-training: batches to evaluate, evenly spaced in the held-out split; 0: all. (All labelled
    # examples are evaluated.)
    max_batches: int = setting(0, minimum=0, free=True)
    # Pre-training: which part of the held-out batches is evaluated, (begin, end) as fractions.
    # Choose settings on (0.0, 0.5), and report scores on (0.5, 1.0).
    part: tuple[float, float] = setting((0.0, 1.0), check=_check_part, free=True)
    # Sequences of an evaluation batch; 0: the training batch size.
    batch_size: int = setting(0, minimum=0, free=True)
    # Early stopping: evaluations without improvement; 0: train to the end.
    patience: int = setting(0, minimum=0, free=True)
    # Pre-training: suites of minimal pairs that evaluations score: blimp, zorro, files or folders.
    suites: tuple[str, ...] = setting((), free=True)
    # Pairs of each paradigm of a suite that evaluations score, evenly spaced; 0: all.
    pairs_per_paradigm: int = setting(20, minimum=0, free=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Group):
    """The checkpoints of a run."""

    # Duration between two checkpoints; "0": none but the last.
    every: str = setting("10000", check=parse_duration, free=True)
    # Durations after which an additional checkpoint is saved and never deleted: ("1e6 words",
    # "50%"). Those longer than the run are ignored.
    milestones: tuple[str, ...] = setting((), check=check_durations, free=True, added_later=True)
    # Number of newest checkpoints to keep.
    keep: int = setting(3, free=True)
    # Number of best checkpoints to keep in addition; with use=best at least 1.
    keep_best: int = setting(1, minimum=0, free=True)
    # Metric of the held-out split that selects the best: the lowest if its name has loss,
    # perplexity, bits_per, error or distance, otherwise the highest; empty: the first of
    # config.metrics.
    best_metric: str = setting("loss", free=True)
    # Checkpoint for evaluation, prediction and export. With `best`, an evaluation with the best
    # metric so far is saved in addition to `every`.
    use: str = setting("newest", choices=("newest", "best"), free=True)
    # Resume even if configuration or data differ from the checkpoint's.
    allow_changes: bool = setting(False, free=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationConfig(Group):
    """The distillation of a teacher into the run's model, the student."""

    # Folder of the teacher: a workdir, or another program's model, with the vocabulary of the run;
    # empty: none.
    teacher: str = setting("", is_path=True)
    # Weight of the divergence from the teacher's predictions (Hinton et al. 2015); the loss of the
    # labels, or of the masked tokens, has 1 - weight.
    weight: float = setting(0.5)
    # Divisor of the logits of both models; the divergence is multiplied by its square.
    temperature: float = setting(1.0)

    def check(self) -> None:
        if self.weight > 1:
            raise UserError(f"weight={self.weight} must be at most 1.")
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if not self.teacher and value != item.default:
                raise UserError(
                    f"{item.name}={value!r} has no effect without config.distillation.teacher: set"
                    f" that too, or {item.name}={item.default!r}."
                )
