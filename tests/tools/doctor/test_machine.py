"""Versions, memory and disks, compared with what the test sets."""

import importlib.metadata

import jax
import pytest

from bert_jax.devices import compilation_cache
from bert_jax.tools.doctor import finding, machine
from tests.tools.doctor.conftest import bad, found


def test_this_environment_is_good(tmp_path):
    findings = list(machine.before_jax(str(tmp_path / "new")))
    assert bad(findings) == []
    line = found(findings, "ok", "versions are within their ranges").what
    assert f"jax {importlib.metadata.version('jax')}" in line
    assert "pytest" not in line  # an extra
    found(findings, "ok", "of memory are free;")
    found(findings, "ok", f"are free on the disk of {tmp_path}.")


@pytest.mark.parametrize(
    ("name", "fake", "check", "level", "text"),
    [
        ("version_of", lambda _: "0.1", machine.versions, "problem", "jax 0.1; needed is <0.12"),
        ("version_of", lambda _: "", machine.versions, "problem", "jax is not installed; needed"),
        ("PACKAGE", "no-such-package", machine.versions, "note", "versions are not compared"),
        ("_has_nvidia", lambda: True, machine.devices, "warning", "has an NVIDIA GPU"),
        ("_has_nvidia", lambda: False, machine.devices, "ok", f"{jax.device_count()} x cpu"),
    ],
)
def test_a_machine_that_lacks_something(name, fake, check, level, text, monkeypatch):
    monkeypatch.setattr(machine, name, fake)
    assert any(f.level == level and text in f.what for f in check())


def test_a_folder_that_cannot_be_written_is_a_problem(monkeypatch, tmp_path):
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    assert machine.disk(str(tmp_path / "a/b")).what == f"{tmp_path} cannot be written."
    monkeypatch.setattr(compilation_cache, "describe", lambda: "")
    found(machine.devices(), "note", "Compiled programs are not kept")


def test_bytes_and_durations_are_readable():
    sizes = {0: "0 bytes", 999: "999 bytes", 1500: "2 kB", 2.5e6: "2 MB", 1.26e10: "12.6 GB"}
    assert {count: finding.in_bytes(count) for count in sizes} == sizes
    times = {0.2: "1 second", 51: "51 seconds", 300: "5 minutes", 3.2 * 3600: "3.2 hours"}
    times[86400 * 5.1] = "5.1 days"
    assert {seconds: finding.in_words(seconds) for seconds in times} == times


def test_only_errors_of_this_package_become_findings():
    def fails(function):
        yield finding.ok("first")
        function()

    def ours():
        from bert_jax.tasks import find_task

        find_task("cola2")

    levels = [f.level for f in finding.guarded(fails(ours))]
    assert levels == ["ok", "problem"]
    no_file = fails(lambda: open("/no/such/file"))
    found(finding.guarded(no_file), "problem", "/no/such/file: No such file or directory")
    of_a_library = fails(lambda: jax.numpy.zeros((2,)).reshape(3))
    with pytest.raises((ValueError, TypeError)):
        list(finding.guarded(of_a_library))
