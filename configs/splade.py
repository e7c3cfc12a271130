"""SPLADE: sparse vectors of your own texts, weights of words that an inverted index can hold.

    python -m bert_jax.main --config=configs/splade.py --config.init_from=BERT \\
        --config.data.train=train.tsv --config.data.eval=dev.tsv --workdir=DIR

The files are those of configs/embedding.py: columns `anchor` and `positive` (`task.text_a`,
`task.text_b`), and `task.negative` if there is a third text. `config.init_from` is a masked
language model, whose head gives the weights. All fields are in docs/configuration.md.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config


def get_config() -> ConfigDict:
    return default_config("splade").to_config_dict()
