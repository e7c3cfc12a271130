"""BERT-Large pre-training as in the paper: 24 layers, hidden size 1024, 16 heads.

    python -m bert_jax.main --config=configs/large.py --workdir=DIR --config.data.source=text:PATH

336,226,108 parameters including both heads.
"""

from ml_collections import ConfigDict

from bert_jax.config import defaults


def get_config() -> ConfigDict:
    config = defaults.pretraining().to_config_dict()
    config.model.num_layers = 24
    config.model.hidden_size = 1024
    config.model.num_heads = 16
    config.model.intermediate_size = 4096
    return config
