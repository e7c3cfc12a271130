"""Conversions to and from workdirs, as the command runs them: with a certificate, and printed.

All write to a new or empty folder `out`, completely or not at all, and raise UserError if it is not
empty or the model cannot be converted. `compare`: whether to run the folder of the other program
in that program, where it is installed, and compare the outputs. certificate.json has counts of
tensors, a checksum and differences of outputs:

{"source": "DIR", "format": "Hugging Face",
 "tensors": {"in": 104, "out": 110, "renamed": {...}, "transposed": [...],
             "known_non_parameters": {...}, "cast": {}, "fresh": [...], "fresh_rows": {}},
 "weights_sha256": "...", "notes": [...], "labels": [],
 "comparison": {"with": "transformers 5.23.0", "largest_difference": {"pooled": 4e-7, ...}}}
"""

import pathlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from bert_jax.config import store
from bert_jax.config.phases import parse_duration
from bert_jax.exchange import (
    LoadedModel,
    as_stored,
    check_output_folder,
    export,
    huggingface,
    open_foreign,
    with_new_parameters,
)
from bert_jax.exchange.stablehlo import PLATFORMS
from bert_jax.files.atomic import read_json, whole_folder, write_json
from bert_jax.files.buckets import shown
from bert_jax.formats import FORMATS
from bert_jax.formats.foreign import Choices
from bert_jax.formats.weight_table import weights_sha256
from bert_jax.inference.model import load
from bert_jax.tools.convert.comparison import compare_with_source
from bert_jax.tools.convert.transformers_program import token_id_line
from bert_jax.training.workdir import CERTIFICATE, milestones_of, open_workdir, write_workdir

_NOT_COMPARED = {"none_because": "--nocomparison"}


def convert(
    path: str, out: str, *, format: str = "", choices: Choices | None = None, compare: bool = True
) -> dict[str, Any]:
    """Makes a workdir from another program's checkpoint; prints and returns the certificate.

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
    certificate = import_certificate(loaded, comparison)
    with whole_folder(out) as folder:
        write_workdir(loaded, folder, out, certificate)
    print("\n".join(import_lines(certificate)))
    print(f"workdir     {out}")
    return certificate


def to_huggingface(
    workdir: str, out: str, *, compare: bool = True, step: int | None = None
) -> dict[str, Any]:
    """Makes a folder that transformers loads; prints and returns the certificate.

    Args:
      workdir: folder of the run.
      out: a new or empty folder; it is written completely or not at all.
      compare: whether to run the result in transformers, where it is installed, and compare the
        outputs.
      step: step of the checkpoint; None: the one that the run's configuration chooses.

    Raises:
      UserError: `out` is not empty, or transformers has no class for the model.
    """
    check_output_folder(out)
    model = open_workdir(workdir, step=step)
    with whole_folder(out) as folder:
        facts = huggingface.write(model, pathlib.Path(folder))
        comparison = _NOT_COMPARED
        if compare:
            comparison = compare_with_source(open_foreign(folder, "huggingface"), model)
        source = {"source": shown(workdir), "step": model.step}
        format = FORMATS["huggingface"].TITLE
        certificate = {**source, "format": format, **facts, "comparison": comparison}
        write_json(f"{folder}/{CERTIFICATE}", certificate)
    print("\n".join(export_lines(certificate)))
    print(f"folder      {out}")
    return certificate


def milestones_to_huggingface(workdir: str, out: str, *, compare: bool = True) -> None:
    """Makes the folders out/chck_1M, out/chck_2M, ... of a run's milestones.

    The names are those of the BabyLM challenge: chck_1M after 1e6 words. Of other units they have
    the number and the unit, such as chck_500step or chck_50%. Folders that an earlier call made are
    kept.

    Args:
      workdir: folder of the run.
      out: a folder for new or empty folders; each is written completely or not at all.
      compare: see `to_huggingface`.

    Raises:
      UserError: the run has no milestones, or see `to_huggingface`.
    """
    found = milestones_of(workdir)
    for text, step in found.items():
        number, unit = parse_duration("milestones", text)
        name = f"{number / 1e6:g}M" if unit == "word" else f"{number:g}{unit}"
        folder = f"{out}/chck_{name}"
        if _is_export(folder, workdir, step):
            print(f"folder      {folder} exists already")
        else:
            to_huggingface(workdir, folder, compare=compare, step=step)
    if missing := [text for text in store.load(workdir).checkpoint.milestones if text not in found]:
        print(f"without a checkpoint, as not reached, set later or deleted: {', '.join(missing)}")


def _is_export(folder: str, workdir: str, step: int) -> bool:
    """Returns whether a folder is the export of a step of a run."""
    certificate = pathlib.Path(folder, CERTIFICATE)
    found = read_json(str(certificate)) if certificate.is_file() else {}
    return (found.get("source"), found.get("step")) == (shown(workdir), step)


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
    print(f"{out}: step {model.step} of {workdir}, {_size(out)}, for {', '.join(PLATFORMS)}")


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
    print(f"folder      {out}, {_size(out)}")


def _size(folder: str) -> str:
    size = sum(path.stat().st_size for path in pathlib.Path(folder).iterdir())
    return f"{size / 2**20:.1f} MiB"


# ------------------------------------------------------------------ certificates


def import_certificate(loaded: LoadedModel, comparison: dict[str, Any]) -> dict[str, Any]:
    """Returns the content of certificate.json for an imported checkpoint.

    Args:
      loaded: the model with all parameters.
      comparison: result of `comparison.compare_with_source`.
    """
    checkpoint, report, params = loaded.checkpoint, loaded.report, loaded.params
    assert checkpoint and report  # a workdir has none
    vectors = loaded.sentence_vectors.describe()
    own = sum(array.size for array in as_stored(loaded).params.values())
    return {
        "source": shown(checkpoint.path),
        "format": FORMATS[checkpoint.format].TITLE,
        "task": checkpoint.task,
        "tensors": {
            "in": len(checkpoint.tensors),
            "out": len(params),
            "renamed": report.renamed,
            "transposed": list(report.transposed),
            "known_non_parameters": report.known_non_parameters,
            "cast": report.cast,
            "fresh": list(loaded.missing),
            "fresh_rows": dict(loaded.new_rows),
        },
        "parameters": own,
        "fresh_parameters": sum(array.size for array in params.values()) - own,
        "weights_sha256": weights_sha256(params),
        "notes": [*checkpoint.notes, *([vectors] if vectors else [])],
        "labels": list(checkpoint.labels),
        "comparison": comparison,
    }


def export_lines(certificate: dict[str, Any]) -> list[str]:
    """Returns the lines to print about an export's certificate."""
    tensors = certificate["tensors"]
    return [
        f"source      {certificate['source']}, step {certificate['step']}",
        f"class       {certificate['class']}",
        f"tensors     {tensors['in']} in, {tensors['out']} out;"
        f" {certificate['parameters']:,} parameters",
        *(f"left out    {path}: {reason}" for path, reason in tensors["left_out"].items()),
        *(f"random      {path}: the import did not have it" for path in tensors["random"]),
        f"weights     sha256 {certificate['weights_sha256']}",
        *comparison_lines(certificate["comparison"]),
    ]


def import_lines(certificate: dict[str, Any]) -> list[str]:
    """Returns the lines to print about an import's certificate."""
    tensors = certificate["tensors"]
    known = sorted(tensors["known_non_parameters"].items())
    dtypes = sorted(Counter(tensors["cast"].values()).items())
    casts = [f"{count} tensors of {dtype}" for dtype, count in dtypes]
    return [
        f"source      {certificate['source']} ({certificate['format']}, {certificate['task']})",
        *(f"note        {note}" for note in certificate["notes"]),
        f"tensors     {tensors['in']} in, {tensors['out']} out; {len(tensors['transposed'])}"
        f" transposed, {len(tensors['renamed'])} with an older name",
        f"parameters  {certificate['parameters']:,} of the source,"
        f" {certificate['fresh_parameters']:,} random",
        *(f"left out    {line}" for line in _by_reason(known)),
        *([f"cast        {', '.join(casts)} to float32"] if casts else []),
        *(f"random      {name}" for name in tensors["fresh"]),
        *(
            f"random      {rows}: {', '.join(words)}"
            for rows, words in tensors["fresh_rows"].items()
        ),
        f"weights     sha256 {certificate['weights_sha256']}",
        *comparison_lines(certificate["comparison"]),
    ]


def _by_reason(known: Iterable[tuple[str, str]]) -> list[str]:
    """Returns a line for each reason."""
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in known:
        names_by_reason.setdefault(reason, []).append(name)
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
        for reason, names in names_by_reason.items()
    ]


def comparison_lines(comparison: dict[str, Any]) -> list[str]:
    """Returns lines with the largest differences, or with the reason why there are none."""
    if reason := comparison.get("none_because"):
        return [f"comparison  none: {reason}"]
    return [
        f"comparison  with {comparison['with']}, largest absolute difference:",
        *(f"  {name:<22} {value:.1e}" for name, value in comparison["largest_difference"].items()),
        *([token_id_line(comparison["token_ids"])] if "token_ids" in comparison else []),
    ]
