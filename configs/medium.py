"""BERT-Medium (Turc et al. 2019): 8 layers, hidden size 512, trained like BERT-Base.

    python -m bert_jax.main --config=configs/medium.py --workdir=DIR --config.data.source=text:PATH

The number of steps is that of BERT-Base.
"""

from ml_collections import ConfigDict

from bert_jax.config import defaults


def get_config() -> ConfigDict:
    config = defaults.pretraining().to_config_dict()
    config.model.num_layers = 8
    config.model.hidden_size = 512
    config.model.num_heads = 8
    config.model.intermediate_size = 2048
    return config
