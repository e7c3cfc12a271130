"""What the tests of configurations share."""

import pytest

from bert_jax.config import defaults
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.run import PretrainingConfig


@pytest.fixture
def make_config():
    """Returns a function that makes the defaults of pre-training with other values."""

    def make(**values) -> PretrainingConfig:
        return defaults.pretraining().replace(values)

    return make


@pytest.fixture
def make_labelled():
    """Returns a function that makes the defaults of classification with other values."""

    def make(**values) -> FinetuningConfig:
        return defaults.classification().replace(values)

    return make
