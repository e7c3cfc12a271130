"""Versions, memory and disks, compared with what the test sets or with other programs."""

import ast
import importlib.metadata
import os
import pathlib
import subprocess
import sys

import jax
import pytest

from bert_jax.devices import compilation_cache
from bert_jax.tools.doctor import finding, machine
from tests.tools.doctor.conftest import bad, found


@pytest.mark.parametrize(
    "version, specifiers, is_in",
    [
        ("0.10.2", ">=0.10.2,<0.12", True),
        ("0.10.1", ">=0.10.2,<0.12", False),
        ("0.12.0", "<0.12,>=0.10.2", False),
        ("0.11", "<0.12,>=0.10.2", True),
        ("2.0", "==2.0.0", True),
        ("1.1.414", "==1.1.413", False),
        ("3.11.7", ">=3.11", True),
        ("3.9.18", ">=3.11", False),
        ("5.0rc1", ">=5,<6", True),
        ("1.0", "!=1.0", False),
        ("1.0", "", True),
        ("2", ">1.9, <=2", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version, specifiers, is_in):
    from packaging.specifiers import SpecifierSet  # the independent implementation

    assert machine.is_within(version, specifiers) == is_in
    assert SpecifierSet(specifiers, prereleases=True).contains(version) == is_in or "rc" in version


def test_this_environment_is_good():
    assert bad(machine.versions()) == []
    line = found(machine.versions(), "ok", "packages are within their ranges").what
    assert f"jax {importlib.metadata.version('jax')}" in line


@pytest.mark.parametrize(
    "version, message",
    [("0.9.0", "jax 0.9.0; needed is"), ("", "jax is not installed; needed is")],
)
def test_a_wrong_version_is_a_problem(version, message, monkeypatch):
    real = machine.version_of
    monkeypatch.setattr(machine, "version_of", lambda n: version if n == "jax" else real(n))
    assert "pip install" in found(machine.versions(), "problem", message).fix


def test_an_old_python_is_a_problem(monkeypatch):
    monkeypatch.setattr(machine.platform, "python_version", lambda: "3.9.1")
    found(machine.versions(), "problem", "Python 3.9.1; needed is >=3.11")


def test_a_package_that_is_not_installed_has_no_ranges(monkeypatch):
    monkeypatch.setattr(machine, "PACKAGE", "no-such-package")
    found(machine.versions(), "note", "is not installed: its versions are not compared")


def test_missing_extras_are_named_with_their_purpose(monkeypatch):
    real = machine.version_of
    monkeypatch.setattr(machine, "version_of", lambda n: "" if n == "h5py" else real(n))
    assert "elmo (weights of bilm-tf)" in found(machine.extras(), "note", "not installed").what


def test_every_extra_of_setup_has_a_purpose():
    tree = ast.parse((pathlib.Path(__file__).resolve().parents[3] / "setup.py").read_text())
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    extras = next(n.value for n in assigned if ast.unparse(n.targets[0]) == "EXTRAS")
    assert ast.literal_eval(extras).keys() == machine.EXTRAS.keys()


def test_little_memory_and_disk_are_warnings(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "available_memory", lambda: int(1e9))
    monkeypatch.setattr(machine, "free_space", lambda _: int(1e9))
    findings = list(machine.before_jax(str(tmp_path / "new")))
    found(findings, "warning", "1.0 GB of memory are free")
    found(findings, "warning", "1.0 GB are free on the disk")
    monkeypatch.setattr(machine, "available_memory", lambda: 0)
    found(machine.before_jax(str(tmp_path)), "note", "The free memory is not known")


def test_a_folder_that_cannot_be_written_is_a_problem(monkeypatch, tmp_path):
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    assert machine.disk(str(tmp_path / "a/b")).what == f"{tmp_path} cannot be written."
    assert machine.disk(str(tmp_path)).level == "problem"


def test_an_unused_gpu_is_a_warning(monkeypatch):
    monkeypatch.setattr(machine, "_has_nvidia", lambda: True)
    assert ".[cuda]" in found(machine.devices(), "warning", "has an NVIDIA GPU").fix


def test_devices_and_the_folder_of_programs(monkeypatch):
    monkeypatch.setattr(machine, "_has_nvidia", lambda: False)
    found(machine.devices(), "ok", f"{jax.device_count()} x cpu")
    monkeypatch.setattr(compilation_cache, "describe", lambda: "")
    found(machine.devices(), "note", "Compiled programs are not kept")


def test_the_disk_of_a_folder_that_does_not_exist_is_that_above_it(tmp_path):
    assert machine.existing_folder(str(tmp_path / "a/b")) == str(tmp_path)
    assert machine.file_system(str(tmp_path / "a")) == os.stat(tmp_path).st_dev
    assert machine.free_space(str(tmp_path / "a")) > 0


def test_jax_is_not_imported_for_the_first_findings(tmp_path):
    (tmp_path / "jax.py").write_text("raise ImportError('jax was imported')")
    program = (
        "from bert_jax.tools.doctor import machine\n"
        "print(*[f.what for f in machine.before_jax('.')], sep='\\n')"
    )
    root = pathlib.Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "cores" in done.stdout


@pytest.mark.parametrize(
    "count, text",
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "2 kB"), (2.5e6, "2 MB"), (1.26e10, "12.6 GB")],
)
def test_bytes_are_readable(count, text):
    assert finding.in_bytes(count) == text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.2, "1 second"),
        (51, "51 seconds"),
        (300, "5 minutes"),
        (3.2 * 3600, "3.2 hours"),
        (86400 * 5.1, "5.1 days"),
    ],
)
def test_durations_are_readable(seconds, text):
    assert finding.in_words(seconds) == text


def test_only_errors_of_this_package_become_findings():
    def fails(function):
        yield finding.ok("first")
        function()

    def of_a_library():
        jax.numpy.zeros((2,)).reshape(3)

    def ours():
        from bert_jax.tasks import find_task

        find_task("cola2")

    def no_file():
        open("/no/such/file")

    levels = [f.level for f in finding.guarded(fails(ours))]
    assert levels == ["ok", "problem"]
    found(finding.guarded(fails(no_file)), "problem", "/no/such/file: No such file or directory")
    with pytest.raises((ValueError, TypeError)):
        list(finding.guarded(fails(of_a_library)))
