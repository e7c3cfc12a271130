"""Workdirs for the benchmarks."""

from tests.tools.convert.conftest import make_workdir, random_params  # noqa: F401
