"""The teacher of a run: its weights, and whether it can teach the run's model."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Mapping

import jax
import numpy as np

from bert_jax.config.distillation import DistillationConfig
from bert_jax.config.encoder_fields import EncoderConfig, TransformerConfig
from bert_jax.config.run import RunConfig
from bert_jax.devices.trees import flatten
from bert_jax.exchange.loaded import LoadedModel
from bert_jax.files.errors import UserError
from bert_jax.models import reads_new_words
from bert_jax.tasks.distillation import EncoderTask, Teacher
from bert_jax.tasks.supervised import Labelled
from bert_jax.tasks.task import Task
from bert_jax.training.run import Run, make_run_task
from bert_jax.training.state import init_params
from bert_jax.training.workdir import open_model

_ADVICE = (
    "choose another teacher, or compare layers only, with config.distillation.weight=0 and"
    " hidden_weight or relation_weight."
)


def open_teacher(run: Run) -> Teacher:
    """Reads the teacher of a run.

    Args:
      run: the run, without a teacher; its configuration names one.

    Raises:
      UserError: there is no model, or it cannot teach the run's: it has another vocabulary, another
        task, other labels or fewer positions, it lacks parameters, or layers that are to be
        compared do not exist.
    """
    distillation = run.config.distillation
    source = open_model(distillation.teacher)
    trained = make_run_task(source.config)
    if trained.labels is not None:
        trained = dataclasses.replace(trained, labels=source.labels)
    misfits = _misfits(run, source)
    if distillation.weight:
        misfits = itertools.chain(misfits, _misfits_of_predictions(run, source.config, trained))
    for misfit in misfits:
        raise UserError(f"config.distillation.teacher: {source.source} {misfit}")
    task: Task = EncoderTask(model=(model := _model(run.config, source.model)))
    if distillation.weight:
        task = trained.bind(model, source.tokenizer)
    expected = flatten(jax.eval_shape(lambda: init_params(task, jax.random.key(0))))
    known = source.trained_params
    if missing := sorted({path.split("/")[0] for path in expected.keys() - known.keys()}):
        raise UserError(
            f"config.distillation.teacher: {source.source} has no trained {', '.join(missing)}:"
            f" {_ADVICE}"
        )
    params = {path: np.asarray(known[path], np.float32) for path in sorted(expected)}
    return Teacher(task, _decide(distillation, run.model, model), params, _sha256(params))


def _misfits(run: Run, source: LoadedModel) -> Iterator[str]:
    """Yields what keeps an encoder from teaching the run's, and how to fix it."""
    model, words, ours = source.model, source.model.vocab_size, run.model.vocab_size
    if source.tokenizer.fingerprint != run.tokenizer.fingerprint or words != ours:
        yield (
            f"has another vocabulary ({words:,} tokens) than the run ({ours:,} tokens), whose ids"
            " would mean other words: train the student with the vocabulary of the teacher"
            " (config.data.vocab)."
        )
    if reads_new_words(model) or source.new_rows:
        yield "has no trained embeddings of some of these tokens: choose another teacher."
    for name in {phase.task for phase in run.phases} - {""}:
        yield f"teaches no phase of {name!r}: leave that task out of config.phases."
    if run.task_at(run.phases[0]).couples_examples:
        yield f"teaches no task whose losses relate examples, as {run.config.task!r} does."
    longest = max(phase.sequence_length for phase in run.phases)
    if longest > model.max_position_embeddings:
        yield (
            f"has {model.max_position_embeddings} positions, and rows have {longest} tokens:"
            " shorten them, or choose another teacher."
        )
    if run.config.distillation.reads_layers and not isinstance(model, TransformerConfig):
        yield (
            f"is no Transformer, but {model.name!r}: set config.distillation.hidden_weight and"
            " relation_weight to 0."
        )


def _misfits_of_predictions(run: Run, theirs: RunConfig, task: Task) -> Iterator[str]:
    """Yields what keeps the predictions of a teacher from being compared, and how to fix it.

    Args:
      run: the run.
      theirs: the teacher's configuration.
      task: the teacher's, with its labels.
    """
    config = run.config
    if theirs.task != config.task:
        yield f"was trained for the task {theirs.task!r}, not {config.task!r}: {_ADVICE}"
    if type(run.task).distilled_losses is Task.distilled_losses:
        yield f"has predictions of the task {config.task!r}, which are not compared: {_ADVICE}"
    if theirs.model.has_copy_head:
        yield f"has a copy head, whose copies have no logits: {_ADVICE}"
    if config.has_corpus and config.model.next_sentence and not theirs.model.next_sentence:
        yield f"predicts no next sentences, which config.model.next_sentence asks for: {_ADVICE}"
    if isinstance(task, Labelled) and isinstance(run.task, Labelled):
        for name in ("problem_type", "both_orders", "subwords"):
            value, expected = getattr(task.head, name), getattr(run.task.head, name)
            if value != expected:
                yield f"has config.head.{name}={value!r}, and the run {expected!r}: {_ADVICE}"
        if task.head.has_crf or run.task.head.has_crf:
            yield f"and the run cannot be compared if one of them has a CRF: {_ADVICE}"
        if task.labels != run.task.labels:
            names = [", ".join(labels) or "no names" for labels in (task.labels, run.task.labels)]
            yield f"has the labels {names[0]}, and the run {names[1]}: {_ADVICE}"


def _model(config: RunConfig, model: EncoderConfig) -> EncoderConfig:
    """Returns the teacher's encoder as the run applies it: with its numerics, without dropout."""
    student, values = config.model, {"dtype": config.dtype, "dropout_rate": 0.0}
    if isinstance(model, TransformerConfig):
        values |= {"attention_dropout_rate": 0.0, "remat": False}
        values["attention"] = getattr(student, "attention", "einsum")
        values["last_layer_predicted_only"] = getattr(student, "last_layer_predicted_only", False)
    return dataclasses.replace(model, **values)


def _decide(
    config: DistillationConfig, student: EncoderConfig, teacher: EncoderConfig
) -> DistillationConfig:
    """Returns the configuration with the layers and heads that it leaves to the models.

    Raises:
      UserError: they do not exist.
    """
    layers = student.num_layers, teacher.num_layers
    if config.hidden_weight:
        pairs = config.layer_map
        if not pairs:
            if layers[1] % layers[0]:
                raise UserError(
                    f"config.distillation.layer_map=() takes layers of the teacher at equal"
                    f" distances, and its {layers[1]} layers are no multiple of the student's"
                    f" {layers[0]}: name pairs of layers, such as ((0, 0), ({layers[0]},"
                    f" {layers[1]}))."
                )
            pairs = tuple((i, i * layers[1] // layers[0]) for i in range(layers[0] + 1))
        for pair in pairs:
            if pair[0] > layers[0] or pair[1] > layers[1]:
                raise UserError(
                    f"config.distillation.layer_map: there is no pair of layers {pair}: the student"
                    f" has {layers[0]} layers, the teacher {layers[1]}."
                )
        config = dataclasses.replace(config, layer_map=pairs)
    if config.relation_weight:
        layer = config.relation_layer or layers[1]
        if layer > layers[1]:
            raise UserError(
                f"config.distillation.relation_layer={layer} is above the {layers[1]} layers of the"
                " teacher."
            )
        assert isinstance(teacher, TransformerConfig)
        heads = config.relation_heads or teacher.num_heads
        for size in (student.hidden_size, teacher.hidden_size):
            if size % heads:
                raise UserError(
                    f"{heads} relation heads do not divide the hidden sizes of student and teacher,"
                    f" {student.hidden_size} and {teacher.hidden_size}: set"
                    " config.distillation.relation_heads to a number that does."
                )
        config = dataclasses.replace(config, relation_layer=layer, relation_heads=heads)
    return config


def _sha256(params: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for path, array in params.items():
        digest.update(f"{path} {array.shape} {array.dtype}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
