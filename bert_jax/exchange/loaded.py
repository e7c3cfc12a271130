"""A model in memory, with everything that describes it: what is opened, and what is exported."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.config.run import RunConfig
from bert_jax.devices.trees import flatten
from bert_jax.files.errors import UserError
from bert_jax.formats.foreign import ForeignCheckpoint
from bert_jax.formats.sentence_transformers import SentenceVectors
from bert_jax.formats.weight_table import Arrays, ImportReport
from bert_jax.models import complete_batch, make_encoder
from bert_jax.models.bidirectional_lm import BidirectionalLanguageModel
from bert_jax.models.causal_lm import CausalLMModel
from bert_jax.models.heads import PreTrainingModel
from bert_jax.models.model import EncoderConfig, parameter_shapes
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
      tokenizer: has the vocabulary.
      vocabulary: the vocabulary file.
      labels: class names, sorted by class number; () if there are none.
      sentence_vectors: how the vectors of texts are made, if the source says it.
      step: training step of the checkpoint; 0 for another program's.
      missing: paths of the parameters that the source lacks or that were drawn at random because
        an imported checkpoint lacked them.
      new_rows: "path[first row:]" -> tokens, of embedding tables whose last rows are random.
      meta: JSON values that the parameters were saved with, their configuration among them.
      checkpoint: the other program's checkpoint; None for a workdir.
      report: use of the tensors of `checkpoint`; None for a workdir.
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


def portable_encoder(config: RunConfig) -> EncoderConfig:
    """Returns the encoder in float32, with an attention that lowers on all platforms."""
    portable = {
        "attention": "einsum",
        "remat": False,
        "last_layer_predicted_only": False,
    }
    values = {f"model.{name}": portable[name] for name in portable}
    return config.replace({"dtype": "float32", **values}).model


def language_model(model: EncoderConfig, next_sentence: bool) -> nn.Module:
    """Returns the encoder's module with the heads of its pre-training."""
    if model.has_directions:
        return BidirectionalLanguageModel(model)
    if model.lm_head == "tied" and not model.has_copy_head:
        return CausalLMModel(model)
    return PreTrainingModel(model, next_sentence)


def example_batch(model: EncoderConfig) -> dict[str, jax.Array]:
    """Returns a batch of one row that `language_model(model, ...)` accepts, for initialization."""
    ids = jnp.zeros((1, 8), jnp.int32)
    batch = {"input_ids": ids, "masked_lm_positions": ids[:, :1]}
    return complete_batch(batch | ({"reverse_ids": ids} if model.has_directions else {}))


def encoder_shapes(model: EncoderConfig) -> Shapes:
    """Returns parameter path -> shape and dtype of an encoder without a pooler."""
    shapes = flatten(parameter_shapes(make_encoder(model), example_batch(model)))
    return {f"{model.name}/{path}": leaf for path, leaf in shapes.items()}


def pretraining_shapes(model: EncoderConfig, next_sentence: bool) -> Shapes:
    """Returns parameter path -> shape and dtype of an encoder with the heads of pre-training."""
    module = language_model(model, next_sentence)
    return flatten(parameter_shapes(module, example_batch(model)))


def words_param(encoder: str) -> str:
    """Returns the path of the word embedding table."""
    return f"{encoder}/embeddings/word_embeddings/embedding"


def vocabulary_params(encoder: str) -> tuple[str, ...]:
    """Returns the paths of the parameters that have a row for each entry of the vocabulary."""
    return (words_param(encoder), "masked_lm/bias")
