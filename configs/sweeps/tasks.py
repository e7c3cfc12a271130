"""Fine-tuning tasks of the sweeps: configurations, files, scores; and settings as text.

Without --set data=FOLDER the GLUE tasks are read from tensorflow-datasets (configs/glue.py). With
it, the folder has these files; each task needs only its own:

    MNLI/train.tsv          MNLI/dev_matched.tsv       likewise QNLI, MRPC, SST-2, RTE, CoLA, STS-B,
                                                       QQP with dev.tsv: GLUE's own files
    squad/train-v1.1.json   squad/dev-v1.1.json        SQuAD's form
    conll2003/eng.train     conll2003/eng.testa        CoNLL's form
    wikigold/train.conll    wikigold/dev.conll
    wnut17/train.conll      wnut17/dev.conll
    texts/train.tsv         texts/dev.tsv              columns text_a and label: any classification
"""

from typing import Any, NamedTuple

from bert_jax.tools.sweep.plan import Column


class Task(NamedTuple):
    """A fine-tuning task.

    Attributes:
      config: configuration file.
      kind: `classification`, `span` or `tagging`: the task.
      title: heading of its column.
      metric: of the column.
      files: of training and evaluation, in the folder of the setting `data`.
      scale: factor of the metric in the table; the scores of SQuAD are percentages already.
    """

    config: str
    kind: str
    title: str
    metric: str
    files: tuple[str, str]
    scale: float = 100.0


def _glue(name: str, folder: str, metric: str = "accuracy", dev: str = "dev.tsv") -> Task:
    files = (f"{folder}/train.tsv", f"{folder}/{dev}")
    return Task(f"configs/glue.py:{name}", "classification", folder, metric, files)


TASKS = {
    # The paper's tables give accuracies, also of MRPC (86.7 in Table 5 is not its F1 of Table 1).
    "mnli": _glue("mnli", "MNLI", dev="dev_matched.tsv")._replace(title="MNLI-m"),
    "qnli": _glue("qnli", "QNLI"),
    "mrpc": _glue("mrpc", "MRPC"),
    "sst2": _glue("sst2", "SST-2"),
    "rte": _glue("rte", "RTE"),
    "cola": _glue("cola", "CoLA", "matthews"),
    "stsb": _glue("stsb", "STS-B", "spearman"),
    "qqp": _glue("qqp", "QQP", "f1"),
    "texts": Task(
        "configs/classification.py",
        "classification",
        "Texts",
        "accuracy",
        ("texts/train.tsv", "texts/dev.tsv"),
    ),
    "squad": Task(
        "configs/squad.py:v1",
        "span",
        "SQuAD F1",
        "f1",
        ("squad/train-v1.1.json", "squad/dev-v1.1.json"),
        scale=1.0,
    ),
    "conll2003": Task(
        "configs/ner.py:conll2003",
        "tagging",
        "CoNLL-2003",
        "f1",
        ("conll2003/eng.train", "conll2003/eng.testa"),
    ),
    "wikigold": Task(
        "configs/ner.py:wikigold",
        "tagging",
        "wikigold",
        "f1",
        ("wikigold/train.conll", "wikigold/dev.conll"),
    ),
    "wnut17": Task(
        "configs/ner.py:wnut17",
        "tagging",
        "WNUT-17",
        "f1",
        ("wnut17/train.conll", "wnut17/dev.conll"),
    ),
}

# What a small model needs that the paper's recipe for BERT-Base does not give: bias correction,
# a higher rate and more epochs (Mosbach et al. 2021, section 5).
_SMALL = {
    "optimizer.name": "adamw",
    "optimizer.schedule": "linear",
    "optimizer.learning_rate": 5e-4,
    "max_length": 128,
    "eval.every": "2 epochs",
    "checkpoint.every": "2 epochs",
    "task.lstm_size": 256,
}
_SMALL_OF_KIND = {
    "classification": {"epochs": 4.0},
    "tagging": {"epochs": 6.0},
    "span": {"epochs": 4.0, "task.doc_stride": 96},
}


def choose(names: str, available: dict[str, Any], what: str) -> list[str]:
    """Returns the names of a list such as "mnli,squad".

    Raises:
      ValueError: there is no such name, or a name is given twice.
    """
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in available:
            raise ValueError(f"Unknown {what} {name!r}. Available: {', '.join(available)}.")
        if chosen.count(name) > 1:
            raise ValueError(f"The {what} {name!r} is given twice.")
    if not chosen:
        raise ValueError(f"No {what} is given. Available: {', '.join(available)}.")
    return chosen


def parse_overrides(text: str, *names: str) -> dict[str, str]:
    """Returns the overrides of "FIELD=VALUE;NAME:FIELD=VALUE;..." that concern one of some names.

    Args:
      text: value of a setting. An entry without NAME concerns all; a later one replaces an earlier.
      names: of tasks or systems.

    Raises:
      ValueError: an entry has another form.
    """
    overrides = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        field, equals, value = entry.partition("=")
        of, colon, rest = field.partition(":")
        if not equals or not (rest if colon else field).strip():
            raise ValueError(
                f"{entry!r} is not FIELD=VALUE or NAME:FIELD=VALUE, such as epochs=5 or"
                " squad:epochs=5."
            )
        if not colon or of.strip() in names:
            overrides[(rest if colon else field).strip()] = value.strip()
    return overrides


def finetuning(
    name: str,
    scale: str,
    data: str,
    settings: str,
    system: str = "",
    of_system: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the overrides of a fine-tuning.

    Args:
      name: of the task.
      scale: `paper` leaves everything to the task's configuration.
      data: folder of the files; empty: tensorflow-datasets.
      settings: further overrides, as `parse_overrides` reads them, with names of tasks, systems,
        and SYSTEM-TASK.
      system: that is fine-tuned.
      of_system: its overrides at a small scale.

    Raises:
      ValueError: the task has no data set of tensorflow-datasets, and `data` is missing.
    """
    task = TASKS[name]
    overrides: dict[str, Any] = {}
    if scale != "paper":
        overrides |= _SMALL | _SMALL_OF_KIND[task.kind] | (of_system or {})
    if data:
        train, dev = task.files
        overrides |= {"data.train": f"{data}/{train}", "data.eval": f"{data}/{dev}"}
    elif "glue" not in task.config:
        raise ValueError(
            f"The task {name} needs --set data=FOLDER with {' and '.join(task.files)}."
        )
    return overrides | parse_overrides(settings, name, system, f"{system}-{name}")


def on_features(scale: str) -> dict[str, Any]:
    """Returns the overrides of a tagger on frozen features: a BiLSTM (paper, section 5.3)."""
    return {
        "optimizer.frozen_layers": -1,
        "optimizer.learning_rate": 1e-3,
        # A model of the scale tiny has two layers.
        "task.layers": "scalar_mix" if scale == "tiny" else "concat_last_4",
        "task.head": "bilstm",
    }


def column(name: str) -> Column:
    """Returns the column of a task."""
    return Column(name, TASKS[name].metric, TASKS[name].title, TASKS[name].scale)
