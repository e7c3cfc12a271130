"""Conversions to and from workdirs, as the command runs them: with a certificate, and printed."""

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

    Args:
      path: file or folder of the checkpoint.
      out: a new or empty folder; it is written completely or not at all.
      format: a key of FORMATS; empty: the one that matches.
      choices: settings that take precedence over the checkpoint's.
      compare: whether to run the checkpoint's own program, where it is installed, and compare the
        outputs.

    Raises:
      UserError: `out` is not empty, or the checkpoint cannot be opened.
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
    """Makes a folder that transformers loads; prints and returns the certificate.

    Args:
      workdir: folder of the run.
      out: a new or empty folder; it is written completely or not at all.
      compare: whether to run the result in transformers, where it is installed, and compare the
        outputs.

    Raises:
      UserError: `out` is not empty, or transformers has no class for the model.
    """
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
    """Makes a program that needs only jax, and prints its size.

    Args:
      workdir: folder of the run.
      out: a new or empty folder; it is written completely or not at all.

    Raises:
      UserError: `out` is not empty, or the run has no language model.
    """
    model = open_workdir(workdir)
    export(model, "stablehlo", out)
    size = sum(path.stat().st_size for path in pathlib.Path(out).iterdir())
    print(
        f"{out}: step {model.step} of {workdir}, {size / 2**20:.1f} MiB, for {', '.join(PLATFORMS)}"
    )


def to_onnx(path: str, out: str, **choices: Any) -> None:
    """Makes a folder for onnxruntime, and prints what is in it.

    Args:
      path: a workdir, or a folder of another program.
      out: a new or empty folder; it is written completely or not at all.
      choices: see `export_onnx`.

    Raises:
      UserError: see `export_onnx`.
    """
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
    size = sum(file.stat().st_size for file in pathlib.Path(out).iterdir())
    print(f"folder      {out}, {size / 2**20:.1f} MiB")
