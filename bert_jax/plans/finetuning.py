"""From a file and a model to the configuration of a run, with the reason for each choice."""

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_jax.config import experiments
from bert_jax.config.editing import set_fields, written
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.phases import LENGTHS, without_given
from bert_jax.config.run import RunConfig
from bert_jax.config.store import import_modules
from bert_jax.data import init_from
from bert_jax.data.in_memory import naming_arguments, to_file
from bert_jax.data.labelled.detection import TASKS, detect
from bert_jax.data.labelled.forms.label_kinds import PROBLEM_TYPES, find_faults, find_number_faults
from bert_jax.data.labelled.forms.table import Detection
from bert_jax.data.labelled.split import (
    EVALUATE,
    TRAIN,
    find_strata,
    held_out,
    labels_of,
    small_strata,
    write_split,
)
from bert_jax.devices import processes
from bert_jax.files.atomic import write_bytes
from bert_jax.files.errors import UserError
from bert_jax.formats import format_of, open_checkpoint
from bert_jax.formats.hub import local_model
from bert_jax.formats.sentence_transformers import POOLINGS, read_sentence_vectors
from bert_jax.plans import recipe
from bert_jax.tasks import find_task
from bert_jax.tasks.class_loss import LOSS_FIELDS
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.training.resume import check_workdir
from bert_jax.training.workdir import open_model

# Share of the training file that is held out if there is no file to evaluate on.
HELD_OUT = 0.1
# A maximum length in tokens.
_FITS_ANY_MODEL = 8
# Examples that are tokenized to choose the maximum length.
_MAX_MEASURED = 2000
# Fields for rare classes: a user who sets one decides how to treat them.
_OF_CLASSES = {f"task.{name}" for name in (*LOSS_FIELDS, "thresholds", "calibration")}
# Folder of the workdir with the two parts of the training file.
_SPLIT = "split"


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run that is ready to train.

    Attributes:
      config: its configuration.
      lines: what was detected and chosen, for the user.
      files: files in the workdir that the run reads: path -> content.
    """

    config: RunConfig
    lines: tuple[str, ...]
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def begin(self, workdir: str, log: Callable[[str], None]) -> Iterator[None]:
        """Locks the workdir until the block ends, and writes the files.

        Args:
          workdir: folder of the run.
          log: see `processes.lock`.

        Raises:
          UserError: the folder is in use, or holds something else; nothing in it has changed then.
        """
        with processes.lock(workdir, log):
            check_workdir(self.config, workdir, self.files)
            for path, content in self.files.items() if processes.is_main() else ():
                os.makedirs(os.path.dirname(path), exist_ok=True)
                write_bytes(path, content)
            processes.barrier("files of the plan")
            yield


def plan_finetuning(
    model: str,
    train: Any,
    evaluate: Any,
    task: str,
    workdir: str,
    given: Mapping[str, Any],
) -> Plan:
    """Plans the fine-tuning of a model on labelled examples.

    The task and the columns follow from the file, the recipe from the encoder and the number of
    examples (bert_jax.plans.recipe). Without a file to evaluate on, a part of the training file is
    held out, and both parts are files of the plan, as data in memory are. Writes nothing.

    Args:
      model: folder of a workdir, or of another program's model.
      train: file to train on, or data in memory (`data.in_memory.to_file`).
      evaluate: file to evaluate on, or data in memory; "": a part of `train`.
      task: one of `detection.TASKS`, or of TASKS; "": inferred from the file.
      workdir: folder of the new run.
      given: values or texts of fields that the user sets, by dotted name; they are kept.

    Raises:
      UserError: the file fits none of the tasks, or the model or a field cannot be used.
    """
    with tempfile.TemporaryDirectory() as folder:
        parts = os.path.join(folder, _SPLIT)
        with naming_arguments(parts):
            train = to_file(train, parts, TRAIN)
            evaluate = to_file(evaluate, parts, EVALUATE)
            config, lines = _plan(model, train, evaluate, task, workdir, given, folder)
        return make_plan(config, lines, folder, workdir)


def _plan(
    model: str,
    train: str,
    evaluate: str,
    task: str,
    workdir: str,
    given: Mapping[str, Any],
    folder: str,
) -> tuple[RunConfig, list[str]]:
    """Returns the configuration and the lines of a plan, whose files are written to `folder`."""
    if task and task not in TASKS:
        config = FinetuningConfig().to_config_dict()
        set_fields(config, {"imports": given.get("imports", ())})
        import_modules(config.imports)
        own = find_task(task)
        found = Detection(task, f"{own.__module__}.{own.__name__}")
        config = own.default_config().to_config_dict()
    else:
        found = detect(train, given, task)
        config = experiments.load("classification" if found.task in PROBLEM_TYPES else found.task)
    usual_length, by_file = config.max_length, written(config)
    config.update_from_flattened_dict({"init_from": model, "data.train": train})
    chosen = {name: value for name, value in found.fields.items() if name not in given}
    config.update_from_flattened_dict({"data.eval": evaluate or train} | chosen)
    config.max_length = _FITS_ANY_MODEL  # until the model is known
    config.data.vocab = own_vocabulary(model, folder)
    set_fields(config, given)
    if config.epochs == 0 and not {*LENGTHS} & {*given} - {"epochs"}:
        raise UserError("epochs=0 trains nothing: give a number above 0, or config.steps.")
    planned = {"init_from", "data.train", "data.eval", *chosen}
    planned |= {"data.vocab"} if config.data.vocab else set()
    resolved = init_from.resolve(config.to_dict(), given, workdir, "", by_file, planned)
    assert isinstance(resolved, FinetuningConfig)
    others = "|".join(name for name in TASKS if name != found.task)
    columns = [name for name in ("text_a", "text_b", "label") if hasattr(resolved.task, name)]
    named = f"; columns: --config.task.{', '.join(columns)}" if columns else ""
    lines = [f"task       {found.task}: {found.what}", f"           others: --task={others}{named}"]

    counts = Counter()
    examples = list(resolved.task.read(train, counts, labelled=True))
    are_numbers = resolved.task.reads_numbers
    for what in ("text", "label"):
        if count := counts[f"rows_without_{what}"]:
            lines.append(
                f"left out   {count:,} rows without {what} (--config.task.on_missing=skip)"
            )
    if count := counts["words_divided"]:
        lines.append(
            f"warning    {count:,} words are divided where an entity begins or ends, but not in new"
            " texts, so held-out scores are too high: put spaces around entities"
        )
    labels = [labels_of(example) for example in examples]
    numbers = [float(values[0]) for values in labels if are_numbers and values]
    faults = find_number_faults(numbers) if numbers else find_faults(labels)
    lines += (f"warning    {fault}" for fault in faults)
    if not evaluate:
        words = resolved.get("task.text_a", "")
        parts = held_out(examples, HELD_OUT, resolved.seed, are_numbers)
        paths = write_split(
            train,
            examples,
            parts,
            has_header=not words.isdecimal(),
            folder=os.path.join(folder, _SPLIT),
            words=words,
            tags=resolved.get("task.label", ""),
        )
        config.update_from_flattened_dict({"data.train": paths[0], "data.eval": paths[1]})
        small = set() if are_numbers else small_strata(find_strata(examples, False), HELD_OUT)
        few = f" but for {len(small)} classes of few examples, which have one share together"
        lines.append(
            f"held out   {sum(parts):,} of {len(parts):,} examples, stratified{few * bool(small)},"
            f" for the evaluation: {_moved(paths[1], folder, workdir)} (--evaluate=FILE names"
            " another)"
        )
        examples = [example for example, held in zip(examples, parts, strict=True) if not held]
    settings = _settings(resolved, examples, usual_length, given)
    settings = without_given(settings, given)
    config.update_from_flattened_dict({name: value for name, (value, _) in settings.items()})
    lines += recipe.describe(settings)
    planned |= settings.keys()
    resolved = init_from.resolve(config.to_dict(), given, workdir, "", by_file, planned)
    return resolved, lines


def _settings(
    config: FinetuningConfig, examples: Sequence[Any], usual: int, given: Collection[str]
) -> recipe.Recipe:
    """Returns the settings that follow from the model and the examples.

    `usual` is the task's usual maximum length, which the user may have set: a name of `given`.
    """
    encoder, task = config.model.to_dict(), config.task
    tokenizer = load_tokenizer(config.data.vocab, config.data.lowercase)
    lengths = [  # in tokens, special ones included
        max(1 + sum(1 + len(tokenizer.encode(text)) for text in texts) for texts in rows)
        for rows in map(task.row_texts, examples[:: max(1, len(examples) // _MAX_MEASURED)])
        if rows
    ]
    length_settings = recipe.length_recipe(encoder, usual, () if task.splits_texts else lengths)
    length = config.max_length if "max_length" in given else length_settings["max_length"][0]
    rows = round(len(examples) * task.mean_rows(lengths, length))
    is_small = encoder["hidden_size"] <= recipe.SMALL  # the weights of larger ones are not needed
    rms = recipe.kernel_rms(open_model(config.init_from).params) if is_small else 0.0
    row = "question" if task.HEAD == "span" else "pair" if task.reads_pairs else "text"
    settings = recipe.finetuning_recipe(encoder, rows, task.POOLS, bool(task.EMBEDS), rms, row)
    settings |= length_settings
    if config.get("task.problem_type") == "single" and not _OF_CLASSES & {*given}:
        settings |= recipe.skewed_recipe(Counter(label for e in examples for label in labels_of(e)))
    vectors = read_sentence_vectors(local_model(config.init_from))
    if "task.pool" in config.fields() and vectors.pooling in POOLINGS:
        settings["task.pool"] = (vectors.pooling, "modules.json of sentence-transformers")
        if task.POOLS:
            settings["task.pooler"] = (False, "sentence-transformers has none")
    return settings


def own_vocabulary(model: str, folder: str, prefix: str = "") -> str:
    """Writes the vocabulary of a model without a file that a run can copy; returns its path.

    "" if the model has a file of its own, which the run copies to the workdir. The name of the file
    begins with `prefix`.
    """
    path = local_model(model)
    vocabulary = None if format_of(path) == "workdir" else open_checkpoint(path).vocabulary
    if vocabulary is None or vocabulary.path:
        return ""
    path = os.path.join(folder, prefix + vocabulary.copy_name)
    write_bytes(path, vocabulary.content)
    return path


def make_plan(config: RunConfig, lines: Iterable[str], folder: str, workdir: str) -> Plan:
    """Returns a plan whose files, now in `folder`, are to be in the workdir.

    Raises:
      UserError: the workdir holds something else.
    """
    moved = {
        name: value.replace(folder, workdir)
        for name, value in config.fields().items()
        if isinstance(value, str) and folder in value
    }
    files = {
        _moved(os.fspath(path), folder, workdir): path.read_bytes()
        for path in sorted(pathlib.Path(folder).rglob("*"))
        if path.is_file()
    }
    plan = Plan(config.replace(moved), tuple(lines), files)
    check_workdir(plan.config, workdir, plan.files)
    return plan


def _moved(path: str, folder: str, workdir: str) -> str:
    return os.path.join(workdir, os.path.relpath(path, folder))


def default_workdir(train: str) -> str:
    """Returns the default folder of a run on a file."""
    return os.path.join("runs", os.path.basename(train).split(".")[0])
