"""Settings of the comparisons with transformers."""

import jax
import pytest


@pytest.fixture(autouse=True)
def needs_torch():
    pytest.importorskip("torch")


@pytest.fixture
def as_users_run_it():
    """Turns on XLA's optimizations, which are off in other tests."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
