"""BERT-Tiny, pre-trained in minutes on a laptop: `bert.py:tiny`."""

from ml_collections import ConfigDict

from configs import bert


def get_config() -> ConfigDict:
    return bert.get_config("tiny")
