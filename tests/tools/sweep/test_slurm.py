"""What the script submits to SLURM, run by stand-ins for its programs."""

import os
import subprocess

from bert_jax.tools.sweep import slurm
from tests.tools.sweep.conftest import script

JOBS = (
    script("data"),
    script("bert", needs=("data",)),
    script("ltr", needs=("data",)),
    script("ner", needs=("bert",)),
)
STAND_INS = {
    # Prints a number, as sbatch --parsable does, and notes its arguments, one a line.
    "sbatch": 'n=$(($(ls | grep -c job-) + 101)); printf "%s\\n" "$@" > job-$n; echo "$n;cluster"',
    "srun": 'printf "%s\\n" "$@" >> calls; exit 143',
    "scontrol": 'echo "scontrol $*" >> calls',
}


def test_each_stage_is_an_array_whose_stopped_jobs_are_requeued(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, text in STAND_INS.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    text = slurm.script(JOBS, "my runs/dir", ["--gpus=1", "--comment=a b"], parallel=2)
    shown = subprocess.run(["bash"], input=text, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == [f"stage {i}: job {101 + i}" for i in range(3)]
    jobs = [(tmp_path / f"job-{101 + i}").read_text().splitlines() for i in range(3)]
    assert [word for job in jobs for word in job if word.startswith(("--array", "--depend"))] == [
        "--array=0-0%2",
        *("--array=0-1%2", "--dependency=afterany:101"),
        *("--array=0-0%2", "--dependency=afterany:102"),
    ]
    assert all("--gpus=1" in job and "--comment=a b" in job for job in jobs)
    (wrapped,) = (word.removeprefix("--wrap=") for word in jobs[1] if word.startswith("--wrap="))
    array = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "102"}
    done = subprocess.run(["sh", "-c", wrapped], env=os.environ | array, check=False)
    assert done.returncode == 143
    assert (tmp_path / "calls").read_text().splitlines() == [
        *("--ntasks=1", "python", "-m", "bert_jax", "sweep", "--workdir=my runs/dir"),
        *("--stage=1", "--number=1", "scontrol requeue 102_1"),
    ]
