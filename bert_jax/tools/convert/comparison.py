"""Differences of the outputs of two models on the same batch.

A folder of Hugging Face is run by transformers on torch where both are installed, everything else
by this package.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from bert_jax.formats import format_of, open_checkpoint
from bert_jax.formats.weight_table import Arrays
from bert_jax.models import make_add_fields
from bert_jax.text.tokenization import Tokenizer
from bert_jax.tools.convert import bilm_references, transformers_program
from bert_jax.tools.convert.imported import Imported, import_checkpoint
from bert_jax.tools.convert.outputs import Batch, Outputs, largest_differences, make_batch, run_ours
from bert_jax.tools.convert.trained_run import read_run
from bert_jax.training.run import make_model_config


def compare_with_source(imported: Imported) -> dict[str, Any]:
    """Returns the comparison of an import with another program that has the same weights.

    Returns:
      `with`, the program, and `largest_difference` by output; or `none_because`, the reason why
      there is no comparison.
    """
    if imported.checkpoint.format == "bilm":
        return bilm_references.compare(imported)
    if reason := transformers_program.unavailable_because(imported):
        return {"none_because": reason}
    config = imported.own_config
    batch = make_batch(config.model.vocab_size, config.model.max_position_embeddings)
    theirs = transformers_program.run(imported, batch)
    ours = run_ours(config, imported.own_params, batch)
    return {"with": theirs.program, "largest_difference": largest_differences(ours, theirs)}


def compare(a: str, b: str) -> Iterator[str]:
    """Yields lines with the largest differences of the outputs of two models.

    Args:
      a, b: workdirs, or folders of other programs.

    Raises:
      UserError: they are not two models of the same size.
    """
    sides = [_Side.open(path) for path in (a, b)]
    models = [side.config.model for side in sides]
    batch = make_batch(
        min(model.vocab_size for model in models),
        min(model.max_position_embeddings for model in models),
    )
    outputs = [side.run(batch) for side in sides]
    differences = largest_differences(*outputs)
    for name, path, output in zip("AB", (a, b), outputs, strict=True):
        yield f"{name}  {path}, run by {output.program}"
    yield "largest absolute difference:"
    for name, value in differences.items():
        size = np.abs(outputs[0].values[name]).max()
        yield f"  {name:<22} {value:.1e}   (the largest value: {size:.3g})"


@dataclasses.dataclass(frozen=True)
class _Side:
    """One of two models; `imported` is a foreign one before its conversion."""

    config: ConfigDict
    params: Arrays
    tokenizer: Tokenizer
    imported: Imported | None = None

    @classmethod
    def open(cls, path: str) -> "_Side":
        if format_of(path) == "workdir":
            run = read_run(path)
            return cls(run.config, run.params, run.tokenizer)
        imported = import_checkpoint(open_checkpoint(path))
        tokenizer = imported.checkpoint.tokenizer()
        return cls(imported.own_config, imported.own_params, tokenizer, imported)

    def run(self, batch: Batch) -> Outputs:
        foreign = self.imported
        if foreign and foreign.checkpoint.format == "huggingface":
            if not transformers_program.unavailable_because(foreign):
                return transformers_program.run(foreign, batch)
        add_fields = make_add_fields(make_model_config(self.config), self.tokenizer)
        return run_ours(self.config, self.params, add_fields(batch))
