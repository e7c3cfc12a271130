"""Shared parts of the tests of several scores."""

import pytest


@pytest.fixture
def sklearn():
    reason = "needs scikit-learn: pip install -c constraints.txt scikit-learn"
    return pytest.importorskip("sklearn.metrics", reason=reason)
