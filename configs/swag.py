"""SWAG (Zellers et al. 2018), as in section 4.4 of the paper.

    python -m bert_jax.main --config=configs/swag.py --config.init_from=BERT \\
        --config.data.train=SWAG/train.csv --config.data.eval=SWAG/val.csv --workdir=DIR

The paper reports an accuracy of 81.6 % for BERT-Base on the development set; not run here.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config


def get_config() -> ConfigDict:
    config = default_config("multiple_choice").to_config_dict()
    config.published_score = 0.816
    config.published_in = "BERT-Base, development set (Devlin et al. 2019, Table 4)"
    return config
