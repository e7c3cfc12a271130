"""A trained model as a folder for onnxruntime and other programs that run ONNX.

The folder has `model.onnx`, in float32, for batches of any size and length; the tokenizer files of
transformers and the vocabulary; and `model.json`, which names inputs, outputs and labels.

    inputs     int64[batch, seq] input_ids, attention_mask (1: token, 0: padding, at the end of a
               row), and token_type_ids, if the model has token types. For multiple choice and for
               pairs in both orders they are [batch, choices, seq]
    outputs    "logits" of the task, see `OUTPUTS`; or, for "vectors", last_hidden_state
               [batch, seq, hidden] and sentence_embedding [batch, hidden]
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import onnx

from bert_jax.config.encoder_fields import EncoderConfig, TransformerConfig
from bert_jax.devices.trees import unflatten
from bert_jax.exchange.huggingface import write_tokenizer
from bert_jax.exchange.loaded import LoadedModel, check_heads, portable
from bert_jax.exchange.onnx.graph import Sizes
from bert_jax.exchange.onnx.trace import make_graph
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import MULTI, SPLADE, SentenceVectors
from bert_jax.models import make_encoder
from bert_jax.models.heads import PreTrainingModel, PreTrainingOutputs, WordScores
from bert_jax.models.pooling import pool
from bert_jax.models.reading import HeadConfig
from bert_jax.models.task_heads import (
    ClassificationOutputs,
    MultipleChoiceModel,
    SpanOutputs,
    TaggingOutputs,
)
from bert_jax.tasks.causal_lm.model import CausalLMModel
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.tagging import Tagging

FILE = "model.onnx"
# What is written: the answers of the task's head, or vectors of tokens and texts.
OUTPUTS = ("task", "vectors")
# Vectors of sentence-transformers that are not written, by pooling.
_NOT_EXPORTED = {SPLADE: "sparse vectors", MULTI: "a vector of each token"}
_Arrays = Mapping[str, jax.Array]


def write(
    loaded: LoadedModel,
    folder: pathlib.Path,
    output: str = "",
    vectors: SentenceVectors | None = None,
) -> dict[str, Any]:
    """Writes the files of a model into an empty folder; returns the content of model.json.

    Args:
      loaded: the model.
      folder: an empty folder.
      output: "task" or "vectors"; "": the former, if the model has a trained head.
      vectors: how sentence vectors are pooled and scaled; None: as the model says, else the mean.

    Raises:
      UserError: the model has a part that is not translated, or lacks the head.
    """
    if output and output not in OUTPUTS:
        raise UserError(f"output={output!r} must be one of {', '.join(OUTPUTS)}, or empty.")
    if not isinstance(loaded.model, TransformerConfig):
        raise UserError(
            f"{loaded.source} is a model of the kind {loaded.model.name!r}, which reads the"
            " characters of words: only Transformers are exported to ONNX."
        )
    model: Any = portable(loaded.config).model
    row = loaded.config.task
    head = row.HEAD or "masked_lm"
    is_headless = row.EMBEDS or any(path.startswith(f"{head}/") for path in loaded.missing)
    if output == "task" and is_headless:
        raise UserError(
            f"{loaded.source} has no trained head for output='task': fine-tune it first, or export"
            " output='vectors'."
        )
    output = output or ("vectors" if is_headless else "task")
    if output == "vectors" and loaded.sentence_vectors.unknown and not vectors:
        raise UserError(loaded.sentence_vectors.describe())
    vectors = vectors or loaded.sentence_vectors
    if output == "vectors" and (kind := _NOT_EXPORTED.get(vectors.pooling)):
        raise UserError(f"{loaded.source} gives {kind}: such vectors are not exported to ONNX.")
    vectors = dataclasses.replace(vectors, pooling=vectors.pooling or "mean")
    sizes: Sizes = ("batch", "seq")
    if output == "vectors":
        forward = _vectors(model, vectors)
    else:
        module, sizes = _module(loaded, model)
        forward = functools.partial(_answers, module, model.vocab_size)
    inputs = {name: sizes for name in _inputs(model)}
    limits = [f"seq <= {model.max_position_embeddings}"]
    graph = make_graph(forward, loaded.params, inputs, limits)
    onnx.save(graph, str(folder / FILE))
    reads_pairs = "token_type_ids" in inputs
    continues_text = output == "task" and row.READS_FORWARD
    write_tokenizer(loaded, folder, reads_pairs, frames_text=not continues_text)
    facts = {
        "task": loaded.config.task.name,
        "output": output,
        "inputs": {x.name: _shape(x) for x in graph.graph.input},
        "outputs": {x.name: _shape(x) for x in graph.graph.output},
        "longest_sequence": model.max_position_embeddings,
        "labels": list(loaded.labels) if output == "task" else [],
        "step": loaded.step,
    }
    if output == "vectors":
        facts["vectors"] = dataclasses.asdict(vectors)
    if _CRF[0] in loaded.params and output == "task":
        facts["note"] = "logits are the scores of single tags: decode them with `transitions`"
        facts |= {name: loaded.params[name].tolist() for name in _CRF}
    (folder / "model.json").write_text(json.dumps(facts, indent=1) + "\n")
    return facts


_CRF = ("transitions", "start_transitions", "end_transitions")


def _inputs(model: EncoderConfig) -> tuple[str, ...]:
    types = ["token_type_ids"] if model.reads_token_types else []
    return ("input_ids", "attention_mask", *types)


def _shape(info: onnx.ValueInfoProto) -> list[int | str]:
    return [size.dim_param or size.dim_value for size in info.type.tensor_type.shape.dim]


def make_batch(inputs: _Arrays) -> dict[str, jax.Array]:
    """Returns the batch of inputs with one example in each row, for encoders and all heads."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    positions = jax.lax.broadcasted_iota(jnp.int32, ids.shape, ids.ndim - 1)
    return {
        "input_ids": ids,
        "token_type_ids": inputs.get("token_type_ids", jnp.zeros_like(ids)),
        "example_ids": mask,
        "position_ids": positions,
        "cls_positions": jnp.zeros((*ids.shape[:-1], 1), jnp.int32),
        "masked_lm_positions": positions,  # scores of all tokens
        "word_positions": positions,
        "is_word": mask > 0,
    }


def _vectors(model: EncoderConfig, vectors: SentenceVectors) -> Callable[..., dict[str, jax.Array]]:
    encoder = make_encoder(model)

    def forward(params: _Arrays, inputs: _Arrays) -> dict[str, jax.Array]:
        batch = make_batch(inputs)
        variables = {"params": unflatten(params)[model.name]}
        encoded: Any = encoder.apply(variables, batch, deterministic=True)
        pooled = pool(vectors.pooling, encoded.hidden, batch)[:, 0]
        if vectors.normalize:
            lengths = jnp.sqrt((pooled**2).sum(-1, keepdims=True))
            pooled = pooled / jnp.maximum(lengths, 1e-12)
        return {"last_hidden_state": encoded.hidden, "sentence_embedding": pooled}

    return forward


def _answers(
    module: nn.Module, vocab_size: int, params: _Arrays, inputs: _Arrays
) -> dict[str, jax.Array]:
    """Returns the outputs of a task's model by name."""
    variables = {"params": unflatten(params)}
    outputs: Any = module.apply(variables, make_batch(inputs), deterministic=True)
    match outputs:
        case jax.Array():
            return {"outputs": outputs}
        case ClassificationOutputs() | TaggingOutputs():
            return {"logits": outputs.logits}
        case SpanOutputs():
            return {"start_logits": outputs.start_logits, "end_logits": outputs.end_logits}
        case WordScores():
            return {"logits": _words(outputs.logits(), vocab_size)}
        case PreTrainingOutputs(next_sentence_logits=pairs):
            named = {"logits": _words(outputs.masked_lm_logits, vocab_size)}
            return named if pairs is None else named | {"next_sentence_logits": pairs[:, 0]}
    raise UserError(f"A {type(outputs).__name__} is not exported to ONNX.")


def _module(loaded: LoadedModel, model: EncoderConfig) -> tuple[nn.Module, Sizes]:
    row = loaded.config.task
    if row.READS_FORWARD:
        return CausalLMModel(model), ("batch", "seq")
    if row.FILLS_MASKS:
        check_heads(loaded)
        has_pairs = any(path.startswith("next_sentence/") for path in loaded.trained_params)
        return PreTrainingModel(model, has_pairs), ("batch", "seq")
    task: Any = row.with_labels(loaded.labels)
    if isinstance(row, HeadConfig) and (row.has_bilstm or row.mix_layer_norm):
        field = "task.mix_layer_norm=True" if row.mix_layer_norm else f"a head {row.head!r}"
        raise UserError(
            f"{loaded.source} was trained with {field}, which is not exported to ONNX: train a"
            " linear head, or export output='vectors'."
        )
    if isinstance(task, Tagging):  # logits of all tokens, not of words
        task = dataclasses.replace(task, subwords="first")
    module = task.bind(model, loaded.tokenizer).make_model()
    if isinstance(module, MultipleChoiceModel):
        return module, ("batch", "choices", "seq")
    both_orders = isinstance(task, Classification) and task.both_orders
    return module, ("batch", 2, "seq") if both_orders else ("batch", "seq")


def _words(logits: jax.Array, vocab_size: int) -> jax.Array:
    return jax.lax.slice_in_dim(logits, 0, vocab_size, axis=-1)
