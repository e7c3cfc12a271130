"""BERT-Base for Chinese, with the released vocabulary's size of 21,128.

    python -m bert_jax.main --config=configs/chinese.py --workdir=DIR \\
        --config.data.source=text:PATH --config.data.vocab=PATH/vocab.txt

102,882,442 parameters with both heads. Every Chinese character is a token, so that a vocabulary
must have them: the released one does, and a trained one has those of its text.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.model.vocab_size = 21_128
    config.data.language = "zh"
    return config
