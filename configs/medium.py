"""BERT-Medium, pre-trained like BERT-Base: `bert.py:medium`."""

from ml_collections import ConfigDict

from configs import bert


def get_config() -> ConfigDict:
    return bert.get_config("medium")
