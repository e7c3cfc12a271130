"""Settings of the comparisons with transformers."""

import jax
import pytest


@pytest.fixture(autouse=True)
def one_thread():
    """Limits torch to one thread, since tests that run in parallel slow each other down."""
    pytest.importorskip("torch").set_num_threads(1)


@pytest.fixture
def as_users_run_it():
    """Turns on XLA's optimizations, which are off in other tests."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
