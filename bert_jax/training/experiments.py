"""Which kind of experiment a configuration asks for."""

from collections.abc import Callable

from ml_collections import ConfigDict

from bert_jax.training.experiment import Experiment
from bert_jax.training.finetuning import open_finetuning
from bert_jax.training.pretraining import open_pretraining

# By config.task.
EXPERIMENTS: dict[str, Callable[[ConfigDict, str, bool], Experiment]] = {
    "pretraining": open_pretraining,
    "classification": open_finetuning,
    "tagging": open_finetuning,
    "span": open_finetuning,
    "multiple_choice": open_finetuning,
}


def open_experiment(config: ConfigDict, workdir: str, to_train: bool = True) -> Experiment:
    """Prepares what is missing and puts everything together. All processes call it.

    Args:
      config: as configs/base.py or configs/finetuning.py describe it.
      workdir: folder of the run.
      to_train: whether it is to be trained; else the data to train on may be missing.

    Raises:
      ValueError: for a mesh, a batch size, an optimizer or data that cannot be used.
    """
    return EXPERIMENTS[config.task](config, workdir, to_train)
