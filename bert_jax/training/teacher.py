"""The teacher of a run: its weights, and whether it can teach the run's model."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping

import jax
import numpy as np

from bert_jax.config.encoder_fields import EncoderConfig, TransformerConfig
from bert_jax.config.run import RunConfig
from bert_jax.devices.trees import flatten
from bert_jax.exchange.loaded import LoadedModel
from bert_jax.files.errors import UserError
from bert_jax.models import reads_new_words
from bert_jax.tasks.distillation import Teacher
from bert_jax.tasks.task import Task
from bert_jax.training.run import Run
from bert_jax.training.state import init_params
from bert_jax.training.workdir import open_model


def open_teacher(run: Run) -> Teacher:
    """Reads the teacher of a run.

    Args:
      run: the run, without a teacher; its configuration names one.

    Raises:
      UserError: there is no model, or it cannot teach the run's: it has another vocabulary, another
        task, other labels or fewer positions, or it lacks parameters.
    """
    source = open_model(run.config.distillation.teacher)
    trained = source.config.task.with_labels(source.labels)
    for misfit in _misfits(run, source, trained):
        raise UserError(f"config.distillation.teacher: {source.source} {misfit}")
    task = trained.bind(_model(run.config, source.model), source.tokenizer)
    expected = flatten(jax.eval_shape(lambda: init_params(task, jax.random.key(0))))
    known = source.trained_params
    if missing := sorted({path.split("/")[0] for path in expected.keys() - known.keys()}):
        raise UserError(
            f"config.distillation.teacher: {source.source} has no trained {', '.join(missing)}:"
            " choose another teacher."
        )
    params = {path: np.asarray(known[path], np.float32) for path in sorted(expected)}
    return Teacher(task, params, _sha256(params))


def _misfits(run: Run, source: LoadedModel, task: Task) -> Iterator[str]:
    """Yields what keeps a model from teaching the run's, and how to fix it."""
    config, model, ours = run.config, source.model, run.model.vocab_size
    if source.tokenizer.fingerprint != run.tokenizer.fingerprint or model.vocab_size != ours:
        yield (
            f"has another vocabulary ({model.vocab_size:,} tokens) than the run ({ours:,} tokens),"
            " whose ids would mean other words: train the student with the vocabulary of the"
            " teacher (config.data.vocab)."
        )
    if reads_new_words(model) or source.new_rows:
        yield "has no trained embeddings of some of these tokens: choose another teacher."
    if config.get("causal_share"):
        yield "does not teach next tokens: set config.causal_share=0."
    for name in {phase.task for phase in run.phases} - {""}:
        yield f"teaches no phase of {name!r}: leave that task out of config.phases."
    longest = max(phase.sequence_length for phase in run.phases)
    if longest > model.max_position_embeddings:
        yield (
            f"has {model.max_position_embeddings} positions, and rows have {longest} tokens:"
            " shorten them, or choose another teacher."
        )
    if source.config.task.name != config.task.name:
        yield (
            f"was trained for the task {source.config.task.name!r}, not {config.task.name!r}:"
            " choose another teacher."
        )
    if type(run.task).distilled_losses is Task.distilled_losses:
        yield f"has predictions of the task {config.task.name!r}, which are not compared."
    if model.has_copy_head:
        yield "has a copy head, whose copies have no logits: choose another teacher."
    if config.has_corpus and config.model.next_sentence and not model.next_sentence:
        yield (
            "predicts no next sentences, which config.model.next_sentence asks for: choose another"
            " teacher."
        )
    if type(task) is type(run.task):
        yield from run.task.misfits(task)


def _model(config: RunConfig, model: EncoderConfig) -> EncoderConfig:
    """Returns the teacher's encoder as the run applies it: with its numerics, without dropout."""
    student, values = config.model, {"dtype": config.dtype, "dropout_rate": 0.0}
    if isinstance(model, TransformerConfig):
        values |= {"attention_dropout_rate": 0.0, "remat": False}
        values["attention"] = getattr(student, "attention", "einsum")
        values["last_layer_predicted_only"] = getattr(student, "last_layer_predicted_only", False)
    return dataclasses.replace(model, **values)


def _sha256(params: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for path, array in params.items():
        digest.update(f"{path} {array.shape} {array.dtype}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
