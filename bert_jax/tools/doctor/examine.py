"""The checks of a run, in their order: each finding comes as soon as it is known."""

import tempfile
from collections.abc import Callable, Iterator

from bert_jax.config.phases import Phase
from bert_jax.config.run import FinetuningConfig, PretrainingConfig, RunConfig
from bert_jax.models import reads_new_words
from bert_jax.optim.make import check_names
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.tools.doctor import corpus, duration, labelled, labelled_files, origin, recipe, space
from bert_jax.tools.doctor.evaluated import Evaluated, measure_evaluation
from bert_jax.tools.doctor.finding import Finding, guarded, note
from bert_jax.tools.doctor.measured import Measured, Workbench, all_shapes
from bert_jax.tools.doctor.trial import (
    Trial,
    is_prepared,
    open_labelled,
    open_prepared,
    open_sample,
)
from bert_jax.training.run import (
    make_checked_mesh,
    make_task_data,
)

# (group, finding)
Grouped = tuple[str, Finding]


def examine(config: RunConfig, workdir: str, steps: int) -> Iterator[Grouped]:
    """Yields findings about a run, in groups: settings, data, recipe, updates, memory, disk,
    time.

    Args:
      config: of the run.
      workdir: its folder; empty: not decided. It is not changed.
      steps: updates to measure for each shape; 0: no time is estimated.
    """
    begun = origin.read_begun(workdir) if workdir else origin.Begun()
    settings = list(_settings(config, workdir, begun))
    yield from (("settings", finding) for finding in settings)
    if _has_problem(settings):
        yield "data", note("The data are not looked at: the problems above come first.")
        return
    with tempfile.TemporaryDirectory(prefix="bert_jax_doctor_") as folder:
        opened: list[Trial] = []
        if isinstance(config, PretrainingConfig):
            found = _corpus(config, workdir, folder, opened)
        else:
            assert isinstance(config, FinetuningConfig)
            found = _labelled(config, workdir, folder, opened)
        yield from _in("data", found)
        if not opened:
            yield "recipe", note("The recipe, memory and time need data that can be opened.")
            return
        (trial,) = opened
        yield from _in("recipe", origin.check_progress(begun, trial.run.steps))
        yield from _in("recipe", recipe.check(config, trial))
        yield from _measured(config, workdir, trial, steps, begun)


def _in(group: str, check: Iterator[Finding]) -> Iterator[Grouped]:
    for finding in guarded(check):
        yield group, finding


def _has_problem(findings: list[Finding]) -> bool:
    return any(finding.level == "problem" for finding in findings)


def _settings(config: RunConfig, workdir: str, begun: origin.Begun) -> Iterator[Finding]:
    """Yields problems of the settings, of the folder and of the weights to start from."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        lambda: _calls(config),
        lambda: origin.check_folder(config, workdir, begun),
    ]
    if not begun.step:
        checks.append(lambda: origin.check_weights(config))
    for check in checks:
        yield from guarded(check())


def _calls(config: RunConfig) -> Iterator[Finding]:
    """Makes what training makes of settings alone, which raises what it raises; yields nothing."""
    check_names(config.optimizer)
    make_task_data(config)
    make_checked_mesh(config)
    yield from ()


def _corpus(
    config: PretrainingConfig, workdir: str, folder: str, opened: list[Trial]
) -> Iterator[Finding]:
    if is_prepared(config, workdir):
        trial = open_prepared(config, workdir, folder)
    else:
        trial = open_sample(config, folder)
    opened.append(trial)
    yield from corpus.check(config, trial)


def _labelled(
    config: FinetuningConfig, workdir: str, folder: str, opened: list[Trial]
) -> Iterator[Finding]:
    data = make_task_data(config)
    files, problems = labelled_files.read(data, config)  # pyright: ignore[reportArgumentType]
    yield from problems
    is_classes = bool(data.labels) or any(
        labelled_files.class_names(example) for file in files for example in file.examples[:1]
    )
    is_classes = is_classes and config.head.problem_type != "regression"
    yield from labelled.check(files, is_classes)
    if config.data.vocab:
        grows = reads_new_words(config.model)
        tokenizer = load_tokenizer(config.data.vocab, config.data.lowercase, grows)
        yield from labelled.check_words(files, tokenizer)
    finds_classes = is_classes and not data.labels  # those of the training file
    if problems or (finds_classes and any(labelled.unknown_classes(files[0], f) for f in files)):
        return  # opening would raise the same
    trial = open_labelled(config, folder)
    yield from origin.check_labels(config, trial.run.data.labels or (), workdir)
    longest, most = config.max_length, config.model.max_position_embeddings
    for rows in (*trial.run.training, *trial.run.evaluation[0]):
        counts, number = rows.counts, len(rows.examples)  # pyright: ignore[reportAttributeAccessIssue]
        yield from labelled.check_lengths(counts, number, rows.name, longest, most)  # pyright: ignore[reportAttributeAccessIssue]
    opened.append(trial)


def _measured(
    config: RunConfig, workdir: str, trial: Trial, steps: int, begun: origin.Begun
) -> Iterator[Grouped]:
    """Yields findings about memory, disk and time."""
    found: list[Measured] = []
    evaluated: dict[Phase, Evaluated] = {}
    is_complete = begun.ended_early or begun.step >= trial.run.steps
    steps = 0 if is_complete else steps

    def measure() -> Iterator[Finding]:
        bench = Workbench(trial, steps)
        for measured in bench.measure(all_shapes(trial.run)):
            found.append(measured)
            yield duration.describe(measured)

    yield from _in("updates", measure())
    if not found:
        return

    def check_memory() -> Iterator[Finding]:
        for phase in filter(trial.evaluations, trial.run.phases):
            of_phase = [measured for measured in found if measured.shape.phase == phase]
            fits = all(measured.rows == measured.shape.rows for measured in of_phase)
            evaluated[phase] = measure_evaluation(trial, phase, bool(steps and fits))
        yield from space.check_memory(trial, found, list(evaluated.values()))

    yield from _in("memory", check_memory())
    checkpoint = max(measured.memory.checkpoint for measured in found)
    yield from _in("disk", space.check_disk(config, workdir, trial, checkpoint))
    if steps:
        yield from _in("time", duration.check_time(trial, found, begun.step, evaluated))
