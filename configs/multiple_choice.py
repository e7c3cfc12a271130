"""Multiple choice: which of several endings continues a text, in your own files.

    python -m bert_jax.main --config=configs/multiple_choice.py --config.init_from=BERT \\
        --config.data.train=train.csv --config.data.eval=dev.csv --workdir=DIR

The files are CSV with a header, or JSON lines: `task.text_a` is the column of the context,
`task.text_b` that of the common beginning of all endings (empty: none), `task.endings` those of the
endings (empty: all columns named ending0, ending1, ...), `task.label` that of the correct ending's
number, from 0. All fields are in docs/configuration.md.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config


def get_config() -> ConfigDict:
    return default_config("multiple_choice").to_config_dict()
