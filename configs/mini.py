"""BERT-Mini (Turc et al. 2019): 4 layers, hidden size 256, trained like BERT-Base.

    python -m bert_jax.main --config=configs/mini.py --workdir=DIR --config.data.source=text:PATH

The number of steps is that of BERT-Base.
"""

from ml_collections import ConfigDict

from bert_jax.config import defaults


def get_config() -> ConfigDict:
    config = defaults.pretraining().to_config_dict()
    config.model.num_layers = 4
    config.model.hidden_size = 256
    config.model.num_heads = 4
    config.model.intermediate_size = 1024
    return config
