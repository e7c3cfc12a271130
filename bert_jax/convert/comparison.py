"""The largest differences of what two models compute on the same batch.

    python -m bert_jax.convert verify A B

A and B are workdirs or folders of other programs. A folder of Hugging Face is run by transformers
on torch where both are installed, everything else by this package.
"""

from typing import Any

import numpy as np
from ml_collections import ConfigDict

from bert_jax.commands.arguments import Arguments
from bert_jax.convert import transformers_program
from bert_jax.convert import workdir as workdirs
from bert_jax.convert.outputs import Outputs, largest_differences, make_batch, run_ours
from bert_jax.convert.parameters import Imported, import_source
from bert_jax.formats.source import kind_of, open_source
from bert_jax.formats.tables import Arrays


def with_source(imported: Imported) -> dict[str, Any]:
    """An import compared with another program that has the same weights, for its certificate."""
    if reason := transformers_program.why_not(imported):
        return {"none_because": reason}
    model = imported.config.model
    batch = make_batch(model.vocab_size, model.max_position_embeddings)
    theirs = transformers_program.run(imported, batch)
    ours = run_ours(imported.config, imported.own_params, batch)
    return {"with": theirs.program, "largest_difference": largest_differences(ours, theirs)}


def run(words: list[str]) -> None:
    """The command's words after `verify`.

    Raises:
      ValueError: if they are not two models of the same size.
    """
    arguments = Arguments("verify", "Largest differences of what two models compute.")
    arguments.add_argument("a", metavar="A", help="a workdir, or a folder of another program")
    arguments.add_argument("b", metavar="B", help="another one")
    given = arguments.parse_args(words)
    sides = [_open(path) for path in (given.a, given.b)]
    models = [config.model for config, _, _ in sides]
    batch = make_batch(
        min(model.vocab_size for model in models),
        min(model.max_position_embeddings for model in models),
    )
    outputs = [_run(*side, batch) for side in sides]
    differences = largest_differences(*outputs)
    for name, path, output in zip("AB", (given.a, given.b), outputs, strict=True):
        print(f"{name}  {path}, run by {output.program}")
    print("largest absolute difference:")
    for name, value in differences.items():
        size = np.abs(outputs[0].values[name]).max()
        print(f"  {name:<22} {value:.1e}   (the largest value: {size:.3g})")


def _open(path: str) -> tuple[ConfigDict, Arrays, Imported | None]:
    """Configuration and parameters of a model, and where it comes from if it is not ours."""
    if kind_of(path) == "workdir":
        run = workdirs.read(path)
        return run.config, run.params, None
    imported = import_source(open_source(path))
    return imported.config, imported.own_params, imported


def _run(
    config: ConfigDict, params: Arrays, imported: Imported | None, batch: dict[str, np.ndarray]
) -> Outputs:
    is_theirs = imported is not None and imported.source.form.name == "Hugging Face"
    if imported and is_theirs and not transformers_program.why_not(imported):
        return transformers_program.run(imported, batch)
    return run_ours(config, params, batch)
