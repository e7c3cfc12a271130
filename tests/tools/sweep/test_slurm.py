"""What is submitted to SLURM, run by stand-ins for its programs."""

import os
import subprocess

import pytest

from bert_jax.tools.sweep import slurm
from tests.tools.sweep.conftest import script

JOBS = (
    script("data"),
    script("bert", needs=("data",)),
    script("ltr", needs=("data",)),
    script("ner", needs=("bert",)),
)
# Prints a number, as sbatch --parsable does, and notes its arguments, one a line.
SBATCH = """#!/usr/bin/env bash
n=$(($(cat "$NOTES"/count 2>/dev/null || echo 100) + 1))
echo $n > "$NOTES"/count
printf '%s\\n' "$@" > "$NOTES"/job-$n
echo "$n;cluster"
"""


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The folder in which the stand-ins note what they were called with."""
    stand_ins = {
        "sbatch": SBATCH,
        "srun": '#!/bin/sh\nprintf "%s\\n" "$@" >> "$NOTES"/calls\nexit $CODE\n',
        "scontrol": '#!/bin/sh\necho "scontrol $*" >> "$NOTES"/calls\n',
    }
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("NOTES", str(tmp_path))
    return tmp_path


def test_the_script_submits_an_array_for_each_stage_after_the_one_before(notes):
    text = slurm.script(JOBS, "my runs/dir", ["--gpus=1", "--comment=a b"], parallel=2)
    assert slurm.submit(text).splitlines() == [f"stage {i}: job {101 + i}" for i in range(3)]
    jobs = [(notes / f"job-{101 + i}").read_text().splitlines() for i in range(3)]
    flags = [word for job in jobs for word in job if word.startswith(("--array", "--depend"))]
    assert flags == [
        "--array=0-0%2",
        *("--array=0-1%2", "--dependency=afterany:101"),
        *("--array=0-0%2", "--dependency=afterany:102"),
    ]
    assert all("--gpus=1" in job and "--comment=a b" in job for job in jobs)


@pytest.mark.parametrize("code, is_requeued", [(0, False), (1, False), (143, True), (130, True)])
def test_a_task_runs_its_job_and_is_requeued_when_it_was_stopped(code, is_requeued, notes):
    slurm.submit(slurm.script(JOBS, "my runs/dir", [], 0))
    words = (notes / "job-102").read_text().splitlines()
    (wrapped,) = (w.removeprefix("--wrap=") for w in words if w.startswith("--wrap="))
    array = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "102", "CODE": str(code)}
    done = subprocess.run(["sh", "-c", wrapped], env=os.environ | array, check=False)
    assert done.returncode == code
    assert (notes / "calls").read_text().splitlines() == [
        *("--ntasks=1", "python", "-m", "bert_jax", "sweep", "--workdir=my runs/dir"),
        *("--stage=1", "--number=1", *(["scontrol requeue 102_1"] if is_requeued else [])),
    ]


def test_a_refusal_is_one_line(notes):
    refusal = "sbatch: error: invalid partition"
    (notes / "sbatch").write_text(f"#!/bin/sh\necho '{refusal}' >&2\nexit 1\n")
    with pytest.raises(ValueError, match=f"did not take the sweep: {refusal}"):
        slurm.submit(slurm.script(JOBS, "d", [], 0))
