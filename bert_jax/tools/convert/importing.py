"""A checkpoint of another program -> a workdir, with a certificate.

The workdir is like that of a run before its first step: it can be evaluated and predicts, and
training starts from it with --config.init_from.
"""

import contextlib
import os
import pathlib
from typing import Any

from bert_jax.config import store
from bert_jax.devices.trees import unflatten
from bert_jax.files.atomic import whole_folder, write_json
from bert_jax.files.buckets import shown
from bert_jax.formats.foreign import ForeignCheckpoint
from bert_jax.tasks import TASKS
from bert_jax.tools.convert import certificate as certificates
from bert_jax.tools.convert.comparison import compare_with_source
from bert_jax.tools.convert.imported import Imported, import_checkpoint
from bert_jax.tools.convert.trained_run import check_output_folder
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.initial import CERTIFICATE
from bert_jax.training.run import write_labels


def convert(checkpoint: ForeignCheckpoint, out: str, *, compare: bool = True) -> dict[str, Any]:
    """Writes the workdir `out`, completely or not at all; prints and returns the certificate.

    Args:
      checkpoint: of another program.
      out: a folder that is new or empty.
      compare: run the checkpoint's own program, where it is installed, and compare the outputs.

    Raises:
      UserError: `out` is not empty, or the tensors do not match the checkpoint's configuration.
    """
    check_output_folder(out)
    imported = import_checkpoint(checkpoint, os.path.abspath(out))
    comparison = compare_with_source(imported) if compare else {"none_because": "--nocomparison"}
    certificate = certificates.import_certificate(imported, comparison)
    with whole_folder(out) as folder:
        _write(folder, imported, certificate)
    print("\n".join(certificates.import_lines(certificate)))
    print(f"workdir     {out}")
    return certificate


def _write(folder: str, imported: Imported, certificate: dict[str, Any]) -> None:
    checkpoint, config = imported.checkpoint, imported.config
    store.save(config, folder)
    vocabulary = f"vocab{checkpoint.vocabulary_kind}"
    pathlib.Path(folder, vocabulary).write_bytes(checkpoint.vocabulary)
    write_json(os.path.join(folder, CERTIFICATE), certificate)
    if TASKS[config.task].head:
        is_regression = checkpoint.label_kind == "regression"
        write_labels(folder, () if is_regression else checkpoint.labels)
    meta = {"config": config.to_dict(), "source": shown(checkpoint.path)}
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        checkpoints.save_params(unflatten(imported.params), meta)
