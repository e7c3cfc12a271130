"""A trained model as a folder that transformers loads.

The folder has `config.json`, which names the class for the task, `model.safetensors`, the files of
the tokenizer and `certificate.json`, the comparison of both programs. As transformers does it, the
decoder of a head that predicts words, which is the table of word embeddings, is not stored twice.
"""

import pathlib
import shutil
from typing import Any

from ml_collections import ConfigDict

from bert_jax.files.atomic import whole_folder, write_json
from bert_jax.files.buckets import shown
from bert_jax.formats import FORMATS, open_checkpoint
from bert_jax.formats.names import NAMES
from bert_jax.formats.safetensors_file import write_safetensors
from bert_jax.formats.weight_table import Arrays, export_params
from bert_jax.tasks import find_task
from bert_jax.tools.convert import certificate as certificates
from bert_jax.tools.convert.comparison import compare_with_source
from bert_jax.tools.convert.hf_families import MASKED_LM, class_name, family_of
from bert_jax.tools.convert.hf_files import json_text, tokenizer_files
from bert_jax.tools.convert.imported import import_checkpoint
from bert_jax.tools.convert.trained_run import TrainedRun, check_output_folder, read_run
from bert_jax.training.initial import (
    CERTIFICATE,
    untrained_params,
    untrained_rows,
    vocabulary_params,
)

_FORMAT = "huggingface"


def export(workdir: str, out: str, *, compare: bool = True) -> dict[str, Any]:
    """Writes the folder `out`, completely or not at all; prints and returns the certificate.

    Args:
      workdir: folder of a run.
      out: a folder that is new or empty.
      compare: run the result in transformers, where it is installed, and compare the outputs.

    Raises:
      UserError: `out` is not empty, the run has no checkpoint, its vocabulary has no
        tokenizer.json, or transformers has no class for its model.
    """
    check_output_folder(out)
    run = read_run(workdir)
    config = run.config
    family = family_of(config)
    name = class_name(config, run.params)
    params, left_out = choose_params(run.params, name, config)
    untrained = [path for path in untrained_params(workdir) if path in params]
    rows = untrained_rows(workdir)
    table = NAMES[config.model.name][_FORMAT]
    tensors = export_params(params, table, FORMATS[_FORMAT].title)
    files = {
        "config.json": json_text(
            family.make_config(config, name, tensors, run.tokenizer.pad_id, run.labels)
        ),
        **tokenizer_files(run, family),
    }
    with whole_folder(out) as temporary:
        folder = pathlib.Path(temporary)
        for file, content in files.items():
            (folder / file).write_text(content, encoding="utf-8")
        write_safetensors(folder / "model.safetensors", tensors)
        if run.vocabulary.suffix != ".gpt":  # whose two files are written already
            shutil.copyfile(run.vocabulary, folder / run.vocabulary.name)
        certificate = {
            "source": shown(workdir),
            "step": run.step,
            "format": FORMATS[_FORMAT].title,
            "class": name,
            "tensors": {
                "in": len(run.params),
                "out": len(tensors),
                "left_out": left_out,
                "random": untrained + list(rows),
            },
            "parameters": sum(tensor.size for tensor in tensors.values()),
            "weights_sha256": certificates.weights_sha256(params),
            "comparison": _compare(folder, run, compare),
        }
        write_json(folder / CERTIFICATE, certificate)
    print("\n".join(_lines(certificate)))
    print(f"folder      {out}")
    return certificate


def _compare(folder: pathlib.Path, run: TrainedRun, compare: bool) -> dict[str, Any]:
    """Reads the folder back, and runs it in transformers and in this package."""
    if not compare:
        return {"none_because": "--nocomparison"}
    if run.vocabulary.suffix == ".model":
        return {"none_because": "only folders with WordPiece's or GPT's vocabulary are read back"}
    return compare_with_source(import_checkpoint(open_checkpoint(str(folder), _FORMAT)))


def _lines(certificate: dict[str, Any]) -> list[str]:
    """Returns the lines that are printed of the certificate."""
    tensors = certificate["tensors"]
    return [
        f"source      {certificate['source']}, step {certificate['step']}",
        f"class       {certificate['class']}",
        f"tensors     {tensors['in']} in, {tensors['out']} out;"
        f" {certificate['parameters']:,} parameters",
        *(f"left out    {path}: {reason}" for path, reason in tensors["left_out"].items()),
        *(f"random      {path}: the import did not have it" for path in tensors["random"]),
        f"weights     sha256 {certificate['weights_sha256']}",
        *certificates.comparison_lines(certificate["comparison"]),
    ]


def choose_params(params: Arrays, name: str, config: ConfigDict) -> tuple[Arrays, dict[str, str]]:
    """Returns the parameters that a class of transformers has, and path -> reason for the rest."""
    encoder, vocab_size = config.model.name, config.model.vocab_size
    has_pooler = find_task(config.task).pools and name != MASKED_LM
    kept, left_out = dict(params), {}
    for path, array in params.items():
        if path.startswith(f"{encoder}/pooler/") and not has_pooler:
            left_out[path] = f"{name} has no pooler"
            del kept[path]
        elif path in vocabulary_params(encoder):
            kept[path] = array[:vocab_size]
            if padding := len(array) - vocab_size:
                left_out[f"{path}[{vocab_size}:]"] = f"{padding} rows of padding"
    return kept, left_out
