"""Cross-encoder: how well a text answers another one, to rerank what a search finds.

    python -m bert_jax.main --config=configs/cross_encoder.py --config.init_from=BERT \\
        --config.data.train=train.tsv --config.data.eval=dev.tsv --workdir=DIR

The files are those of configs/embedding.py: columns `anchor` and `positive` (`task.text_a`,
`task.text_b`), and `task.negative` if there is a third text; or `task.label` for scores from 0
to 1. All fields are in docs/configuration.md.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config


def get_config() -> ConfigDict:
    return default_config("cross_encoder").to_config_dict()
