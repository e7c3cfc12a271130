"""A checkpoint of another program as configuration and parameters of this package."""

import dataclasses
import os

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax.data.labelled.tags import is_typed_tag
from bert_jax.devices.trees import flatten
from bert_jax.formats.foreign import ForeignCheckpoint
from bert_jax.formats.weight_table import Arrays, ImportReport
from bert_jax.tasks import TASKS
from bert_jax.training.initial import foreign_config, foreign_task, read_foreign, words_param
from bert_jax.training.state import init_params, make_key


@dataclasses.dataclass(frozen=True)
class Imported:
    """A converted checkpoint.

    Attributes:
      checkpoint: of the other program.
      config: the task's default configuration with the checkpoint's values.
      params: all parameters by path, float32.
      report: how the checkpoint's tensors were used, and which parameters it lacks.
    """

    checkpoint: ForeignCheckpoint
    config: ConfigDict
    params: Arrays
    report: ImportReport

    @property
    def own_params(self) -> Arrays:
        """The parameters that the checkpoint has, without new rows of the table of words."""
        params = {n: array for n, array in self.params.items() if n not in self.report.missing}
        if new := len(self.checkpoint.new_words):
            words = words_param(self.config.model.name)
            params[words] = params[words][:-new]
        return params

    @property
    def own_config(self) -> ConfigDict:
        """The configuration of the model with `own_params`."""
        config = self.config.copy_and_resolve_references()
        config.model.vocab_size -= len(self.checkpoint.new_words)
        return config


def import_checkpoint(checkpoint: ForeignCheckpoint, workdir: str = "") -> Imported:
    """Reads the parameters, and draws random ones for heads that the checkpoint lacks.

    Args:
      checkpoint: of another program.
      workdir: that the configuration is for.

    Raises:
      UserError: its tensors do not match its configuration, or have values that are not finite.
    """
    config = _make_config(checkpoint, workdir)
    params, report = read_foreign(checkpoint, config)
    if report.missing:
        task = foreign_task(checkpoint, config)
        new = flatten(jax.jit(lambda key: init_params(task, key))(make_key(0, "init")))
        params |= {path: np.asarray(new[path]) for path in report.missing}
    return Imported(checkpoint, config, params, report)


def _make_config(checkpoint: ForeignCheckpoint, workdir: str) -> ConfigDict:
    task, labels = TASKS[checkpoint.task], checkpoint.labels
    # A classifier of tokens: the tags are entities unless a label says otherwise.
    is_tagger = task.head == "classifier" and not task.pools
    variant = ("words",) if is_tagger and not all(map(is_typed_tag, labels)) else ()
    config = foreign_config(checkpoint, *variant)
    if task.head:
        config.head.problem_type = checkpoint.label_kind
        if checkpoint.label_kind == "regression":
            config.metrics = ("spearman", "pearson")
            config.checkpoint.best_metric = "spearman"
    config.data.vocab = os.path.join(workdir, f"vocab{checkpoint.vocabulary_kind}")
    config.data.lowercase = checkpoint.lowercase
    pairs = config.data.get("segments") == "pairs"
    if pairs and not config.model.next_sentence:
        config.data.segments = "running_text" if task.reads_forward else "full_sentences"
    longest = config.model.max_position_embeddings
    if "max_length" in config:
        config.max_length = min(config.max_length, longest)
    elif longest < max(n for n, _ in config.phases):
        config.phases = ((longest, 1.0),)
    return config
