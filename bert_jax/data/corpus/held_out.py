"""The other texts of a run: to evaluate on (`data.held_out`), and general text (`data.general`)."""

import dataclasses
import os

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare
from bert_jax.files.workers import Log

TRAIN, VALIDATION = "train", "validation"
# Folders of the other texts, in that of the corpus.
_HELD_OUT, _GENERAL = "held_out", "general"
# What a text of its own does not have.
_ALONE = {"held_out": "", "general": "", "replay": 0.0, "extra_tokens": ""}


def prepare_all(config: DataConfig, data_dir: str, log: Log) -> None:
    """Prepares a corpus and its other texts, or verifies those in `data_dir`.

    Raises:
      UserError: as `prepare`.
    """
    manifest = prepare(config, data_dir, config.num_processes, log)
    manifest.verify()
    alone = dataclasses.replace(
        config, validation_share=0.0, vocab=manifest.vocabulary_path, **_ALONE
    )
    if config.held_out:
        other = dataclasses.replace(alone, source=config.held_out, dupe_factor=1)
        folder = os.path.join(data_dir, _HELD_OUT)
        prepare(other, folder, config.num_processes, lambda line: log(f"held out: {line}")).verify()
    if config.general:
        share = config.general_share
        other = dataclasses.replace(alone, source=config.general, validation_share=share)
        folder = os.path.join(data_dir, _GENERAL)
        prepare(other, folder, config.num_processes, lambda line: log(f"general: {line}")).verify()


def held_out_split(config: DataConfig, manifest: Manifest) -> tuple[Manifest, str] | None:
    """Returns the data with the held-out rows, and the name of their split; None: there are none.

    Args:
      config: configuration of the data.
      manifest: manifest of the corpus.
    """
    if config.held_out:
        return Manifest.load(os.path.join(manifest.folder, _HELD_OUT)), TRAIN
    return (manifest, VALIDATION) if VALIDATION in manifest.splits else None


def general_text(config: DataConfig, manifest: Manifest) -> Manifest | None:
    """Returns the data of `data.general`; None: there is none.

    Its rows in VALIDATION are evaluated, and those in TRAIN may be replayed.

    Args:
      config: configuration of the data.
      manifest: manifest of the corpus.
    """
    return Manifest.load(os.path.join(manifest.folder, _GENERAL)) if config.general else None
