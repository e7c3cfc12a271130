"""Differences between the outputs of two models on one batch.

A Hugging Face folder is run by transformers on torch where both are installed, everything else
by this package.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax.exchange import LoadedModel, as_stored
from bert_jax.exchange.loaded import portable
from bert_jax.models import make_add_fields
from bert_jax.tools.convert import bilm_references, transformers_program
from bert_jax.tools.convert.outputs import Batch, Outputs, largest_differences, make_batch, run_ours
from bert_jax.tools.convert.transformers_program import compare_token_ids
from bert_jax.training.workdir import open_model


def compare_with_source(loaded: LoadedModel, exported: LoadedModel | None = None) -> dict[str, Any]:
    """Compares a foreign model with another program that has the same weights.

    Args:
      loaded: the foreign model.
      exported: the model that was exported to it, which is run in its place: what the export lost
        would be lost on both sides.

    Returns:
      `with`, the program, `largest_difference` by output, and for a Hugging Face folder
      `token_ids`; or `none_because`, the reason why there is no comparison.
    """
    assert loaded.checkpoint
    if loaded.checkpoint.format == "bilm":
        return bilm_references.compare(loaded)
    if reason := transformers_program.unavailable_because(loaded):
        return {"none_because": reason}
    model = as_stored(loaded)
    fields, pad_id = model.config.model, model.tokenizer.pad_id
    batch = make_batch(fields.vocab_size, fields.max_position_embeddings, pad_id)
    theirs = transformers_program.run(model, batch)
    ours = model
    if exported:
        ours = dataclasses.replace(exported, config=portable(exported.config))
    differences = largest_differences(run_ours(ours, batch), theirs)
    compared = {"with": theirs.program, "largest_difference": differences}
    if loaded.checkpoint.format == "huggingface":
        compared["token_ids"] = compare_token_ids(loaded)
    return compared


def compare(a: str, b: str) -> Iterator[str]:
    """Yields lines with the largest differences between the outputs of two models.

    Args:
      a, b: workdirs, or folders of other programs.

    Raises:
      UserError: they are not two models of the same size.
    """
    sides = [as_stored(open_model(path)) for path in (a, b)]
    models = [side.config.model for side in sides]
    batch = make_batch(
        min(model.vocab_size for model in models),
        min(model.max_position_embeddings for model in models),
        sides[0].tokenizer.pad_id,
    )
    outputs = [_run(side, batch) for side in sides]
    differences = largest_differences(*outputs)
    for name, path, output in zip("AB", (a, b), outputs, strict=True):
        yield f"{name}  {path}, run by {output.program}"
    yield "largest absolute difference:"
    for name, value in differences.items():
        size = np.abs(outputs[0].values[name]).max()
        yield f"  {name:<22} {value:.1e}   (the largest value: {size:.3g})"


def _run(model: LoadedModel, batch: Batch) -> Outputs:
    checkpoint = model.checkpoint
    if checkpoint and checkpoint.format == "huggingface":
        if not transformers_program.unavailable_because(model):
            return transformers_program.run(model, batch)
    return run_ours(model, make_add_fields(model.model, model.tokenizer)(batch))
