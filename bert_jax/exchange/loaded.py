"""A model in memory, with everything that describes it: what is opened, and what is exported.

`open_foreign` makes one from a checkpoint of another program.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.config.encoders import make_encoder_config
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.data.labelled.tags import is_typed_tag
from bert_jax.devices.trees import flatten
from bert_jax.files.errors import UserError
from bert_jax.formats import FORMATS, open_checkpoint
from bert_jax.formats.foreign import Choices, ForeignCheckpoint
from bert_jax.formats.hub import local_model
from bert_jax.formats.names import NAMES
from bert_jax.formats.sentence_transformers import (
    SentenceVectors,
    read_max_length,
    read_sentence_vectors,
)
from bert_jax.formats.weight_table import Arrays, ImportReport, WeightTable, import_params
from bert_jax.models import complete_batch, make_encoder, reads_new_words
from bert_jax.models.heads import PreTrainingModel
from bert_jax.models.layers.dense import initializer
from bert_jax.models.model import EncoderConfig, parameter_shapes
from bert_jax.tasks import find_task
from bert_jax.tasks.bidirectional_lm.model import BidirectionalLanguageModel
from bert_jax.tasks.causal_lm.model import CausalLMModel
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import Vocabulary

Shapes = dict[str, jax.ShapeDtypeStruct]


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model and its parameters, from a workdir or from another program's checkpoint.

    Attributes:
      source: the folder, and where in it, such as "runs/x, step 1000".
      config: configuration of the run; for another program's checkpoint the task's defaults with
        the checkpoint's values.
      params: parameter path -> float32 array.
      tokenizer: the tokenizer, which has the vocabulary.
      vocabulary: the vocabulary file.
      labels: class names, sorted by class number; () if there are none.
      sentence_vectors: how the vectors of texts are made, if the source says so.
      step: training step of the checkpoint; 0 for another program's.
      missing: paths of the parameters that the source lacks or that were drawn at random because
        an imported checkpoint lacked them.
      new_rows: "path[first row:]" -> tokens, for embedding tables whose last rows are random.
      meta: JSON values that the parameters were saved with, including their configuration.
      checkpoint: the other program's checkpoint; None for a workdir.
      report: how the tensors of `checkpoint` were used; None for a workdir.
    """

    source: str
    config: RunConfig
    params: Arrays
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    labels: tuple[str, ...] = ()
    sentence_vectors: SentenceVectors = SentenceVectors()
    step: int = 0
    missing: tuple[str, ...] = ()
    new_rows: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    checkpoint: ForeignCheckpoint | None = None
    report: ImportReport | None = None

    @property
    def model(self) -> EncoderConfig:
        """The encoder's configuration."""
        return self.config.model

    @property
    def trained_params(self) -> Arrays:
        """The parameters that do not belong to `missing`."""
        return {path: x for path, x in self.params.items() if path not in self.missing}


def check_heads(loaded: LoadedModel) -> None:
    """Raises UserError for a model with a head that no other program can have."""
    if any(path.startswith("copy_head/") for path in loaded.params):
        raise UserError(
            f"{loaded.source} was trained with config.model.copy_head=True: other programs have no"
            " head that copies tokens, and its softmax alone predicts others. Train with"
            " config.model.copy_head=False, or export a model fine-tuned from it."
        )


def portable(config: RunConfig) -> RunConfig:
    """Returns a configuration in float32, with attention that lowers on all platforms."""
    values = {"attention": "einsum", "remat": False, "last_layer_predicted_only": False}
    return config.replace({"dtype": "float32"} | {f"model.{n}": x for n, x in values.items()})


def language_model(model: EncoderConfig) -> nn.Module:
    """Returns the encoder's module with the heads of its pre-training."""
    if model.has_directions:
        return BidirectionalLanguageModel(model)
    if model.lm_head == "tied" and not model.has_copy_head:
        return CausalLMModel(model)
    return PreTrainingModel(model, model.next_sentence)


def example_batch(model: EncoderConfig) -> dict[str, jax.Array]:
    """Returns a batch of one row that `language_model(model)` accepts, for initialization."""
    ids = jnp.zeros((1, 8), jnp.int32)
    batch = {"input_ids": ids, "masked_lm_positions": ids[:, :1]}
    return complete_batch(batch | ({"reverse_ids": ids} if model.has_directions else {}))


def encoder_shapes(model: EncoderConfig) -> Shapes:
    """Returns parameter path -> shape and dtype of an encoder without a pooler."""
    shapes = flatten(parameter_shapes(make_encoder(model), example_batch(model)))
    return {f"{model.name}/{path}": leaf for path, leaf in shapes.items()}


def pretraining_shapes(model: EncoderConfig) -> Shapes:
    """Returns parameter path -> shape and dtype of an encoder with the heads of pre-training."""
    return flatten(parameter_shapes(language_model(model), example_batch(model)))


def words_param(encoder: str) -> str:
    """Returns the path of the word embedding table."""
    return f"{encoder}/embeddings/word_embeddings/embedding"


def vocabulary_params(encoder: str) -> tuple[str, ...]:
    """Returns the paths of the parameters that have a row for each entry of the vocabulary."""
    return (words_param(encoder), "masked_lm/bias")


# ------------------------------------------------------------------ other programs


def open_foreign(path: str, format: str = "", choices: Choices | None = None) -> LoadedModel:
    """Reads a checkpoint of another program.

    Args:
      path: file or folder.
      format: a key of FORMATS; empty: the one that matches.
      choices: settings that take precedence over the checkpoint's.

    Returns:
      The model. Its `params` lack the heads that the checkpoint lacks, which `missing` names. The
      word embedding table ends in random rows for tokens that the checkpoint has no embeddings for.

    Raises:
      UserError: the checkpoint is incomplete or corrupt, is not a model of this package, its
        tensors do not match its configuration, or it has values that are not finite.
    """
    checkpoint = open_checkpoint(path, format, choices)
    config = _make_config(checkpoint)
    model = config.model
    params, report = _read(checkpoint, config)
    new_rows = {}
    if words := checkpoint.new_words:
        table = words_param(model.name)
        new = initializer(model)(_key(), (len(words), model.hidden_size), np.float32)
        new_rows = {f"{table}[{len(params[table])}:]": list(words)}
        params[table] = np.concatenate([params[table], np.asarray(new)])
    return LoadedModel(
        source=f"{checkpoint.path} ({FORMATS[checkpoint.format].TITLE})",
        config=config,
        params=params,
        tokenizer=checkpoint.tokenizer(reads_new_words(model)),
        vocabulary=checkpoint.vocabulary,
        labels=checkpoint.labels,
        sentence_vectors=read_sentence_vectors(local_model(path)),
        missing=report.missing,
        new_rows=new_rows,
        checkpoint=checkpoint,
        report=report,
    )


def with_new_parameters(loaded: LoadedModel) -> LoadedModel:
    """Returns the model with random parameters for those in `missing` that `params` lacks."""
    if not (absent := set(loaded.missing) - loaded.params.keys()):
        return loaded
    model = loaded.model
    module = language_model(model)

    def init(key: jax.Array) -> dict[str, jax.Array]:
        params = flatten(module.init(key, example_batch(model), deterministic=True)["params"])
        return {path: params[path] for path in sorted(absent)}  # the others are not computed

    params = loaded.params | jax.device_get(jax.jit(init)(_key()))
    return dataclasses.replace(loaded, params=params)


def as_stored(loaded: LoadedModel) -> LoadedModel:
    """Returns a foreign model with the parameters that its checkpoint has, without random ones."""
    params, config = loaded.trained_params, loaded.config
    if loaded.checkpoint and (new := len(loaded.checkpoint.new_words)):
        table = words_param(config.model.name)
        params[table] = params[table][:-new]
        config = config.replace({"model.vocab_size": config.model.vocab_size - new})
    return dataclasses.replace(loaded, config=config, params=params)


def _key() -> jax.Array:
    """Returns the key of the initial parameters of a run with seed 0, as `training.state` makes it.

    Every import of a checkpoint therefore has the same random parameters.
    """
    return jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), 0)


def _make_config(checkpoint: ForeignCheckpoint) -> RunConfig:
    """Returns the task's default configuration with the checkpoint's values."""
    task, labels = find_task(checkpoint.task), checkpoint.labels
    # A token classifier predicts entities unless a label has another form.
    is_tagger = task.HEAD == "classifier" and not task.POOLS
    variant = ("words",) if is_tagger and not all(map(is_typed_tag, labels)) else ()
    config = task.default_config(*variant)
    model = make_encoder_config(checkpoint.model)
    values = {
        **checkpoint.settings,
        "data.vocab": checkpoint.vocabulary.path,
        "data.lowercase": checkpoint.lowercase,
    }
    if "task.problem_type" in config.fields():
        values["task.problem_type"] = checkpoint.label_kind
        if checkpoint.label_kind == "regression":
            values["metrics"] = ("spearman", "pearson")
    longest = model.max_position_embeddings
    if isinstance(config, PretrainingConfig):
        if config.data.segments == "pairs" and not model.next_sentence:
            is_causal = task.READS_FORWARD
            values["data.segments"] = "running_text" if is_causal else "full_sentences"
        if longest < max(phase.sequence_length for phase in config.make_phases(0)):
            values["phases"] = ((longest, 1.0),)
    else:
        # Classifiers cut texts off where their own program does.
        own = read_max_length(checkpoint.path) or longest
        values["max_length"] = min(own if task.POOLS else config["max_length"], longest)
    return config.replace(values, model=model)


def _read(checkpoint: ForeignCheckpoint, config: RunConfig) -> tuple[Arrays, ImportReport]:
    """Returns the checkpoint's parameters, without those of missing heads, and the report."""
    model = config.model
    table = NAMES[model.name][checkpoint.format]
    expected = _expected_shapes(checkpoint, table, config)
    params, report = import_params(
        checkpoint.tensors, table, model.num_layers, expected, model.name, checkpoint.path
    )
    for tensor, paths in report.used.items():
        arrays = [params[path] for path in paths]
        size = sum(array.size for array in arrays)
        if count := size - sum(np.count_nonzero(np.isfinite(array)) for array in arrays):
            raise UserError(
                f"{checkpoint.path}: {tensor} has {count:,} NaN or infinite values (as float32) of"
                f" {size:,}: the file is corrupt, or the training diverged; get another one."
            )
    return params, report


def _expected_shapes(
    checkpoint: ForeignCheckpoint, table: WeightTable, config: RunConfig
) -> dict[str, tuple[int, ...]]:
    """Returns parameter path -> shape of the checkpoint's model, heads included."""
    model, task = config.model, find_task(checkpoint.task)
    shapes = {path: leaf.shape for path, leaf in pretraining_shapes(model).items()}
    if new := len(checkpoint.new_words):
        rows, features = shapes[words_param(model.name)]
        shapes[words_param(model.name)] = (rows - new, features)
    head, features = task.HEAD, config.get("task.features", 0)
    if not head and not features:
        return shapes
    shapes = {path: shape for path, shape in shapes.items() if path.startswith(f"{model.name}/")}
    if features:
        return shapes | {"projection/kernel": (model.hidden_size, features)}
    # Only the checkpoint knows the number of classes.
    bias = next(row.tensor for row in table.rows if row.path == f"{head}/bias")
    stored = next((n for n in checkpoint.tensors if table.current_name(n) == bias), None)
    if stored is None:
        raise UserError(
            f"{checkpoint.path} is a model for the task {checkpoint.task!r} and lacks {bias}: get"
            " another one."
        )
    (classes,) = checkpoint.tensors[stored].shape
    if task.POOLS and config["task.pooler"]:
        shapes[f"{model.name}/pooler/kernel"] = (model.hidden_size, model.hidden_size)
        if model.biases:
            shapes[f"{model.name}/pooler/bias"] = (model.hidden_size,)
    return shapes | {f"{head}/bias": (classes,), f"{head}/kernel": (model.hidden_size, classes)}
