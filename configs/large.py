"""BERT-Large, pre-trained as in the paper: `bert.py:large`."""

from ml_collections import ConfigDict

from configs import bert


def get_config() -> ConfigDict:
    return bert.get_config("large")
