"""BERT-Small (Turc et al. 2019): 4 layers, hidden 512, trained as the base model is.

    python -m bert_jax.main --config=configs/small.py --workdir=DIR --config.data.source=text:PATH

The number of steps is the base model's.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.model.num_layers = 4
    config.model.hidden_size = 512
    config.model.num_heads = 8
    config.model.intermediate_size = 2048
    return config
