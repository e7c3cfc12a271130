"""A trained model on the devices, with everything that it needs to read text."""

import copy
import dataclasses
import functools
import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.config.run import RunConfig
from bert_jax.data.batch import Batch
from bert_jax.devices import sharding
from bert_jax.devices.trees import described, diff_of_trees, flatten, unflatten
from bert_jax.exchange import with_new_parameters
from bert_jax.exchange.loaded import LoadedModel
from bert_jax.files.errors import UserError
from bert_jax.formats.hub import local_model
from bert_jax.inference import short_rows
from bert_jax.models import make_add_fields, reads_new_words
from bert_jax.models.model import AddFields, EncoderConfig
from bert_jax.tasks.task import Task
from bert_jax.text.tokenization import Tokenizer
from bert_jax.training.state import abstract_params, parameter_rules
from bert_jax.training.workdir import Change, open_model, read_labels

# (params, batch) -> arrays whose first dimension is the batch.
Forward = Callable[[Any, Mapping[str, jax.Array]], dict[str, jax.Array]]
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A compiled function of host batches, with the model's parameters.

    Attributes:
      jitted: the function, (params, complete batch) -> arrays.
      params: the parameters that it is called with.
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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """The chosen checkpoint of a workdir, or the weights of another program, on the devices.

    Attributes:
      config: configuration of the run.
      folder: folder from which the model was loaded.
      step: step of the checkpoint; 0 for weights of another program.
      task: the task that the model was trained for, with its labels.
      tokenizer: the run's. Special tokens that an import initialized at random have the id -1, and
        are therefore not put around texts: the model has never seen them.
      unseen_ids: ids of these tokens.
      params: all parameters, those of the heads included.
      untrained: paths of the parameters that an import initialized at random.
      mesh: all devices.
      add_fields: completes a batch on the host with what only this encoder reads.
      exact: whether results of a text are bitwise identical in any batch (`predictor`).
    """

    config: RunConfig
    folder: str
    step: int
    task: Task
    tokenizer: Tokenizer
    unseen_ids: frozenset[int]
    params: Any
    untrained: tuple[str, ...]
    mesh: Mesh
    add_fields: AddFields
    exact: bool = dataclasses.field(default=False, kw_only=True)

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
    def has_training_file(self) -> bool:
        """Whether the fine-tuning data is known; never for another program's model."""
        return bool(self.config.get("data.train", ""))

    def stored(self) -> LoadedModel:
        """Returns the contents of the folder, with the parameters of this model."""
        loaded = open_model(self.folder)
        return dataclasses.replace(loaded, params=flatten(jax.device_get(self.params)))

    @property
    def packs(self) -> bool:
        """Whether the encoder keeps several texts of a row apart."""
        return isinstance(self.encoder, TransformerConfig)

    @property
    def batch_shards(self) -> int:
        """The number of rows of a batch is a multiple of this."""
        return sharding.batch_shards(self.mesh)

    def compile(self, forward: Forward, encoder: EncoderConfig | None = None) -> Program:
        """Jits `forward` over all devices, for the model's parameters; outputs are replicated.

        Args:
          forward: function of the parameters and a batch with the fields of `add_fields`.
          encoder: encoder configuration that `forward` uses; None: the model's.
        """
        config, where = encoder or self.encoder, sharding.replicated(self.mesh)
        jitted = jax.jit(sharding.on_mesh(self.mesh, forward), out_shardings=where)
        rounds = getattr(config, "dtype", "float32") != "float32"
        program = Program(jitted, self._prepared(rounds, False), self._complete)
        (device, *others) = self.mesh.devices.flat
        # The other program for short rows exists on one device only, and differs in the last bits.
        if self.exact or device.platform != "cpu" or others or not short_rows.fits(config):
            return program
        short = jax.jit(short_rows.short(forward, self.encoder.name))
        return dataclasses.replace(
            program, short=lambda batch: short(self._prepared(rounds, True), self._complete(batch))
        )

    @functools.cached_property
    def _prepared(self) -> Callable[[bool, bool], Any]:
        """(rounded, transposed) -> the parameters as programs read them, made once.

        An encoder that computes in bfloat16 would otherwise round its kernels in each call, and a
        single text would take up to 1.5 times as long. `short_rows` reads them transposed.
        """
        name = self.encoder.name

        @functools.cache
        def make(rounded: bool, transposed: bool) -> Any:
            if transposed:
                params = make(rounded, False)
                return {**params, name: short_rows.transposed(params[name])}
            if not rounded:
                return self.params
            encoder = {
                path: x.astype(jnp.bfloat16) if path.endswith("/kernel") else x
                for path, x in flatten(self.params[name]).items()
            }
            return {**self.params, name: unflatten(encoder)}

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


def load_model(
    folder: str, change: Change = lambda config: config, exact: bool = False
) -> TrainedModel:
    """Loads the model in a folder of any kind.

    Args:
      folder: a workdir, or a folder of Hugging Face, google-research/bert, bilm-tf or OpenAI,
        which is read without writing a workdir; or a name of the Hugging Face hub.
      change: returns the configuration to use instead of the folder's.
      exact: see `TrainedModel`.

    Raises:
      UserError: there is no model, or it is corrupt or does not fit its configuration; the folder
        holds several runs; or several processes were started.
    """
    if jax.process_count() > 1:
        raise UserError("A trained model is used in one process: leave out --num_processes.")
    folder = local_model(folder)
    loaded = open_model(folder, change)
    if loaded.missing:
        loaded = with_new_parameters(loaded)
    config, fitted = loaded.config, loaded.meta.get("fitted", {})
    pieces, rows = len(loaded.tokenizer.pieces), config.model.padded_vocab_size
    if pieces > rows and not reads_new_words(config.model):
        raise UserError(
            f"The vocabulary in {folder} has {pieces} pieces, the model only {rows}: it is another"
            " model's vocabulary."
        )
    if config.get("task.thresholds", "default") != "default" and not fitted:
        _logger.warning(
            "%s: step %d was not evaluated, so its thresholds are not tuned.",
            *(folder, loaded.step),
        )
    task, labels = config.task.with_untrained(loaded.missing), loaded.labels
    if task.labels is not None and loaded.checkpoint is None:
        labels = read_labels(folder)  # a run's task gives no answers without them
    task = task.with_labels(labels)
    bound, mesh = task.bind(config.model, loaded.tokenizer), sharding.make_mesh()
    params = unflatten(loaded.params)
    # Parameters fit the encoder and the task that they were saved with. Asking the model for its
    # shapes would take longer than everything else here, since the model must be traced.
    kinds = [
        json.dumps([values.get(name) for name in ("model", "task")], sort_keys=True)
        for values in (loaded.meta.get("config", {}), config.to_dict())
    ]
    if task.labels is not None or kinds[0] != kinds[1]:
        like = described(abstract_params(bound, mesh))
        if lines := diff_of_trees(described(params), like):
            raise UserError(
                f"{loaded.source} does not fit the configuration (- in the checkpoint, + by the"
                f" configuration): {'; '.join(lines)}"
            )
    # A single device needs no shardings: with them, a user's step would compile again for its own
    # outputs.
    where = None
    if mesh.size > 1:
        where = sharding.parameter_shardings(mesh, parameter_rules(bound), params)
    # Tokens whose embeddings an import initialized at random.
    new = (token for row in loaded.new_rows.values() for token in row)
    unseen = frozenset(map(loaded.tokenizer.pieces.index, new))
    tokenizer = copy.copy(loaded.tokenizer) if unseen else loaded.tokenizer
    for name in ("cls_id", "sep_id", "end_id") if unseen else ():
        if getattr(tokenizer, name) in unseen:
            setattr(tokenizer, name, -1)
    return TrainedModel(
        config=config,
        folder=os.path.abspath(folder),
        step=loaded.step,
        task=task.with_fitted(fitted),
        tokenizer=tokenizer,
        unseen_ids=unseen,
        params=jax.device_put(params, where),
        untrained=loaded.missing,
        mesh=mesh,
        add_fields=make_add_fields(config.model, loaded.tokenizer),
        exact=exact,
    )
