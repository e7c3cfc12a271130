"""What every export takes from the folder of a run."""

import dataclasses
import os
import pathlib

from ml_collections import ConfigDict

from bert_jax.config import settings as config_lib
from bert_jax.formats.tables import Arrays, flatten
from bert_jax.text.tokenization import Tokenizer, load_tokenizer
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.finetuning import LABELS, read_labels


@dataclasses.dataclass(frozen=True)
class Run:
    """A run's newest whole checkpoint and what belongs to it.

    Attributes:
      config: of the run.
      vocabulary: path of the file.
      tokenizer: made of it.
      step: of the checkpoint.
      params: by path, float32.
      labels: of its classes, in the order of their numbers; empty where it has none.
    """

    config: ConfigDict
    vocabulary: pathlib.Path
    tokenizer: Tokenizer
    step: int
    params: Arrays
    labels: tuple[str, ...] = ()


def read(workdir: str) -> Run:
    """Reads the folder of a run.

    Raises:
      ValueError: if it has no configuration, no vocabulary or no whole checkpoint.
    """
    config = config_lib.load(workdir)
    vocabulary = next(iter(sorted(pathlib.Path(workdir).glob("vocab.*"))), None)
    if vocabulary is None:
        raise ValueError(f"{workdir} holds no vocabulary (vocab.txt or vocab.model): train first.")
    tokenizer = load_tokenizer(vocabulary, config.data.lowercase)
    with open_chosen(workdir, config.checkpoint) as (checkpoints, step):
        params = flatten(checkpoints.read_params(step))
    labels = read_labels(workdir) if os.path.isfile(os.path.join(workdir, LABELS)) else ()
    return Run(config, vocabulary, tokenizer, step, params, labels)


def check_out(out: str) -> None:
    """Refuses to write where something is.

    Raises:
      ValueError: if `out` is a file or a folder that is not empty.
    """
    path = pathlib.Path(out)
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists():
        raise ValueError(f"{out} exists already: name a new folder, or remove it first.")
