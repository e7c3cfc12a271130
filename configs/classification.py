"""Classification or regression of your own texts or pairs of texts.

    python -m bert_jax.main --config=configs/classification.py --config.init_from=BERT \\
        --config.data.train=train.tsv --config.data.eval=dev.tsv --workdir=DIR

The files are TSV, CSV or JSON lines; `task.text_a`, `task.text_b` and `task.label` name the
columns. `task.problem_type=multi` allows any number of labels (`task.label_separator`, or several
columns of 0 and 1: `task.label=a,b,c`). `task.problem_type=regression` is for numbers, with other
scores: `metrics=('pearson',)`. Scores of classes are
accuracy, f1 (for two labels: of the second in alphabetical order), macro_f1 and matthews. All
fields are in docs/configuration.md.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config


def get_config() -> ConfigDict:
    return default_config("classification").to_config_dict()
