"""Question answering: answers are spans of a text, in your own files in SQuAD's format.

    python -m bert_jax.main --config=configs/span.py --config.init_from=BERT \\
        --config.data.train=train.json --config.data.eval=dev.json --workdir=DIR

Set `task.null_answers=true` if questions may have no answer. All fields are in
docs/configuration.md.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config


def get_config() -> ConfigDict:
    return default_config("span").to_config_dict()
