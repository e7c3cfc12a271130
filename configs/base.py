"""BERT-Base, pre-trained as in the paper: `bert.py:base`."""

from ml_collections import ConfigDict

from configs import bert


def get_config() -> ConfigDict:
    return bert.get_config("base")
