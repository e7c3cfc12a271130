"""ColBERT: a vector of each token of your own texts, matched by MaxSim.

    python -m bert_jax.main --config=configs/colbert.py --config.init_from=BERT \\
        --config.data.train=train.tsv --config.data.eval=dev.tsv --workdir=DIR

The files are those of configs/embedding.py: columns `anchor` and `positive` (`task.text_a`,
`task.text_b`), and `task.negative` if there is a third text.
All fields are in docs/configuration.md.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config


def get_config() -> ConfigDict:
    return default_config("colbert").to_config_dict()
