"""BERT-Mini, pre-trained like BERT-Base: `bert.py:mini`."""

from ml_collections import ConfigDict

from configs import bert


def get_config() -> ConfigDict:
    return bert.get_config("mini")
