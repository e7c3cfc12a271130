"""A trained model as a program that runs with jax alone.

The folder has `model.stablehlo` (the forward pass in float32, serialized by `jax.export`, for
batches of any size and length, on CPU, CUDA and TPU), `weights.npz`, its first argument, the
vocabulary, and `model.json`, which names the inputs and the outputs.
"""

import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from bert_jax.devices.trees import unflatten
from bert_jax.exchange.loaded import LoadedModel, check_heads, portable
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.models.heads import PreTrainingModel
from bert_jax.tasks.causal_lm.model import CausalLMModel

PLATFORMS = ("cpu", "cuda", "tpu")
_INPUTS = dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), ("batch", "seq"))
_TOKENIZER = ("lowercase", "pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
_POSITIONS = {"masked_lm_positions": ("batch", "predictions")}
PortableModel = PreTrainingModel | CausalLMModel


def write(loaded: LoadedModel, folder: pathlib.Path) -> dict[str, Any]:
    """Writes the files of a model into an empty folder; returns the content of model.json."""
    row = loaded.config.task
    if not (row.FILLS_MASKS or row.READS_FORWARD):
        raise UserError(
            f"{loaded.source} was trained for {loaded.config.task.name!r}: to_stablehlo writes"
            " masked and causal language models; to_onnx writes fine-tuned models."
        )
    check_heads(loaded)
    row.check_trained(loaded.missing, loaded.source)
    encoder = portable(loaded.config).model
    has_pairs = any(path.startswith("next_sentence/") for path in loaded.trained_params)
    model: PortableModel = PreTrainingModel(encoder, has_pairs)
    if row.READS_FORWARD:
        model = CausalLMModel(encoder)
    program = make_program(model, loaded.params)
    (folder / "model.stablehlo").write_bytes(program.serialize())
    np.savez(folder / "weights.npz", **loaded.params)  # type: ignore[arg-type]
    (folder / loaded.vocabulary.copy_name).write_bytes(loaded.vocabulary.content)
    outputs = jax.tree.unflatten(program.out_tree, program.out_avals)
    description = {
        "inputs": {n: {"dtype": "int32", "shape": list(x)} for n, x in _inputs(model).items()},
        "outputs": {
            name: {
                "dtype": x.dtype.name,
                "shape": [n if type(n) is int else str(n) for n in x.shape],
            }
            for name, x in outputs.items()
        },
        "longest_sequence": model.model.max_position_embeddings,
        "vocabulary": {
            "file": loaded.vocabulary.copy_name,
            **{name: getattr(loaded.tokenizer, name) for name in _TOKENIZER},
        },
        "platforms": list(program.platforms),
        "jax": jax.__version__,
        "calling_convention_version": program.calling_convention_version,
        "step": loaded.step,
        "sha256": {path.name: file_sha256(path) for path in sorted(folder.iterdir())},
    }
    (folder / "model.json").write_text(json.dumps(description, indent=1) + "\n")
    return description


def _inputs(model: PortableModel) -> dict[str, tuple[str, ...]]:
    return _INPUTS | (_POSITIONS if isinstance(model, PreTrainingModel) else {})


def make_program(model: PortableModel, params: Mapping[str, np.ndarray]) -> jax.export.Exported:
    """Returns the lowered forward pass: (parameters by path, inputs by name) -> outputs by name."""
    scope = jax.export.SymbolicScope([f"seq <= {model.model.max_position_embeddings}"])
    inputs = {
        name: jax.ShapeDtypeStruct(
            jax.export.symbolic_shape(", ".join(shape), scope=scope), "int32"
        )
        for name, shape in _inputs(model).items()
    }
    weights = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in params.items()}
    forward = jax.jit(functools.partial(_forward, model))
    return jax.export.export(forward, platforms=PLATFORMS)(weights, inputs)


def _forward(
    model: PortableModel, params: dict[str, jax.Array], inputs: dict[str, jax.Array]
) -> dict[str, jax.Array]:
    ids = inputs["input_ids"]
    batch = {
        "input_ids": ids,
        "token_type_ids": inputs["token_type_ids"],
        "position_ids": jax.lax.broadcasted_iota(jnp.int32, ids.shape, 1),
        "example_ids": inputs["attention_mask"],
        "cls_positions": jnp.zeros((ids.shape[0], 1), jnp.int32),
        **{name: inputs[name] for name in _POSITIONS if name in inputs},
    }
    outputs: Any = model.apply({"params": unflatten(params)}, batch, deterministic=True)
    if isinstance(model, CausalLMModel):
        return {"next_word_logits": outputs.logits()[..., : model.model.vocab_size]}
    named = {
        "hidden": outputs.hidden,
        "masked_lm_logits": outputs.masked_lm_logits[..., : model.model.vocab_size],
    }
    if outputs.next_sentence_logits is not None:
        named["next_sentence_logits"] = outputs.next_sentence_logits[:, 0]
    return named
