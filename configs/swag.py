"""SWAG (Zellers et al. 2018), as in section 4.4 of the paper.

    python -m bert_jax.main --config=configs/swag.py --config.init_from=BERT \\
        --config.data.train=SWAG/train.csv --config.data.eval=SWAG/val.csv --workdir=DIR

The paper has 81.6 % on the development set with BERT-Base.
"""

from ml_collections import ConfigDict

from configs import multiple_choice


def get_config() -> ConfigDict:
    return multiple_choice.get_config()
