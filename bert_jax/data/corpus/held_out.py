"""The held-out rows of a corpus: a split of it, or another text (`data.held_out`)."""

import dataclasses
import os

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare
from bert_jax.files.workers import Log

TRAIN, VALIDATION = "train", "validation"
# Folder of the other text, in that of the corpus.
_FOLDER = "held_out"


def prepare_both(config: DataConfig, data_dir: str, log: Log) -> None:
    """Prepares a corpus and the text to evaluate on, or verifies those in `data_dir`.

    Raises:
      UserError: as `prepare`.
    """
    manifest = prepare(config, data_dir, config.num_processes, log)
    manifest.verify()
    if config.held_out:
        changes = {
            "source": config.held_out,
            "held_out": "",
            "vocab": manifest.vocabulary_path,
            "dupe_factor": 1,
        }
        other = dataclasses.replace(config, **changes)
        folder = os.path.join(data_dir, _FOLDER)
        prepare(other, folder, config.num_processes, lambda line: log(f"held out: {line}")).verify()


def held_out_split(config: DataConfig, manifest: Manifest) -> tuple[Manifest, str] | None:
    """Returns the data with the held-out rows, and the name of their split; None: there are none.

    Args:
      config: configuration of the data.
      manifest: manifest of the corpus.
    """
    if config.held_out:
        return Manifest.load(os.path.join(manifest.folder, _FOLDER)), TRAIN
    return (manifest, VALIDATION) if VALIDATION in manifest.splits else None
