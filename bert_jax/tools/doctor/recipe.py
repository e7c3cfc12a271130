"""Whether learning rate, warm-up, batch and length of a run are near what is known to work."""

from collections.abc import Iterator

from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.tools.doctor import known
from bert_jax.tools.doctor.finding import Finding, note, ok, problem, warning
from bert_jax.tools.doctor.trial import Trial

# Beyond the range by this factor a rate is far away, and by the second one nobody has seen it work.
_FAR, _TOO_FAR = 2.0, 10.0
# A run of fewer updates is a try: warm-up and length are not what matters.
_FEW_STEPS = 20
# Epochs over a corpus: BERT 40; ELECTRA and RoBERTa similar. Above the second, text is memorized.
_MANY_EPOCHS = 200


def check(config: RunConfig, trial: Trial) -> Iterator[Finding]:
    """Yields findings about a run.

    Args:
      config: of the run.
      trial: has its steps and its data.
    """
    yield from check_rate(config)
    yield from check_warmup(config, trial)
    yield from check_batch(config, trial)
    yield from check_length(config, trial)
    yield from check_rhythm(config, trial)
    if not config.has_corpus:
        yield from check_small_set(config, trial)


def kind(config: RunConfig) -> str:
    """Returns which limits of known.py apply: those of `pretraining` or of `finetuning`."""
    return "pretraining" if config.has_corpus else "finetuning"


def known_rates(config: RunConfig) -> tuple[str, known.Range | None]:
    """Returns what kind of training a run is, in words, and the rates that are known for it."""
    if config.optimizer.frozen_layers == -1:
        what, rows = "a head on a frozen encoder", known.FROZEN
    elif config.has_corpus:
        what = "continued pre-training" if config.init_from else "pre-training"
        rows = known.CONTINUED if config.init_from else known.PRETRAINING
    else:
        what = "fine-tuning" if config.init_from else "training from random parameters"
        rows = known.FINETUNING if config.init_from else known.FROM_SCRATCH
    hidden, place = config.model.hidden_size, config.get("model.norm_place", "post")
    name, batch = config.optimizer.name, config.global_batch_size
    return f"{what} at hidden size {hidden}", known.rates(rows, name, hidden, place, batch)


def check_rate(config: RunConfig) -> Iterator[Finding]:
    """Compares the learning rate, or that of each phase, with those that are known to work."""
    phases = config.make_phases(0)
    for phase, (peak, _) in zip(phases, config.optimizer.phase_schedules, strict=False):
        part = config.replace(
            {"optimizer.learning_rate": peak, "global_batch_size": phase.batch_size}
        )
        field = f"The peak of {peak:g} of the phase of {phase.sequence_length} tokens"
        yield from _check_rate(part, field, "Change it in config.optimizer.phase_schedules.")
    if not config.optimizer.phase_schedules:
        yield from _check_rate(
            config, f"config.optimizer.learning_rate={config.optimizer.learning_rate:g}"
        )


def _check_rate(config: RunConfig, field: str, fix: str = "") -> Iterator[Finding]:
    rate, name = config.optimizer.learning_rate, config.optimizer.name
    named = f"{field} with {name}"
    if rate == 0:
        yield problem(f"{named}: nothing is learned.", "Set a rate above 0.")
        return
    what, found = known_rates(config)
    if found is None:
        yield note(f"{named}: no rate of this optimizer is known for {what}.")
        return
    known_to_work = f"known to work for {what} is {_span(found)} ({found.sources})"
    place = config.get("model.norm_place", "post")
    if place == "pre" or config.has_corpus:
        known_to_work = known_to_work.replace(" (", f", norm_place={place} (", 1)
    fix = fix or f"--config.optimizer.learning_rate={_nearest(rate, found):g}"
    if rate > found.highest * _TOO_FAR:
        yield problem(
            f"{named} is {rate / found.highest:.0f} times too high: {known_to_work}.", fix
        )
    elif rate > found.highest * _FAR:
        yield warning(f"{named} is high: {known_to_work}.", fix)
    elif rate < found.lowest / _FAR:
        yield warning(f"{named} is low: {known_to_work}; the run would learn slowly.", fix)
    else:
        yield ok(f"{named}; {known_to_work}.")


def _span(found: known.Range) -> str:
    if found.lowest == found.highest:
        return f"{found.lowest:.3g}"
    return f"{found.lowest:.3g} to {found.highest:.3g}"


def _nearest(rate: float, found: known.Range) -> float:
    return float(f"{min(max(rate, found.lowest), found.highest):.2g}")


def check_warmup(config: RunConfig, trial: Trial) -> Iterator[Finding]:
    """Compares the warm-up with the length of the run."""
    if config.optimizer.phase_schedules:
        return  # its values were chosen for each phase
    steps, first = trial.run.steps, trial.run.phases[0]
    warmup = trial.steps_of("optimizer.warmup", first)
    share, family = warmup / steps, known.FAMILIES.get(config.optimizer.name)
    least, most = known.WARMUPS[kind(config)]
    usual = known.WARMUP_SOURCES[kind(config)]
    named = f"config.optimizer.warmup={config.optimizer.warmup!r}: {warmup:,} of {steps:,} updates"
    fix = "--config.optimizer.warmup=10%"
    if steps < _FEW_STEPS:
        yield note(f"{named}; a run this short is a try.")
    elif share >= 1:
        yield problem(f"{named}: the learning rate never reaches its peak; usual is {usual}.", fix)
    elif share > most:
        yield warning(f"{named} ({share:.0%}) is long; usual is {usual}.", fix)
    elif share < least and family == "adam" and not config.init_from:
        yield warning(
            f"{named}: Adam's first updates are its largest, and a warm-up keeps them small; usual"
            f" is {usual}.",
            fix,
        )
    else:
        yield ok(f"{named} ({share:.1%}); usual is {usual}.")


def check_batch(config: RunConfig, trial: Trial) -> Iterator[Finding]:
    """Compares the batches of all phases with those that are known to work."""
    fewest, most, source = known.BATCHES[kind(config)]
    sizes = sorted({phase.batch_size for phase in trial.run.phases})
    named = f"Batches of {', '.join(f'{size:,}' for size in sizes)} sequences"
    is_lamb = known.FAMILIES.get(config.optimizer.name) == "lamb"
    if sizes[-1] > most and not is_lamb:
        fix = f"--config.global_batch_size={most}"
        if config.has_corpus:
            fix += ", or --config.optimizer.name=lamb with its rate"
        yield warning(f"{named} are large; known to work are {source}.", fix)
    elif sizes[0] < fewest:
        fix = f"--config.global_batch_size={fewest}"
        if config.has_corpus:
            fix += f" (with --config.microbatch_size={sizes[0]} where memory is short)"
        yield warning(f"{named} are small, their gradient is noisy; known are {source}.", fix)
    else:
        yield ok(f"{named}; known to work are {source}.")
    if config.has_corpus and (short := [n for n in trial.rows if n < sizes[-1]]):
        yield warning(
            f"An epoch has {short[0]:,} sequences, fewer than a batch: a sequence is in it several"
            " times.",
            "Give more text, or a smaller --config.global_batch_size.",
        )


def check_length(config: RunConfig, trial: Trial) -> Iterator[Finding]:
    """Yields how many epochs the run takes."""
    phases = trial.run.phases
    updates = [phase.last_step - phase.first_step for phase in phases]
    epochs = sum(
        n * phase.batch_size / rows
        for n, phase, rows in zip(updates, phases, trial.rows, strict=True)
    )
    named = f"{trial.run.steps:,} updates are {epochs:.3g} epochs of the training data"
    if isinstance(config, PretrainingConfig):
        repeats = config.data.dupe_factor if config.data.segments == "pairs" else 1
        if repeats > 1:
            named += f", in which each document is {repeats} times (data.dupe_factor)"
        epochs *= repeats
        if epochs > _MANY_EPOCHS:
            fix = f"More text, or fewer steps: --config.epochs={_MANY_EPOCHS / 4 / repeats:g}"
            yield warning(f"{named}: the model will know them by heart; BERT had 40.", fix)
        elif epochs < 1:
            yield note(f"{named}: a part of the text is not read.")
        else:
            yield ok(f"{named}; BERT had 40 of its text.")
        return
    least, most = known.EPOCHS
    if epochs > most:
        yield warning(f"{named}; known to work are {least:g} to {most:g}.", "--config.epochs=4")
    elif epochs < least:
        yield note(f"{named}; BERT's are 2 to 4.", "--config.epochs=3")
    else:
        yield ok(f"{named}; BERT's are 2 to 4, up to {most:g} on small sets.")


def check_rhythm(config: RunConfig, trial: Trial) -> Iterator[Finding]:
    """Yields findings about evaluations and checkpoints."""
    evaluations = sum(map(trial.evaluations, trial.run.phases))
    checkpoints = trial.checkpoints()
    longest = max(
        trial.steps_of("checkpoint.every", phase) or trial.run.steps for phase in trial.run.phases
    )
    if config.checkpoint.use == "best" and not evaluations:
        yield problem(
            "config.checkpoint.use='best', but the run never evaluates.",
            "Hold out data (config.data.validation_share), or --config.checkpoint.use=newest",
        )
    if longest >= trial.run.steps > 1000:
        yield warning(
            f"config.checkpoint.every={config.checkpoint.every!r} is the whole run of"
            f" {trial.run.steps:,} updates: if it is stopped, all is lost but what a signal saves.",
            "--config.checkpoint.every=5%",
        )
    else:
        yield ok(f"{evaluations:,} evaluations and {checkpoints:,} checkpoints.")


def check_small_set(config: RunConfig, trial: Trial) -> Iterator[Finding]:
    """Small sets need bias correction (Mosbach et al. 2021, section 5)."""
    examples = len(trial.run.training_rows(trial.run.phases[0]).examples)  # pyright: ignore[reportAttributeAccessIssue]
    if examples < known.FEW_EXAMPLES and config.optimizer.name == "bert_adam":
        yield note(
            f"{examples:,} examples and Adam without bias correction (bert_adam): some seeds learn"
            " nothing; below some 10,000 examples bias correction and more epochs help (Mosbach et"
            " al. 2021, section 5).",
            "--config.optimizer.name=adamw --config.optimizer.schedule=linear, and several seeds:"
            " --config.seeds=3",
        )
