"""The files of a workdir, and the model in it or in another program's folder."""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from bert_jax.config import store
from bert_jax.config.run import RunConfig
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.exchange import LoadedModel, open_foreign
from bert_jax.files.atomic import read_json, write_bytes, write_json
from bert_jax.files.errors import UserError
from bert_jax.formats import format_of
from bert_jax.formats.hub import local_model
from bert_jax.formats.sentence_transformers import read_sentence_vectors, write_sentence_vectors
from bert_jax.models import reads_new_words
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import find_vocabulary, load_tokenizer, read_vocabulary
from bert_jax.training.checkpoints import Checkpoints, open_chosen
from bert_jax.training.run import Run

# The labels of a run, in the order of their numbers.
LABELS = "labels.json"
# What an import writes beside the parameters.
CERTIFICATE = "certificate.json"
# The configuration in a folder -> the one to use.
Change = Callable[[RunConfig], RunConfig]


def open_model(folder: str, change: Change = lambda config: config) -> LoadedModel:
    """Reads the model in a folder, of whatever kind.

    Args:
      folder: a workdir, a folder or file of another program, or a name of the Hugging Face hub.
      change: returns the configuration to use instead of the folder's.

    Returns:
      The model; its `params` may lack heads that another program's checkpoint lacks.

    Raises:
      UserError: there is no model, or it is corrupt or incomplete; or the folder holds several
        runs.
    """
    folder = local_model(folder)
    if format_of(folder) == "workdir":
        return open_workdir(folder, change)
    loaded = open_foreign(folder)
    meta = {"config": loaded.config.to_dict()}
    return dataclasses.replace(loaded, config=change(loaded.config), meta=meta)


def open_workdir(
    workdir: str, change: Change = lambda config: config, step: int | None = None
) -> LoadedModel:
    """Reads a checkpoint and the files beside it.

    Args:
      workdir: folder of the run.
      change: returns the configuration to use instead of the run's.
      step: step of the checkpoint; None: the one that the run's configuration chooses.

    Raises:
      UserError: there is no configuration, no vocabulary or no complete checkpoint; or the folder
        holds several runs.
    """
    config = store.load(workdir)
    store.check_one_run(config, workdir)
    config = change(config)
    tokenizer = load_workdir_tokenizer(workdir, config)
    with open_chosen(workdir, config, step) as (checkpoints, step):
        params, meta = flatten(checkpoints.read_params(step)), checkpoints.read_meta(step)
    return LoadedModel(
        source=f"{workdir}, step {step}",
        config=config,
        params=params,
        tokenizer=tokenizer,
        vocabulary=read_vocabulary(find_vocabulary(workdir)),
        labels=read_labels(workdir) if os.path.isfile(os.path.join(workdir, LABELS)) else (),
        sentence_vectors=read_sentence_vectors(workdir),
        step=step,
        missing=untrained_params(workdir),
        new_rows=_imported_tensors(workdir).get("fresh_rows", {}),
        meta=meta,
    )


def milestones_of(workdir: str) -> dict[str, int]:
    """Returns the steps of a run's milestones so far (`config.checkpoint.milestones`), in order.

    Raises:
      UserError: there are none.
    """
    store.load(workdir)  # it is a run
    with contextlib.closing(Checkpoints(workdir, read_only=True)) as checkpoints:
        if found := checkpoints.milestones():
            return found
    raise UserError(
        f"{workdir} has no checkpoints that are milestones: train in another --workdir with for"
        " example --config.checkpoint.milestones=\"('10%', '50%')\"."
    )


def read_fitted(checkpoints: Checkpoints, step: int) -> dict[str, Any]:
    """Returns the thresholds and the temperature of a checkpoint, `Task.fitted_values`."""
    return checkpoints.read_meta(step).get("fitted", {})


def untrained_params(workdir: str) -> tuple[str, ...]:
    """Returns the paths of the parameters in an imported workdir that the import initialized."""
    return tuple(_imported_tensors(workdir).get("fresh", ()))


def write_workdir(loaded: LoadedModel, folder: str, workdir: str, certificate: Any) -> None:
    """Writes a workdir like that of a run before its first step.

    It can be evaluated and used to predict, and training can start from it (--config.init_from).

    Args:
      loaded: an imported model with all parameters (`exchange.with_new_parameters`).
      folder: an empty folder, which is filled.
      workdir: the final path of the folder.
      certificate: content of certificate.json.
    """
    config = loaded.config
    vocabulary = os.path.join(os.path.abspath(workdir), loaded.vocabulary.copy_name)
    config = config.replace({"data.vocab": vocabulary})
    store.save(config, workdir, folder)
    pathlib.Path(folder, loaded.vocabulary.copy_name).write_bytes(loaded.vocabulary.content)
    write_json(os.path.join(folder, CERTIFICATE), certificate)
    if config.task.labels is not None:
        write_labels(folder, () if config.task.reads_numbers else loaded.labels)
    size = config.model.hidden_size
    write_sentence_vectors(loaded.sentence_vectors, folder, size, is_workdir=True)
    meta = {"config": store.to_json(config, workdir), "source": certificate["source"]}
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        checkpoints.save_params(unflatten(loaded.params), meta)


def _imported_tensors(workdir: str) -> dict[str, Any]:
    """Returns how an import used tensors, from certificate.json; {} for a run that was trained."""
    certificate = pathlib.Path(workdir, CERTIFICATE)
    return json.loads(certificate.read_text())["tensors"] if certificate.is_file() else {}


def save_to_workdir(run: Run) -> None:
    """Writes to the workdir what predictions need in addition to the parameters."""
    store.save(run.config, run.workdir)
    vocabulary = read_vocabulary(run.vocabulary_path)
    write_bytes(os.path.join(run.workdir, vocabulary.copy_name), vocabulary.content)
    if run.task.labels is not None:
        write_labels(run.workdir, run.task.labels)
    if run.config.task.EMBEDS:
        task: Any = run.task
        write_sentence_vectors(task.sentence_vectors, run.workdir, run.model.hidden_size)


def load_workdir_tokenizer(workdir: str, config: RunConfig) -> Tokenizer:
    """Returns the tokenizer of a run, from the copy of the vocabulary in its folder.

    Raises:
      UserError: there is no vocabulary.
    """
    path, grows = find_vocabulary(workdir), reads_new_words(config.model)
    if not path:
        raise UserError(f"{workdir} holds no vocabulary (vocab.txt or vocab.model): train first.")
    return load_tokenizer(path, config.data.lowercase, grows)


def read_labels(workdir: str) -> tuple[str, ...]:
    """Returns the labels of a run.

    Raises:
      UserError: there are none.
    """
    path = pathlib.Path(workdir, LABELS)
    if not path.is_file():
        raise UserError(f"{workdir} has no {LABELS}: train first, with --mode=train.")
    return tuple(read_json(path))


def write_labels(workdir: str, labels: Sequence[str]) -> None:
    """Writes what `read_labels` reads."""
    write_json(os.path.join(workdir, LABELS), list(labels))
