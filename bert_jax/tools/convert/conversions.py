"""Conversions to and from workdirs, as the command runs them: with a certificate, and printed.

All write to a new or empty folder `out`, completely or not at all, and raise UserError if it is not
empty or the model cannot be converted. `compare`: whether to run the folder of the other program
in that program, where it is installed, and compare the outputs.
"""

import pathlib
from typing import Any

from bert_jax.exchange import (
    check_output_folder,
    export,
    huggingface,
    open_foreign,
    with_new_parameters,
)
from bert_jax.exchange.stablehlo import PLATFORMS
from bert_jax.files.atomic import whole_folder, write_json
from bert_jax.files.buckets import shown
from bert_jax.formats import FORMATS
from bert_jax.formats.foreign import Choices
from bert_jax.inference.model import load
from bert_jax.tools.convert import certificate as certificates
from bert_jax.tools.convert.comparison import compare_with_source
from bert_jax.training.workdir import CERTIFICATE, open_workdir, write_workdir

_NOT_COMPARED = {"none_because": "--nocomparison"}


def convert(
    path: str, out: str, *, format: str = "", choices: Choices | None = None, compare: bool = True
) -> dict[str, Any]:
    """Makes a workdir of another program's checkpoint; prints and returns the certificate.

    `path`, `format` and `choices` are those of `exchange.open_foreign`.
    """
    check_output_folder(out)
    loaded = open_foreign(path, format, choices)
    comparison = compare_with_source(loaded) if compare else _NOT_COMPARED
    loaded = with_new_parameters(loaded)
    certificate = certificates.import_certificate(loaded, comparison)
    with whole_folder(out) as folder:
        write_workdir(loaded, folder, out, certificate)
    print("\n".join(certificates.import_lines(certificate)))
    print(f"workdir     {out}")
    return certificate


def to_huggingface(workdir: str, out: str, *, compare: bool = True) -> dict[str, Any]:
    """Makes a folder that transformers loads; prints and returns the certificate."""
    check_output_folder(out)
    model = open_workdir(workdir)
    with whole_folder(out) as folder:
        facts = huggingface.write(model, pathlib.Path(folder))
        comparison = _NOT_COMPARED
        if compare:
            comparison = compare_with_source(open_foreign(folder, "huggingface"))
        source = {"source": shown(workdir), "step": model.step}
        format = FORMATS["huggingface"].TITLE
        certificate = {**source, "format": format, **facts, "comparison": comparison}
        write_json(f"{folder}/{CERTIFICATE}", certificate)
    print("\n".join(certificates.export_lines(certificate)))
    print(f"folder      {out}")
    return certificate


def to_stablehlo(workdir: str, out: str) -> None:
    """Makes a program that needs only jax, and prints its size."""
    model = open_workdir(workdir)
    export(model, "stablehlo", out)
    print(f"{out}: step {model.step} of {workdir}, {_size(out)}, for {', '.join(PLATFORMS)}")


def to_onnx(path: str, out: str, **choices: Any) -> None:
    """Makes a folder for onnxruntime, and prints what is in it; `choices`: see `export_onnx`."""
    facts = load(path).export("onnx", out, **choices)
    for direction in ("inputs", "outputs"):
        names = (f"{name}[{', '.join(map(str, size))}]" for name, size in facts[direction].items())
        print(f"{direction:<11} {', '.join(names)}")
    if note := facts.get("note"):
        print(f"note        {note}")
    if int8 := facts.get("int8"):
        least = f", the least {int8['least']:.4f}" if "least" in int8 else ""
        print(f"int8        {int8['metric']} {int8['int8']:.4f}{least}")
        print(f"float32     {int8['metric']} {int8['float32']:.4f}, on {int8['evaluated_on']}")
    print(f"folder      {out}, {_size(out)}")


def _size(folder: str) -> str:
    size = sum(path.stat().st_size for path in pathlib.Path(folder).iterdir())
    return f"{size / 2**20:.1f} MiB"
