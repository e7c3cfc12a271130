"""What the tests of configurations share."""

import pytest

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.run import PretrainingConfig
from bert_jax.config.task import default_config


@pytest.fixture
def make_config():
    """Returns a function that makes the defaults of pre-training with other values."""

    def make(**values) -> PretrainingConfig:
        return default_config("pretraining").replace(values)

    return make


@pytest.fixture
def make_labelled():
    """Returns a function that makes the defaults of classification with other values."""

    def make(**values) -> FinetuningConfig:
        return default_config("classification").replace(values)

    return make
