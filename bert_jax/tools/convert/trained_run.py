"""The content of a run's folder that exports read."""

import dataclasses
import os
import pathlib

from ml_collections import ConfigDict

from bert_jax.config import store
from bert_jax.devices.trees import flatten
from bert_jax.files.errors import UserError
from bert_jax.formats.weight_table import Arrays
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import find_vocabulary, load_tokenizer
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.run import LABELS, read_labels


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """The chosen checkpoint of a run, and the files beside it.

    Attributes:
      config: of the run.
      vocabulary: path of the file.
      tokenizer: with that vocabulary.
      step: of the checkpoint.
      params: by path, float32.
      labels: names of the classes in the order of their numbers; empty if there are none.
    """

    config: ConfigDict
    vocabulary: pathlib.Path
    tokenizer: Tokenizer
    step: int
    params: Arrays
    labels: tuple[str, ...] = ()


def read_run(workdir: str) -> TrainedRun:
    """Reads the folder of a run.

    Raises:
      UserError: it has no configuration, no vocabulary or no complete checkpoint.
    """
    config = store.load(workdir)
    vocabulary = find_vocabulary(workdir)
    if not vocabulary:
        raise UserError(f"{workdir} has no vocabulary (vocab.txt or vocab.model): train first.")
    tokenizer = load_tokenizer(vocabulary, config.data.lowercase)
    with open_chosen(workdir, config.checkpoint) as (checkpoints, step):
        params = flatten(checkpoints.read_params(step))
    labels = read_labels(workdir) if os.path.isfile(os.path.join(workdir, LABELS)) else ()
    return TrainedRun(config, pathlib.Path(vocabulary), tokenizer, step, params, labels)


def check_output_folder(path: str) -> None:
    """Refuses to write where something is.

    Raises:
      UserError: `path` is a file or a folder that is not empty.
    """
    folder = pathlib.Path(path)
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise UserError(f"{path} exists already: name a new folder, or remove it first.")
