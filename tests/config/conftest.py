"""What the tests of configurations share."""

import pytest
from ml_collections import ConfigDict

from bert_jax.config import defaults


@pytest.fixture
def make_config():
    """Returns a function that makes the defaults of pre-training with other values."""

    def make(**values) -> ConfigDict:
        config = defaults.pretraining()
        config.update_from_flattened_dict(values)
        return config

    return make


@pytest.fixture
def make_labelled():
    """Returns a function that makes the defaults of classification with other values."""

    def make(**values) -> ConfigDict:
        config = defaults.classification()
        config.update_from_flattened_dict(values)
        return config

    return make
