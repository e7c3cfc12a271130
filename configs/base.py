"""BERT-Base pre-training as in the paper (Devlin et al. 2019, section 3.1 and appendix A.2).

    python -m bert_jax.main --config=configs/base.py --workdir=DIR --config.data.source=text:PATH

12 layers, hidden size 768, 12 heads: 110,106,428 parameters including both heads. One million steps
of 256 sequences, 90 % of them with 128 tokens and the rest with 512. All fields and their meaning
are in docs/configuration.md, with the paper's values; other configurations change values.
"""

from ml_collections import ConfigDict

from bert_jax.config import defaults


def get_config() -> ConfigDict:
    return defaults.pretraining().to_config_dict()
