"""The tools that flip bits and kill programs, with small counts."""

import subprocess
import sys

import pytest

from tests.runs.conftest import ENVIRONMENT, REPOSITORY


def run(*words):
    command = [sys.executable, "-m", *map(str, words)]
    return subprocess.run(
        command, cwd=REPOSITORY, env=ENVIRONMENT, capture_output=True, text=True, timeout=600
    )


def test_flipped_bits_are_detected(finished_run):
    done = run("tests.flips", f"--workdir={finished_run.workdir}", "--checkpoints=20", "--data=10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checkpoints: 20 of 20 bits" in done.stdout and "data: 10 of 10 bits" in done.stdout


@pytest.mark.slow
def test_killed_programs_leave_what_uninterrupted_ones_do():
    done = run("tests.kills", "--count=3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures" in done.stdout
