"""A trained model as a program that runs with jax alone.

The folder has `model.stablehlo` (the forward pass in float32, serialized by `jax.export`, for
batches of any size and length, on CPU, CUDA and TPU), `weights.npz`, its first argument, the
vocabulary, and `model.json`, which names the inputs and the outputs.
"""

import functools
import json
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.devices.trees import unflatten
from bert_jax.files.atomic import whole_folder
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.models.heads import CausalLMModel, PreTrainingModel
from bert_jax.tasks import find_task
from bert_jax.tools.convert.trained_run import TrainedRun, check_output_folder, read_run
from bert_jax.training.run import make_model_config

PLATFORMS = ("cpu", "cuda", "tpu")
_INPUTS = {
    "input_ids": ("batch", "seq"),
    "token_type_ids": ("batch", "seq"),
    "attention_mask": ("batch", "seq"),
}
_POSITIONS = {"masked_lm_positions": ("batch", "predictions")}
PortableModel = PreTrainingModel | CausalLMModel


def export(workdir: str, out: str) -> None:
    """Writes the folder `out`, completely or not at all.

    Args:
      workdir: folder of a run.
      out: a folder that is new or empty.

    Raises:
      UserError: `out` is not empty, the run has no checkpoint, or its task is not supported.
    """
    check_output_folder(out)
    run = read_run(workdir)
    row = find_task(run.config.task)
    if not (row.fills_masks or row.reads_forward):
        raise UserError(
            f"{workdir} was trained for {run.config.task!r}: to_stablehlo writes models of masked"
            " words and of next words; to_hf writes fine-tuned BERTs."
        )
    model = _portable_model(run.config, row.reads_forward)
    program = make_program(model, run.params)
    with whole_folder(out) as temporary:
        folder = pathlib.Path(temporary)
        (folder / "model.stablehlo").write_bytes(program.serialize())
        np.savez(folder / "weights.npz", **run.params)  # type: ignore[arg-type]
        shutil.copyfile(run.vocabulary, folder / run.vocabulary.name)
        description = _describe(model, program, run)
        description["sha256"] = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
        (folder / "model.json").write_text(json.dumps(description, indent=1) + "\n")
    size = sum(path.stat().st_size for path in pathlib.Path(out).iterdir())
    print(
        f"{out}: step {run.step} of {workdir}, {size / 2**20:.1f} MiB, for {', '.join(PLATFORMS)}"
    )


def _portable_model(config: ConfigDict, reads_forward: bool) -> PortableModel:
    """Returns the model in float32, with an attention that lowers on all platforms."""
    config = config.copy_and_resolve_references()
    config.dtype = "float32"
    config.model.update({"attention": "einsum", "remat": False, "scan_layers": False})
    if reads_forward:
        return CausalLMModel(make_model_config(config))
    return PreTrainingModel(make_model_config(config), config.model.next_sentence)


def _inputs(model: PortableModel) -> dict[str, tuple[str, ...]]:
    """Returns the dimensions of the int32 inputs, by name."""
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
        return {"next_word_logits": outputs[..., : model.model.vocab_size]}
    named = {
        "hidden": outputs.hidden,
        "masked_lm_logits": outputs.masked_lm_logits[..., : model.model.vocab_size],
    }
    if outputs.next_sentence_logits is not None:
        named["next_sentence_logits"] = outputs.next_sentence_logits[:, 0]
    return named


def _describe(
    model: PortableModel, program: jax.export.Exported, run: TrainedRun
) -> dict[str, Any]:
    """Returns the content of model.json."""
    outputs = jax.tree.unflatten(program.out_tree, program.out_avals)
    return {
        "inputs": {
            name: {"dtype": "int32", "shape": list(shape)} for name, shape in _inputs(model).items()
        },
        "outputs": {
            name: {"dtype": aval.dtype.name, "shape": [_size(n) for n in aval.shape]}
            for name, aval in outputs.items()
        },
        "longest_sequence": model.model.max_position_embeddings,
        "vocabulary": {
            "file": run.vocabulary.name,
            "lowercase": run.tokenizer.lowercase,
            "pad_id": run.tokenizer.pad_id,
            "unk_id": run.tokenizer.unk_id,
            "cls_id": run.tokenizer.cls_id,
            "sep_id": run.tokenizer.sep_id,
            "mask_id": run.tokenizer.mask_id,
        },
        "platforms": list(program.platforms),
        "jax": jax.__version__,
        "calling_convention_version": program.calling_convention_version,
        "step": run.step,
    }


def _size(size: Any) -> int | str:
    return size if isinstance(size, int) else str(size)
