"""A trained model as a program that runs with jax alone.

    python -m bert_jax.convert to_stablehlo WORKDIR OUT

OUT holds `model.stablehlo` (the forward pass in float32, serialized by `jax.export`, for batches of
any size and length, on CPU, CUDA and TPU), `weights.npz`, its first argument, the vocabulary, and
`model.json`, which names the inputs and the outputs.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from bert_jax.commands.arguments import Arguments
from bert_jax.convert import workdir as workdirs
from bert_jax.files.atomic import whole_folder
from bert_jax.formats.tables import unflatten
from bert_jax.models.config import BertConfig
from bert_jax.models.heads import BertForPreTraining
from bert_jax.training.experiment import make_model_config

PLATFORMS = ("cpu", "cuda", "tpu")
_INPUTS = {
    "input_ids": ("batch", "seq"),
    "token_type_ids": ("batch", "seq"),
    "attention_mask": ("batch", "seq"),
    "masked_lm_positions": ("batch", "predictions"),
}


def run(words: list[str]) -> None:
    """The command's words after `to_stablehlo`.

    Raises:
      ValueError: if they are not WORKDIR and OUT, or one of the two cannot be used.
    """
    arguments = Arguments("to_stablehlo", "Makes a program that needs only jax of a run.")
    arguments.add_argument("workdir", metavar="WORKDIR", help="folder of the run")
    arguments.add_argument("out", metavar="OUT", help="the folder to make")
    given = arguments.parse_args(words)
    export(given.workdir, os.path.normpath(given.out))


def export(workdir: str, out: str) -> None:
    """Writes the folder `out`, whole or not at all.

    Raises:
      ValueError: if `out` is not empty, the run has no checkpoint or is of another task.
    """
    workdirs.check_out(out)
    run = workdirs.read(workdir)
    if run.config.task != "pretraining":
        raise ValueError(
            f"{workdir} was trained for {run.config.task!r}: to_stablehlo writes models of"
            " pre-training; to_hf writes the others."
        )
    model = dataclasses.replace(make_model_config(run.config), dtype="float32", remat=False)
    program = make_program(model, run.params)
    with whole_folder(out) as temporary:
        folder = pathlib.Path(temporary)
        (folder / "model.stablehlo").write_bytes(program.serialize())
        np.savez(folder / "weights.npz", **run.params)  # type: ignore[arg-type]
        shutil.copyfile(run.vocabulary, folder / run.vocabulary.name)
        facts = _facts(model, program, run)
        facts["sha256"] = {path.name: _digest(path) for path in sorted(folder.iterdir())}
        (folder / "model.json").write_text(json.dumps(facts, indent=1) + "\n")
    size = sum(path.stat().st_size for path in pathlib.Path(out).iterdir())
    print(
        f"{out}: step {run.step} of {workdir}, {size / 2**20:.1f} MiB, for {', '.join(PLATFORMS)}"
    )


def make_program(model: BertConfig, params: Mapping[str, np.ndarray]) -> jax.export.Exported:
    """The forward pass (parameters by path, inputs by name) -> outputs by name, lowered."""
    scope = jax.export.SymbolicScope([f"seq <= {model.max_position_embeddings}"])
    inputs = {
        name: jax.ShapeDtypeStruct(
            jax.export.symbolic_shape(", ".join(shape), scope=scope), "int32"
        )
        for name, shape in _INPUTS.items()
    }
    weights = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in params.items()}
    forward = jax.jit(functools.partial(_forward, BertForPreTraining(model)))
    return jax.export.export(forward, platforms=PLATFORMS)(weights, inputs)


def _forward(
    model: BertForPreTraining, params: dict[str, jax.Array], inputs: dict[str, jax.Array]
) -> dict[str, jax.Array]:
    ids = inputs["input_ids"]
    batch = {
        "input_ids": ids,
        "token_type_ids": inputs["token_type_ids"],
        "position_ids": jax.lax.broadcasted_iota(jnp.int32, ids.shape, 1),
        "example_ids": inputs["attention_mask"],
        "cls_positions": jnp.zeros((ids.shape[0], 1), jnp.int32),
        "masked_lm_positions": inputs["masked_lm_positions"],
    }
    outputs: Any = model.apply({"params": unflatten(params)}, batch, deterministic=True)
    found = {
        "hidden": outputs.hidden,
        "masked_lm_logits": outputs.masked_lm_logits[..., : model.config.vocab_size],
    }
    if outputs.next_sentence_logits is not None:
        found["next_sentence_logits"] = outputs.next_sentence_logits[:, 0]
    return found


def _facts(model: BertConfig, program: jax.export.Exported, run: workdirs.Run) -> dict[str, Any]:
    """What a program that loads the folder needs to know."""
    outputs = jax.tree.unflatten(program.out_tree, program.out_avals)
    return {
        "inputs": {
            name: {"dtype": "int32", "shape": list(shape)} for name, shape in _INPUTS.items()
        },
        "outputs": {
            name: {"dtype": aval.dtype.name, "shape": [_size(n) for n in aval.shape]}
            for name, aval in outputs.items()
        },
        "longest_sequence": model.max_position_embeddings,
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


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
