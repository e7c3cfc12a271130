"""Traces of some steps: what is in them, and on which steps."""

import pathlib

import jax
import pytest

from tests.resuming import train_until


def steps_of(trace: pathlib.Path) -> list[int]:
    """The numbers of the steps that a trace marks."""
    (path,) = trace.glob("*.xplane.pb")
    events = [
        event
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes
        for line in plane.lines
        for event in line.events
        if event.name == "train"
    ]
    return sorted(int(dict(event.stats)["step_num"]) for event in events)


def traces(workdir: pathlib.Path) -> list[pathlib.Path]:
    return sorted((workdir / "profile").glob("plugins/profile/*"))


def test_a_trace_has_the_steps_and_a_resumed_run_those_that_are_left(new_run):
    run = new_run("classification", {"profile": "2:4", "epochs": 0.0, "steps": 5})
    train_until(3, run.config, run.workdir)
    (first,) = traces(run.workdir)
    assert steps_of(first) == [2, 3]
    run.train()
    second = traces(run.workdir)[-1]
    assert second != first and steps_of(second) == [4]
    (shown,) = second.glob("*.trace.json.gz")
    assert f"profile    steps 4 to 4 in {run.workdir / 'profile'}" in run.printed
    assert f"{shown} at https://ui.perfetto.dev" in run.printed


def test_a_field_of_other_forms_and_steps_that_do_not_come_are_refused(new_run):
    for text in ("10", "15:10", "0:3", "a:b", "3:"):
        with pytest.raises(ValueError, match=r"profile='.*' is not the first and the last"):
            new_run("classification").config.replace({"profile": text})
    run = new_run("classification", {"profile": "1000:1001"})
    with pytest.raises(ValueError, match="profile=1000:1001 begins after the last step of the run"):
        run.train()
