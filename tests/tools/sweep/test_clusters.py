"""What is submitted to SLURM and Kubernetes: parsed, and run by stand-ins for their programs."""

import os
import subprocess

import pytest
import yaml

from bert_jax.tools.sweep import kubernetes, slurm
from tests.tools.sweep.conftest import plan_of, script

PLAN = plan_of(
    script("data"),
    script("bert", needs=("data",), stage=1),
    script("ltr", needs=("data",), stage=1),
    script("ner", needs=("bert",), stage=2),
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
    """The folder with what sbatch, which is replaced, was called with."""
    program = tmp_path / "sbatch"
    program.write_text(SBATCH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("NOTES", str(tmp_path))
    return tmp_path


def test_the_script_submits_an_array_for_each_stage_after_the_one_before(notes):
    text = slurm.script(PLAN, "my runs/dir", ["--gpus=1", "--comment=a b"], parallel=2)
    assert slurm.submit(text).splitlines() == [f"stage {i}: job {101 + i}" for i in range(3)]
    jobs = [(notes / f"job-{101 + i}").read_text().splitlines() for i in range(3)]
    assert [line for job in jobs for line in job if line.startswith("--array")] == [
        "--array=0-0%2",
        "--array=0-1%2",
        "--array=0-0%2",
    ]
    assert [line for job in jobs for line in job if line.startswith("--dependency")] == [
        "--dependency=afterany:101",
        "--dependency=afterany:102",
    ]
    assert all("--gpus=1" in job and "--comment=a b" in job for job in jobs)


def run_wrapped(notes, code: int) -> tuple[int, list[str]]:
    """Runs the command of an array as SLURM does; returns its exit code and what was called."""
    (notes / "srun").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {notes}/calls\nexit {code}\n')
    (notes / "scontrol").write_text(f'#!/bin/sh\necho "scontrol $*" >> {notes}/calls\n')
    for name in ("srun", "scontrol"):
        (notes / name).chmod(0o755)
    slurm.submit(slurm.script(PLAN, "my runs/dir"))
    wrapped = next(
        line for line in (notes / "job-102").read_text().splitlines() if line.startswith("--wrap=")
    ).removeprefix("--wrap=")
    subprocess.run(["bash", "-n", "-c", wrapped], check=True)
    ids = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "102"}
    done = subprocess.run(["sh", "-c", wrapped], env=os.environ | ids, check=False)
    return done.returncode, (notes / "calls").read_text().splitlines()


@pytest.mark.parametrize("code, is_requeued", [(0, False), (1, False), (143, True), (130, True)])
def test_a_task_runs_its_job_and_is_requeued_when_it_was_stopped(code, is_requeued, notes):
    returned, calls = run_wrapped(notes, code)
    assert returned == code
    assert calls[:9] == [
        *("--ntasks=1", "python", "-m", "bert_jax", "sweep", "--workdir=my runs/dir"),
        *("--stage=1", "--number=1", *(["scontrol requeue 102_1"] if is_requeued else [])),
    ]


def test_the_script_is_valid_and_a_refusal_is_one_line(notes):
    subprocess.run(["bash", "-n"], input=slurm.script(PLAN, "d"), text=True, check=True)
    (notes / "sbatch").write_text(
        "#!/bin/sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n"
    )
    with pytest.raises(
        ValueError, match="did not take the sweep: sbatch: error: invalid partition"
    ):
        slurm.submit(slurm.script(PLAN, "d"))


def test_without_sbatch_the_message_says_so(monkeypatch):
    monkeypatch.setattr(slurm.subprocess, "run", subprocess.run)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(ValueError, match="SLURM did not take the sweep: .*sbatch"):
        slurm.submit(slurm.script(PLAN, "d"))


def documents(**changes):
    text = kubernetes.manifest(PLAN, "/runs/my sweep", kubernetes.Cluster(**changes), parallel=1)
    return list(yaml.safe_load_all(text))


def test_the_manifest_has_an_indexed_job_for_each_stage():
    jobs = documents(image="registry/bert:1", volume="claim", mount="/runs", gpus=2, name="t5")
    assert [job["metadata"]["name"] for job in jobs] == ["t5-0", "t5-1", "t5-2"]
    assert [job["spec"]["completions"] for job in jobs] == [1, 2, 1]
    for stage, job in enumerate(jobs):
        assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
        assert job["metadata"]["labels"] == {"sweep": "t5", "stage": str(stage)}
        assert job["spec"]["completionMode"] == "Indexed"
        assert job["spec"]["parallelism"] == 1
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["restartPolicy"] == "Never"  # which podFailurePolicy needs
        assert container["image"] == "registry/bert:1"
        assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "claim"}
        assert container["volumeMounts"] == [{"name": "runs", "mountPath": "/runs"}]
    assert "resources" in documents()[0]["spec"]["template"]["spec"]["containers"][0]


def test_a_pod_runs_the_job_of_its_index(notes):
    (notes / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (notes / "python").chmod(0o755)
    command = documents()[1]["spec"]["template"]["spec"]["containers"][0]["command"]
    environment = os.environ | {"JOB_COMPLETION_INDEX": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("-m", "bert_jax", "sweep", "--workdir=/runs/my sweep"),
        *("--stage=1", "--number=1", "--wait"),
    ]


def test_a_name_that_kubernetes_does_not_take_is_refused():
    with pytest.raises(ValueError, match="--job_name=Table 5 is no name of a Kubernetes Job"):
        kubernetes.Cluster(name="Table 5")
