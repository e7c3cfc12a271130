"""What the tests of several scores share."""

import pytest


@pytest.fixture
def sklearn():
    reason = "needs scikit-learn: pip install -c constraints.txt scikit-learn"
    return pytest.importorskip("sklearn.metrics", reason=reason)
