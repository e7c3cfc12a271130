"""From a configuration to a Run: prepares or reads data, computes phases, opens rows."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jax.sharding import Mesh

from bert_jax.config import store
from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.phases import Phase
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import (
    TRAIN,
    VALIDATION,
    general_text,
    held_out_split,
    prepare_all,
)
from bert_jax.data.labelled.batching import (
    GENERAL_LENGTHS,
    bucket_lengths,
    choose_lengths,
)
from bert_jax.data.labelled.labelled_rows import LabelledRows, source_sha256
from bert_jax.devices import processes
from bert_jax.files.buckets import local, refresh
from bert_jax.files.errors import UserError
from bert_jax.models import reads_new_words
from bert_jax.optim.make import check_names
from bert_jax.tasks.auxiliary import LossFunction
from bert_jax.tasks.supervised import Labelled
from bert_jax.tasks.task import CorpusTask
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import check_vocabulary
from bert_jax.training import own_batches
from bert_jax.training.checkpoints import has_checkpoints
from bert_jax.training.own_batches import MakeBatch, OwnRows
from bert_jax.training.run import Run, make_checked_mesh
from bert_jax.training.suites import check_suites
from bert_jax.training.teacher import open_teacher
from bert_jax.training.workdir import load_workdir_tokenizer, read_labels

# Maximum number of bucket lengths; compiling for one takes as long as a few epochs of a small file.
_MAX_LENGTHS = 4


def open_run(
    config: RunConfig,
    workdir: str,
    to_train: bool = True,
    mesh: Mesh | None = None,
    losses: Mapping[str, LossFunction] | None = None,
    log: Callable[[str], None] = lambda line: None,
    batches: MakeBatch | None = None,
) -> Run:
    """Prepares missing data and opens everything. All processes call it.

    Args:
      config: the run's configuration.
      workdir: folder of the run.
      to_train: whether the run will be trained; otherwise labelled training files may be missing.
      mesh: the devices; None: all devices, as the configuration arranges them.
      losses: further losses by name, see `tasks.auxiliary`.
      log: receives lines of progress while data are prepared.
      batches: the batches to train on instead of a corpus, see `own_batches`.

    Raises:
      UserError: for a mesh, a batch size, an optimizer, a suite, a task, a model, data or a teacher
        that cannot be used.
    """
    if to_train:  # otherwise a user's own schedule may be absent
        check_names(config.optimizer)  # invalid settings are reported before long work
        check_suites(config)
    task = config.task
    mesh = mesh or make_checked_mesh(config)
    if batches or config.get("data.source") == own_batches.SOURCE:
        run = _open_batches(config, workdir, mesh, batches)
    elif isinstance(config, PretrainingConfig):
        assert isinstance(task, CorpusTask)
        run = _open_corpus(config, workdir, task, mesh, log)
    else:
        assert isinstance(config, FinetuningConfig) and isinstance(task, Labelled)
        run = _open_labelled(config, workdir, task, to_train, mesh)
    if losses:
        run = dataclasses.replace(run, losses=losses)
    if to_train and config.distillation.teacher:
        run = dataclasses.replace(run, teacher=open_teacher(run))
    _ = run.add_fields  # the encoder may refuse the tokenizer
    run.task_at(run.phases[0])  # and the task
    return run


def _open_corpus(
    config: PretrainingConfig,
    workdir: str,
    task: CorpusTask,
    mesh: Mesh,
    log: Callable[[str], None],
) -> Run:
    folder = config.data_dir(workdir)
    if processes.is_main():
        pathlib.Path(workdir).mkdir(parents=True, exist_ok=True)
        prepare_all(config.data, folder, log)
    processes.barrier("data")
    refresh(folder)  # process 0 has written it, perhaps on another machine
    manifest = Manifest.load(folder)
    tokenizer = manifest.tokenizer()

    general = general_text(config.data, manifest)
    training = tuple(
        _training_rows(config, manifest, general, phase) for phase in config.make_phases(0)
    )
    task.check_rows(training[0])
    num_rows = tuple(rows.rows_per_epoch for rows in training)
    phases = config.make_phases(config.total_steps(num_rows))
    training = tuple(_continued(phases, training))
    held_out = held_out_split(config.data, manifest)
    evaluated = [held_out] if held_out else []
    evaluated += [(general, VALIDATION)] if general else []
    return Run(
        config=config,
        workdir=workdir,
        mesh=mesh,
        tokenizer=tokenizer,
        vocabulary_path=manifest.vocabulary_path,
        phases=phases,
        task=task,
        training=training,
        evaluation=tuple(
            tuple(CorpusRows(*split, rows.sequence_length) for split in evaluated)
            for rows in training
        ),
        fingerprint=training[0].fingerprint,
    )


def _open_batches(config: RunConfig, workdir: str, mesh: Mesh, batches: MakeBatch | None) -> Run:
    task = config.task
    if not isinstance(config, PretrainingConfig) or task.READS_STREAMS:
        raise UserError(
            f"task.name={task.name!r} does not train on batches=...: give its examples to"
            " bert_jax.finetune, or its text as config.data.source."
        )
    if batches is None:
        raise UserError(
            f"{workdir} was trained on batches of a function, which is not stored: resume it with"
            " bert_jax.train(config, workdir, batches=FUNCTION). It has no held-out text."
        )
    if not os.path.exists(vocabulary := config.data.vocab):
        raise UserError(
            f"config.data.vocab={vocabulary}: batches=... need the vocabulary that made their ids,"
            " vocab.txt or another file; there is no text to train one on."
        )
    if config.eval.suites:
        raise UserError("config.eval.suites: batches=... have no evaluations; use evaluate_suite.")
    if config.epochs:
        raise UserError("config.epochs: batches=... have no epochs; set config.steps.")
    tokenizer = load_tokenizer(vocabulary, config.data.lowercase, reads_new_words(config.model))
    check_vocabulary(tokenizer, config.model.vocab_size, vocabulary)
    phases = config.make_phases(config.total_steps(()))
    rows = tuple(OwnRows(batches, phase, config.model.vocab_size) for phase in phases)
    rows[0].check_fields(bool(getattr(config.model, "next_sentence", False)))
    return Run(
        config=config,
        workdir=workdir,
        mesh=mesh,
        tokenizer=tokenizer,
        vocabulary_path=vocabulary,
        phases=phases,
        task=task,
        training=rows,
        evaluation=((),) * len(phases),
        fingerprint=rows[0].fingerprint,
    )


def _training_rows(
    config: PretrainingConfig, manifest: Manifest, general: Manifest | None, phase: Phase
) -> CorpusRows:
    """Returns the rows that a phase trains on; with `data.replay`, general text is among them."""
    length, size, replay = phase.sequence_length, phase.batch_size, None
    if (share := config.data.replay) and general:
        number = round(share * size)
        if not 0 < number < size:
            raise UserError(
                f"config.data.replay={share} is {number} of the {size} rows of a batch: choose a"
                f" share from {1 / size:.2g} to {1 - 1 / size:.2g}."
            )
        replay = CorpusRows(general, TRAIN, length, number, config.seed)
    return CorpusRows(manifest, TRAIN, length, size, config.seed, replay)


def _continued(phases: Sequence[Phase], training: Sequence[CorpusRows]) -> Iterator[CorpusRows]:
    """Yields the rows of each phase, from where earlier phases of its sequence length end."""
    for phase, rows in zip(phases, training, strict=True):
        yield rows.after(
            [
                (earlier.last_step - earlier.first_step, read)
                for earlier, read in zip(phases, training, strict=True)
                if earlier.last_step <= phase.data_step
                and earlier.sequence_length == phase.sequence_length
            ]
        )


def _open_labelled(
    config: FinetuningConfig, workdir: str, task: Labelled, to_train: bool, mesh: Mesh
) -> Run:
    (phase,) = config.make_phases(1)
    if not config.data.eval:
        raise UserError("config.data.eval is missing: the file to evaluate on.")
    sources = {"eval": config.data.eval, **_more_sources(config.data.more_eval)}
    lengths = config.data.bucket_lengths or _lengths_of_run(workdir)
    training, grows = (), reads_new_words(config.model)
    if to_train:
        if not (vocabulary := config.data.vocab):
            raise UserError(
                "config.init_from is missing: the pre-trained model to start from. (Or name a"
                " vocabulary with config.data.vocab, to start from random parameters.)"
            )
        tokenizer = load_tokenizer(vocabulary, config.data.lowercase, grows)
        check_vocabulary(tokenizer, config.model.vocab_size, vocabulary)
        if not config.data.train:
            raise UserError("config.data.train is missing: the file to train on.")
        examples, counts = _read(task, config.data.train)
        task = dataclasses.replace(task, labels=task.find_labels(examples))
        if config.get("task.class_weights") == "auto":
            config, task = _with_class_weights(config, task, str(task.balanced_weights(examples)))
        rows = _rows("train", config.data.train, examples, counts, task, tokenizer)
        number = 1 if task.COMPARES_EXAMPLES else _MAX_LENGTHS
        lengths = lengths or choose_lengths(rows.rows.lengths, number)
        config = config.replace({"data.bucket_lengths": lengths})  # for config.json
        rows = rows.padded_to(bucket_lengths(lengths, phase.sequence_length))
        if (pack := config.data.max_examples_per_row) > 1:
            _check_packing(config, task)
        how = (config.data.batch_by == "tokens", pack, config.get("task.windows_per_epoch", 0))
        training = (rows.for_training(phase.batch_size, config.seed, *how),)
        steps = config.total_steps((training[0].rows_per_epoch,))
    else:
        vocabulary, steps = "", 1
        tokenizer = load_workdir_tokenizer(workdir, config)
        task = dataclasses.replace(task, labels=read_labels(workdir))
        if config.get("task.class_weights") == "auto":
            weights = store.load(workdir)["task.class_weights"]
            config, task = _with_class_weights(config, task, weights)
    pad_lengths = bucket_lengths(lengths or GENERAL_LENGTHS, phase.sequence_length)
    evaluation = tuple(
        _rows(name, source, *_read(own, source), own, tokenizer).padded_to(pad_lengths)
        for name, source in sources.items()
        for own in (task.for_evaluation(local(source)),)
    )
    parts = [*(rows.fingerprint for rows in training), tokenizer.fingerprint, *task.labels]
    return Run(
        config=config,
        workdir=workdir,
        mesh=mesh,
        tokenizer=tokenizer,
        vocabulary_path=vocabulary,
        phases=config.make_phases(steps),
        task=task,
        training=training,
        evaluation=(evaluation,),
        fingerprint=hashlib.sha256(json.dumps(parts).encode()).hexdigest(),
    )


def _with_class_weights(
    config: FinetuningConfig, task: Labelled, weights: str
) -> tuple[FinetuningConfig, Labelled]:
    """Returns both with weights instead of "auto", for config.json and the loss."""
    config = config.replace({"task.class_weights": weights})
    return config, dataclasses.replace(task, class_weights=weights)


def _lengths_of_run(workdir: str) -> tuple[int, ...]:
    """Returns the lengths of a run to resume or evaluate; () if there is none."""
    if not has_checkpoints(workdir):
        return ()
    try:
        return store.load(workdir).get("data.bucket_lengths", ())
    except UserError:  # the file is corrupt; the checkpoint has the configuration too
        return ()


def _check_packing(config: FinetuningConfig, task: Labelled) -> None:
    is_transformer = isinstance(config.model, TransformerConfig)
    if not (task.can_pack and is_transformer):
        what = "head or these losses" if is_transformer else "encoder"
        raise UserError(
            f"config.data.max_examples_per_row={config.data.max_examples_per_row}: this {what}"
            " would mix the examples of a row:"
            " set config.data.max_examples_per_row=1."
        )


def _more_sources(entries: Sequence[str]) -> dict[str, str]:
    """Returns the files of ("NAME=FILE", ...) by name.

    Raises:
      UserError: for another form, or a name that is taken.
    """
    sources = {}
    for entry in entries:
        name, _, source = entry.partition("=")
        if not source or name in ("train", "eval", *sources):
            raise UserError(
                f"config.data.more_eval: {entry!r} is not NAME=FILE with a name of its own."
            )
        sources[name] = source
    return sources


def _read(task: Labelled, source: str) -> tuple[list[Any], Counter]:
    counts = Counter()
    return list(task.read(local(source), counts, labelled=True)), counts


def _rows(
    name: str,
    source: str,
    examples: list[Any],
    counts: Counter,
    task: Labelled,
    tokenizer: Tokenizer,
) -> LabelledRows:
    rows = task.encode(examples, tokenizer, counts)
    kept = {name: count for name, count in counts.items() if count}
    sha256 = source_sha256(local(source), examples)
    return LabelledRows(name, source, sha256, examples, rows, kept, ())
