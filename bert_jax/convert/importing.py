"""A checkpoint of another program -> a workdir, with a certificate.

The workdir is like that of a run that has not trained yet: `fill_mask`, --mode=evaluate and
--mode=predict take it as it is, and training starts from it with --config.init_from.
"""

import contextlib
import os
import pathlib
from typing import Any

from bert_jax.commands.arguments import Arguments
from bert_jax.config import settings as config_lib
from bert_jax.convert import certificate, comparison
from bert_jax.convert.parameters import Imported, import_source
from bert_jax.convert.workdir import check_out
from bert_jax.files.atomic import whole_folder, write_json
from bert_jax.formats.foreign import Choices, Source
from bert_jax.formats.source import open_source
from bert_jax.formats.tables import unflatten
from bert_jax.models.config import ACTIVATIONS
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.finetuning import write_labels

_COMMANDS = {"huggingface": ("from_hf", "DIR_OR_FILE"), "google": ("from_google", "DIR")}


def run(kind: str, words: list[str]) -> None:
    """The command's words after `from_hf` or `from_google`.

    Raises:
      ValueError: if they are not right, or what they name cannot be imported.
    """
    command, path = _COMMANDS[kind]
    arguments = Arguments(command, "Makes a workdir of a checkpoint of another program.")
    arguments.add_argument("path", metavar=path, help="the checkpoint, its configuration beside it")
    arguments.add_argument("out", metavar="OUT", help="the workdir to make")
    arguments.add_argument(
        "--activation", default="", choices=ACTIVATIONS, help="instead of what the source says"
    )
    arguments.add_argument(
        "--vocab", default="", metavar="PATH", help="vocab.txt, if not beside it"
    )
    case = arguments.add_mutually_exclusive_group()
    case.add_argument("--lowercase", action="store_true", default=None, help="text is lower cased")
    case.add_argument("--nolowercase", dest="lowercase", action="store_false", help="it is not")
    arguments.add_argument(
        "--nocomparison", action="store_true", help="do not run the source's own program"
    )
    given = arguments.parse_args(words)
    choices = Choices(given.activation, given.vocab, given.lowercase)
    convert(open_source(given.path, kind, choices), given.out, compare=not given.nocomparison)


def convert(source: Source, out: str, *, compare: bool = True) -> dict[str, Any]:
    """Writes the workdir `out`, whole or not at all, and prints and returns the certificate.

    Raises:
      ValueError: `out` is not empty, or the source's tensors are not those of its configuration.
    """
    check_out(out)
    imported = import_source(source, os.path.abspath(out))
    compared: dict[str, Any] = {"none_because": "--nocomparison"}
    proof = certificate.make(imported, comparison.with_source(imported) if compare else compared)
    with whole_folder(out) as folder:
        _write(folder, imported, proof)
    print("\n".join(certificate.lines(proof)))
    print(f"workdir     {out}")
    return proof


def _write(folder: str, imported: Imported, proof: dict[str, Any]) -> None:
    config_lib.save(imported.config, folder)
    pathlib.Path(folder, "vocab.txt").write_bytes(imported.source.vocabulary)
    write_json(os.path.join(folder, certificate.NAME), proof)
    if imported.config.task != "pretraining":
        is_number = imported.source.label_kind == "regression"
        write_labels(folder, () if is_number else imported.source.labels)
    meta = {"config": imported.config.to_dict(), "source": imported.source.path}
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        checkpoints.save_params(unflatten(imported.params), meta)
