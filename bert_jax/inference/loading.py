"""A trained model on the devices, with everything that it needs to read text."""

import copy
import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from bert_jax.config import store
from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.config.run import RunConfig
from bert_jax.data.batch import Batch
from bert_jax.devices import sharding
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.exchange.loaded import open_foreign, with_new_parameters
from bert_jax.files.errors import UserError
from bert_jax.formats import format_of
from bert_jax.formats.hub import local_model
from bert_jax.inference import short_rows
from bert_jax.models import make_add_fields, reads_new_words
from bert_jax.models.model import AddFields, EncoderConfig
from bert_jax.tasks.task import Task
from bert_jax.text.tokenization import Tokenizer
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.state import abstract_params
from bert_jax.training.workdir import (
    load_workdir_tokenizer,
    read_fitted,
    read_labels,
    untrained_params,
    untrained_rows,
)

# (params, batch) -> arrays whose first dimension is the batch.
Forward = Callable[[Any, Mapping[str, jax.Array]], dict[str, jax.Array]]
# The configuration in a folder -> the one to use.
Change = Callable[[RunConfig], RunConfig]
_logger = logging.getLogger(__name__)
_SPECIAL_IDS = ("cls_id", "sep_id", "end_id")


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A compiled function of host batches, with the model's parameters.

    Attributes:
      jitted: the function, (params, complete batch) -> arrays.
      params: the parameters that it gets.
      complete: adds the fields that only this encoder reads, and shards the batch over devices.
      short: the same function for batches of one short row; None: `jitted`.
    """

    jitted: Any
    params: Any
    complete: Callable[[Batch], Mapping[str, Any]]
    short: Callable[[Batch], dict[str, jax.Array]] | None = None

    def __call__(self, batch: Batch) -> dict[str, jax.Array]:
        if self.short and short_rows.is_short(batch):
            return self.short(batch)
        return self.jitted(self.params, self.complete(batch))

    def output_shapes(self, batch: Batch) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the shapes and dtypes of the outputs, without computing them."""
        return jax.eval_shape(self.jitted, self.params, self.complete(batch))


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedModel:
    """The chosen checkpoint of a workdir, or the weights of another program, on the devices.

    Attributes:
      config: configuration of the run.
      folder: folder from which the model was loaded.
      task: the task that the model was trained for, with its labels.
      tokenizer: the run's. Special tokens that an import initialized at random have the id -1, and
        are therefore not put around texts: the model has never seen them.
      unseen_ids: ids of these tokens.
      params: all parameters, those of the heads included.
      untrained: paths of the parameters that an import initialized at random.
      mesh: all devices.
      add_fields: completes a batch on the host with what only this encoder reads.
    """

    config: RunConfig
    folder: str
    task: Task
    tokenizer: Tokenizer
    unseen_ids: frozenset[int]
    params: Any
    untrained: tuple[str, ...]
    mesh: Mesh
    add_fields: AddFields

    @property
    def encoder(self) -> EncoderConfig:
        """Configuration of the encoder."""
        return self.config.model

    @property
    def has_pooler(self) -> bool:
        """Whether the model has a trained pooler of [CLS]."""
        reads_cls = self.task.POOLS and self.config.get("task.pool", "cls") == "cls"
        has_params = "pooler" in self.params[self.encoder.name]
        return reads_cls and self.config.model.next_sentence and has_params

    @property
    def packs(self) -> bool:
        """Whether the encoder keeps several texts of a row apart."""
        return isinstance(self.encoder, TransformerConfig)

    @property
    def batch_shards(self) -> int:
        """The number of rows of a batch is a multiple of it."""
        return sharding.batch_shards(self.mesh)

    def compile(self, forward: Forward, encoder: EncoderConfig | None = None) -> Program:
        """Jits `forward` over all devices, for the model's parameters; outputs are replicated.

        Args:
          forward: function of the parameters and a batch with the fields of `add_fields`.
          encoder: encoder configuration that `forward` uses; None: the model's.
        """
        config, where = encoder or self.encoder, sharding.replicated(self.mesh)
        jitted = jax.jit(sharding.on_mesh(self.mesh, forward), out_shardings=where)
        is_exact = getattr(config, "dtype", "float32") == "float32"
        program = Program(jitted, self.params if is_exact else self._rounded_params, self._complete)
        (device, *others) = self.mesh.devices.flat
        if device.platform != "cpu" or others or not short_rows.fits(config):
            return program
        short = jax.jit(short_rows.short(forward, self.encoder.name))
        return dataclasses.replace(
            program, short=lambda batch: short(self._transposed(is_exact), self._complete(batch))
        )

    @functools.cached_property
    def _transposed(self) -> Callable[[bool], Any]:
        """is_exact -> the parameters with the encoder's kernels transposed; see `short_rows`."""
        name = self.encoder.name

        @functools.cache  # made for the first short row
        def make(is_exact: bool) -> Any:
            params = self.params if is_exact else self._rounded_params
            return {**params, name: short_rows.transposed(params[name])}

        return make

    def _complete(self, batch: Batch) -> Mapping[str, Any]:
        """Returns the batch with the fields of `add_fields`, sharded if there are several devices.

        A single device gets host arrays: the call transfers them faster than `device_put`, which
        takes 0.4 ms longer for a single text.
        """
        batch = self.add_fields(batch)
        if self.mesh.size == 1:
            return batch
        return sharding.shard_batch(self.mesh, batch, len(batch["input_ids"]), 0)

    @functools.cached_property
    def _rounded_params(self) -> Any:
        """The parameters, with the encoder's kernels in bfloat16.

        An encoder that computes in bfloat16 would otherwise round them in each call, and a single
        text would take up to 1.5 times as long.
        """
        name = self.encoder.name
        encoder = {
            path: x.astype(jnp.bfloat16) if path.endswith("/kernel") else x
            for path, x in flatten(self.params[name]).items()
        }
        return {**self.params, name: unflatten(encoder)}


def load_model(folder: str, change: Change = lambda config: config) -> TrainedModel:
    """Loads the model in a folder, of whatever kind.

    Args:
      folder: a workdir, or a folder of Hugging Face, google-research/bert, bilm-tf or OpenAI,
        which is read without writing a workdir; or a name of the Hugging Face hub.
      change: returns the configuration to use instead of the folder's.

    Raises:
      UserError: there is no model, or it is corrupt; or the folder holds several runs.
    """
    folder = local_model(folder)
    if format_of(folder) != "workdir":
        return _load_foreign(folder, change)
    config = store.load(folder)
    store.check_one_run(config, folder)
    return load_workdir(change(config), folder)


def load_workdir(config: RunConfig, workdir: str) -> TrainedModel:
    """Loads the chosen checkpoint of a workdir; only its folder is needed.

    Args:
      config: configuration of the workdir.
      workdir: folder of a run, or of imported weights.

    Raises:
      UserError: there is no checkpoint or vocabulary, or it does not fit; or several processes were
        started.
    """
    _check_single_process()
    task = make_labelled_task(config, workdir)
    tokenizer = load_fitting_tokenizer(config, workdir)

    def restore(like: Any) -> tuple[Any, dict[str, Any]]:
        with open_chosen(workdir, config) as (checkpoints, step):
            params, fitted = checkpoints.restore_params(step, like), read_fitted(checkpoints, step)
            if config.get("task.thresholds", "default") != "default" and not fitted:
                _logger.warning(
                    "%s: step %d was not evaluated, so its thresholds are not tuned.",
                    *(workdir, step),
                )
            return params, fitted

    new_rows, untrained = untrained_rows(workdir), untrained_params(workdir)
    return _load(config, workdir, task, tokenizer, restore, untrained, new_rows)


def _load_foreign(folder: str, change: Change) -> TrainedModel:
    _check_single_process()
    loaded = with_new_parameters(open_foreign(folder))
    config = change(loaded.config)
    task = config.task.with_untrained(loaded.missing).with_labels(loaded.labels)

    def restore(like: Any) -> tuple[Any, dict[str, Any]]:
        params = {
            path: jax.device_put(loaded.params[path], leaf.sharding)
            for path, leaf in flatten(like).items()
        }
        return unflatten(params), {}

    return _load(config, folder, task, loaded.tokenizer, restore, loaded.missing, loaded.new_rows)


def _load(
    config: RunConfig,
    folder: str,
    task: Task,
    tokenizer: Tokenizer,
    restore: Callable[[Any], tuple[Any, dict[str, Any]]],
    untrained: Sequence[str],
    new_rows: Mapping[str, Sequence[str]],
) -> TrainedModel:
    """Returns a model on all devices; `restore` takes its abstract parameters."""
    mesh = sharding.make_mesh()
    bound = task.bind(config.model, tokenizer)
    params, fitted = restore(abstract_params(bound, mesh))
    # Of tokens whose embeddings an import drew at random.
    ids = (tokenizer.pieces.index(token) for row in new_rows.values() for token in row)
    unseen = frozenset(ids)
    return TrainedModel(
        config=config,
        folder=os.path.abspath(folder),
        task=task.with_fitted(fitted),
        tokenizer=_without(tokenizer, unseen),
        unseen_ids=unseen,
        params=params,
        untrained=tuple(untrained),
        mesh=mesh,
        add_fields=make_add_fields(config.model, tokenizer),
    )


def _check_single_process() -> None:
    if jax.process_count() > 1:
        raise UserError("A trained model is used in one process: leave out --num_processes.")


def make_labelled_task(config: RunConfig, workdir: str) -> Task:
    """Returns the task of a workdir, with its labels.

    Raises:
      UserError: the workdir has no labels, and the task needs them.
    """
    task = config.task.with_untrained(untrained_params(workdir))
    return task if task.labels is None else dataclasses.replace(task, labels=read_labels(workdir))


def load_fitting_tokenizer(config: RunConfig, workdir: str) -> Tokenizer:
    """Returns the tokenizer of a workdir.

    Raises:
      UserError: there is none, or it has more pieces than the model.
    """
    encoder = config.model
    can_grow = reads_new_words(encoder)
    tokenizer = load_workdir_tokenizer(workdir, config.data.lowercase, can_grow)
    if can_grow:
        return tokenizer
    if (pieces := len(tokenizer.pieces)) > encoder.padded_vocab_size:
        raise UserError(
            f"The vocabulary in {workdir} has {pieces} pieces, the model only"
            f" {encoder.padded_vocab_size}: it is another model's vocabulary."
        )
    return tokenizer


def _without(tokenizer: Tokenizer, unseen_ids: frozenset[int]) -> Tokenizer:
    """Returns the tokenizer without those of its special tokens, which get the id -1."""
    if not unseen_ids:
        return tokenizer
    tokenizer = copy.copy(tokenizer)
    for name in _SPECIAL_IDS:
        if getattr(tokenizer, name) in unseen_ids:
            setattr(tokenizer, name, -1)
    return tokenizer
