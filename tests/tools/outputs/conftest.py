"""Workdirs with random parameters, whose predictions the commands write."""

from tests.inference.conftest import classifier, make_run, make_workdir, set_window, workdir

__all__ = ["classifier", "make_run", "make_workdir", "set_window", "workdir"]
