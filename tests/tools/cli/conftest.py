"""Fixtures of tests/tools/convert for the tests in this folder."""

from tests.tools.convert.conftest import make_workdir, random_params, save, theirs

__all__ = ["make_workdir", "random_params", "save", "theirs"]
