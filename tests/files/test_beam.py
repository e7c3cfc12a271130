"""The engine's flags and errors, each one line."""

import dataclasses
import functools
import os
import pathlib
import re
import sys

import pytest

from bert_jax.files import beam
from bert_jax.files.beam import RUNNERS, Beam
from bert_jax.files.errors import UserError


def refuse(path: str, reason: str) -> None:
    raise {"user": UserError, "os": OSError, "defect": TypeError}[reason](f"no {path}")


def make(path: str) -> None:
    with open(path, "w") as file:
        file.write("made")


def test_unknown_runners_are_refused():
    with pytest.raises(ValueError, match="Unknown --runner=Direct. Available: DirectRunner, Data"):
        Beam("Direct")


@pytest.mark.parametrize("runner", RUNNERS)
def test_without_the_package(runner, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.setitem(sys.modules, "apache_beam.options.pipeline_options", None)
    with pytest.raises(ValueError, match=rf"--runner={runner} needs .*beam.txt -e '.\[beam\]'"):
        Beam(runner)


def test_versions_are_those_of_this_environment():
    found = beam.versions()
    assert found["Python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    import numpy

    assert found["numpy"] == numpy.__version__
    assert len(found["bert_jax"]) == 16 and "sentencex" in found


def test_a_worker_with_other_versions_is_refused(tmp_path):
    path, failure = str(tmp_path / "unit"), str(tmp_path / "failed")
    others = beam.versions() | {"numpy": "1.0"}
    units = beam._Units(((path, functools.partial(make, path)),), failure, others)
    with pytest.raises(
        OSError, match="numpy on the worker .* is .* and here 1.0: install the same"
    ):
        units.do(0)
    assert os.listdir(tmp_path) == []
    dataclasses.replace(units, versions=beam.versions()).do(0)
    assert os.listdir(tmp_path) == ["unit"]


def test_a_worker_that_lacks_the_folder_is_named(tmp_path):
    path = str(tmp_path / "elsewhere" / "unit")
    units = beam._Units(((path, functools.partial(make, path)),), f"{path}.failed", beam.versions())
    with pytest.raises(OSError, match="has no .*elsewhere: all workers must share it"):
        units.do(0)


@pytest.fixture
def apache_beam():
    return pytest.importorskip("apache_beam", reason="needs the extra beam (launch/test.sh)")


@pytest.mark.parametrize(
    ("runner", "flags", "message"),
    [
        ("DirectRunner", ["2"], "'2' is not a flag of Beam: write --NAME or --NAME=VALUE."),
        ("DirectRunner", ["--runner=X"], "--runner=X belongs before the two dashes."),
        ("DirectRunner", ["--direct_num_worker=2"], "Did you mean --direct_num_workers?"),
        ("DirectRunner", ["--direct_num_workers=x"], "invalid int value: 'x'"),
        ("FlinkRunner", ["--flink_version=0.1"], "--flink_version: invalid choice: '0.1'"),
    ],
)
def test_flags_are_checked_first(runner, flags, message, apache_beam):
    with pytest.raises(ValueError) as error:
        Beam(runner, flags)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_the_flags_of_the_docs_are_those_of_beam(apache_beam):
    from apache_beam.options.pipeline_options import PipelineOptions

    page = (pathlib.Path(__file__).parents[2] / "docs" / "data.md").read_text()
    commands = re.findall(r"--runner=\w+ -- \\\n(.*?)```", page, re.DOTALL)
    names = {name for command in commands for name in re.findall(r"--(\w+)=", command)}
    assert len(commands) == 4 and names <= PipelineOptions([]).get_all_options().keys()


def test_what_dataflow_needs_is_said(apache_beam):
    """Its own package, or where that is installed its flags."""
    with pytest.raises(ValueError, match=r"apache-beam\[gcp\]|required option: project"):
        Beam("DataflowRunner")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("reason", "kind", "message"),
    [
        ("user", UserError, "^no .*0$"),
        ("os", OSError, "^stage failed with DirectRunner: OSError: no .*0"),
        ("defect", OSError, "^stage failed with DirectRunner: TypeError: no .*0"),
    ],
)
def test_errors_of_units(reason, kind, message, tmp_path, apache_beam):
    path, lines = str(tmp_path / "0"), []
    with pytest.raises(kind, match=message):
        Beam("DirectRunner").run_stage(
            "stage", {path: functools.partial(refuse, path, reason)}, 0, lines.append
        )
    assert lines == ["stage: 1 parts with DirectRunner"]


@pytest.mark.filterwarnings("ignore")
def test_files_that_never_appear_are_an_error(tmp_path, apache_beam, monkeypatch):
    monkeypatch.setattr(beam, "_WAIT_SECONDS", 0.0)
    job = functools.partial(make, str(tmp_path / "other"))
    jobs = {str(tmp_path / name): job for name in "ab"}
    with pytest.raises(OSError, match="ended, but 2 files are not there, such as .*/a: all work"):
        Beam("DirectRunner").run_stage("stage", jobs, 0, print)
