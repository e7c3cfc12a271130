"""GLUE's nine tasks and its diagnostic set, as in section 4.1 of the paper.

    python -m bert_jax.main --config=configs/glue.py:mrpc --config.init_from=BERT --workdir=DIR

The data is tfds:glue/mrpc, prepared on this machine; to use GLUE's own files, set
`--config.data.train=MRPC/train.tsv --config.data.eval=MRPC/dev.tsv`. Three epochs, batches of 32;
the paper selects the learning rate among 5e-5, 4e-5, 3e-5 and 2e-5 on the development set. `ax`
trains on MNLI and has no labelled split: set `--config.data.eval=diagnostic-full.tsv`. Expected
scores are those of Table 1 of the paper, which reports show beside a run's; not run here.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config

# Scores of each task; the first is the one that the paper reports.
METRICS = {
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "mrpc": ("f1", "accuracy"),
    "stsb": ("spearman", "pearson"),
    "qqp": ("f1", "accuracy"),
    "mnli": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
    "ax": ("matthews",),
}
# Of the first of these scores, BERT-Base. On development sets the paper has three of them, besides
# MRPC's accuracy (86.7 in Table 5), and nothing for WNLI and the diagnostic set.
_DEV = "BERT-Base, development set (Devlin et al. 2019, Table 5)"
_TEST = "BERT-Base, test set (Devlin et al. 2019, Table 1)"
PUBLISHED = {
    "mnli": (0.844, _DEV),
    "qnli": (0.884, _DEV),
    "sst2": (0.927, _DEV),
    "qqp": (0.712, _TEST),
    "cola": (0.521, _TEST),
    "stsb": (0.858, _TEST),
    "mrpc": (0.889, _TEST),
    "rte": (0.664, _TEST),
}


def get_config(name: str = "mrpc") -> ConfigDict:
    if name not in METRICS:
        raise ValueError(f"Unknown GLUE task {name!r}. Available: {', '.join(METRICS)}.")
    config = default_config("classification").to_config_dict()
    config.task.published = name
    config.data.train = f"tfds:glue/{name}[train]"
    config.data.eval = f"tfds:glue/{name}[validation]"
    if name == "mnli":
        config.data.eval = "tfds:glue/mnli[validation_matched]"
        config.data.more_eval = ("mismatched=tfds:glue/mnli[validation_mismatched]",)
    if name == "ax":
        config.data.train, config.data.eval = "tfds:glue/mnli[train]", ""
    config.metrics = METRICS[name]
    config.published_score, config.published_in = PUBLISHED.get(name, (0.0, ""))
    return config
