"""Dry runs of the launchers of clusters, and what the container of a pod runs."""

import os
import pathlib
import shlex
import signal
import subprocess
import time

import pytest
import yaml

from tests.test_launch import LAUNCH, TPU, run_script

# ---- TPUs

FLAGS = ["--config=configs/base.py", "--workdir=/mnt/runs/a run"]


@pytest.mark.parametrize(
    ("env", "version"),
    [
        ({"TYPE": "v5p-32"}, "v2-alpha-tpuv5"),
        ({"TYPE": "v6e-8"}, "v2-alpha-tpuv6e"),
        ({"TYPE": "v4-32"}, "tpu-ubuntu2204-base"),
        ({"TYPE": "v3-8"}, "tpu-ubuntu2204-base"),
        ({"TYPE": "v6e-8", "VERSION": "mine"}, "mine"),
        ({"TYPE": "v9-8", "VERSION": "mine"}, "mine"),
    ],
)
def test_the_software_of_a_tpu_follows_from_its_type(env, version, tmp_path):
    done = run_script(
        LAUNCH / "tpu_vm.sh", *FLAGS, "--dry_run", cwd=tmp_path, env={"VERSION": ""} | TPU | env
    )
    assert f"--accelerator-type={env['TYPE']} --runtime-version={version} " in done.stdout


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (
            "tpu7x-8",
            "error: TYPE=tpu7x-8 is not in the Cloud TPU API: launch/jobset.sh trains on GKE.",
        ),
        (
            "v9-8",
            "error: TYPE=v9-8 is none of v2-N, v3-N, v4-N, v5litepod-N, v5p-N, v6e-N: name its",
        ),
    ],
)
def test_an_unknown_type_of_a_tpu_is_an_error(type_, message, tmp_path):
    env = TPU | {"TYPE": type_, "VERSION": ""}
    done = run_script(LAUNCH / "tpu_vm.sh", *FLAGS, cwd=tmp_path, env=env, check=False)
    assert done.returncode == 2 and message in done.stderr


def test_a_run_in_a_bucket_needs_no_share_and_no_claim(tmp_path):
    flags = ["--config=configs/base.py", "--workdir=gs://bucket/base"]
    env = {name: value for name, value in TPU.items() if name != "SHARE"}
    done = run_script(LAUNCH / "tpu_vm.sh", "--dry_run", *flags, cwd=tmp_path, env=env)
    assert "mount" not in done.stdout
    env = {name: value for name, value in SLICE.items() if name != "CLAIM"}
    _, pod, container = parts(jobset(env, *flags, tmp_path=tmp_path))
    assert [volume["name"] for volume in pod["volumes"]] == ["shm"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["shm"]
    for script, without in (("tpu_vm.sh", "SHARE"), ("jobset.sh", "CLAIM")):
        env = {name: value for name, value in (TPU | SLICE).items() if name != without}
        words = ["--dry_run", *FLAGS]
        done = run_script(LAUNCH / script, *words, cwd=tmp_path, env=env, check=False)
        assert done.returncode != 0 and f"{without}: " in done.stderr


def test_a_tpu_and_pods_need_a_folder_that_outlives_them(tmp_path):
    jobset = {"NAME": "bert", "IMAGE": "image", "CLAIM": "runs", "HOSTS": "2", "GPUS": "8"}
    for script, env in (("tpu_vm.sh", TPU), ("jobset.sh", jobset)):
        flags = ["--dry_run", "--workdir=runs/base"]
        done = run_script(LAUNCH / script, *flags, cwd=tmp_path, env=env, check=False)
        assert done.returncode == 2
        assert "error: --workdir=gs://BUCKET/FOLDER" in done.stderr
        assert "or /mnt/runs/FOLDER is missing" in done.stderr


# ---- JobSets

GPUS = {"NAME": "bert", "IMAGE": "here/bert:1", "CLAIM": "runs", "HOSTS": "3", "GPUS": "8"}
SLICE = {
    "NAME": "bert",
    "IMAGE": "i",
    "CLAIM": "runs",
    "TPU": "tpu-v5-lite-podslice",
    "TOPOLOGY": "4x4",
}
ODD = [
    "--config=c.py",
    "--workdir=/mnt/runs/r",
    '--config.a="x" $(HOME) $HOME \\n',
    "--config.b=1: {2} # 3\nend",
]


def jobset(env, *flags, tmp_path) -> dict:
    """The manifest of a dry run."""
    done = run_script(LAUNCH / "jobset.sh", "--dry_run", *(flags or ODD), cwd=tmp_path, env=env)
    return yaml.safe_load(done.stdout)


def parts(manifest) -> tuple[dict, dict, dict]:
    """Its Job, pod and container."""
    (replicated,) = manifest["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    return job, pod, container


def test_a_jobset_of_gpus_has_a_pod_for_each_host(tmp_path):
    manifest = jobset(GPUS, tmp_path=tmp_path)
    job, pod, container = parts(manifest)
    assert (manifest["apiVersion"], manifest["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert job["completions"] == job["parallelism"] == 3
    assert job["completionMode"] == "Indexed"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert "nodeSelector" not in pod and "serviceAccountName" not in pod
    assert container["image"] == "here/bert:1"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert mounts["/mnt/runs"]["persistentVolumeClaim"] == {"claimName": "runs"}


@pytest.mark.parametrize(
    "topology, chips, hosts", [("4x4", "", 4), ("2x2x4", "", 4), ("2x4", "8", 1)]
)
def test_a_jobset_of_tpus_has_a_pod_for_each_host_of_the_slice(topology, chips, hosts, tmp_path):
    env = SLICE | {"TOPOLOGY": topology, "CHIPS": chips, "SERVICE_ACCOUNT": "writer"}
    job, pod, container = parts(jobset(env, tmp_path=tmp_path))
    assert job["completions"] == job["parallelism"] == hosts
    assert container["resources"]["limits"] == {"google.com/tpu": int(chips or 4)}
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": topology,
    }
    assert pod["serviceAccountName"] == "writer"


def test_what_fails_restarts_all_pods_and_evictions_are_not_counted(tmp_path):
    manifest = jobset(SLICE | {"RESTARTS": "3"}, tmp_path=tmp_path)
    job, pod, container = parts(manifest)
    policy = manifest["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 3 and job["backoffLimit"] == 0
    assert policy["rules"][0]["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert policy["rules"][0]["onJobFailureReasons"] == ["PodFailurePolicy"]
    evicted, stopped = job["podFailurePolicy"]["rules"]
    assert evicted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert stopped["onExitCodes"]["values"] == [143]
    assert stopped["onExitCodes"]["containerName"] == container["name"]
    assert pod["restartPolicy"] == "Never"  # as Kubernetes demands of a podFailurePolicy
    assert pod["terminationGracePeriodSeconds"] >= 300


# What a container runs instead of the program: writes down its arguments, and on SIGTERM "saves".
PROGRAM = """#!/usr/bin/env bash
printf '%s\\n' "$@" >"$NOTES/words"
trap 'sleep 0.5; touch "$NOTES/saved"; exit 143' TERM
touch "$NOTES/started"
[[ -z ${CODE:-} ]] || exit "$CODE"
while true; do sleep 0.1; done
"""


@pytest.fixture
def in_pod(tmp_path):
    """A function (**environment) that starts the container's command, as Kubernetes would."""
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    started = []

    def start(**environment) -> subprocess.Popen:
        _, _, container = parts(jobset(GPUS, tmp_path=tmp_path))
        python = "/bert_jax/.venv/bin/python"
        # In Kubernetes $$ is a dollar, and $(HOME) would be the variable.
        command = [word.replace("$$", "$") for word in container["command"]]
        assert python in command[2]
        command[2] = command[2].replace(python, shlex.quote(str(program)))
        env = os.environ | {"NOTES": str(tmp_path), "JOB_COMPLETION_INDEX": "2"} | environment
        started.append(subprocess.Popen(command, env=env))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for(path: pathlib.Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_pod_has_its_number_the_same_flags_and_the_exit_code_of_the_program(
    code, in_pod, tmp_path
):
    assert in_pod(CODE=str(code)).wait(timeout=30) == code
    words = (tmp_path / "words").read_text()
    assert words == "\n".join(
        [
            *("-m", "bert_jax.main", "--coordinator=bert-hosts-0-0.bert:8476"),
            *("--num_processes=3", "--process_id=2", *ODD, ""),
        ]
    )


def test_an_evicted_pod_saves_and_is_not_taken_for_complete(in_pod, tmp_path):
    process = in_pod()
    wait_for(tmp_path / "started")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"NAME": "Bert"}, "error: NAME=Bert is no name of a JobSet"),
        ({"NAME": "a" * 41}, "is no name of a JobSet"),
        ({"TOPOLOGY": "16"}, "error: TOPOLOGY=16 is no topology, such as 4x4."),
        ({"CHIPS": "3"}, "error: TOPOLOGY=4x4 has 16 chips, not a multiple of CHIPS=3."),
        ({"TPU": ""}, "HOSTS: the number of nodes"),
        ({"IMAGE": ""}, "IMAGE: the container image"),
    ],
)
def test_values_of_a_jobset_are_checked(change, message, tmp_path):
    done = run_script(
        *(LAUNCH / "jobset.sh", "--dry_run", *FLAGS),
        cwd=tmp_path,
        env=SLICE | change,
        check=False,
    )
    assert done.returncode != 0 and message in done.stderr


# ---- SLURM

COMMAND = (LAUNCH / "slurm_command.sbatch", "--dry_run")


@pytest.mark.parametrize(
    ("words", "task", "added"),
    [
        (["evaluate", "--workdir=a folder"], "", []),
        (["sweep", "--workdir=d"], "", []),
        (["sweep", "--workdir=d", "--stage", "1"], "14", ["--number=14"]),
    ],
    ids=str,
)
def test_any_command_is_run_and_that_of_a_sweep_is_requeued(words, task, added, tmp_path):
    env = {"SLURM_ARRAY_TASK_ID": task, "SLURM_JOB_ID": "77"}
    done = run_script(*COMMAND, *words, cwd=tmp_path, env=env)
    lines = [shlex.split(line) for line in done.stdout.splitlines()]
    command = ["python", "-m", "bert_jax", *words, *added]
    if words[0] == "sweep":
        assert lines == [["srun", "--ntasks=1", *command], ["scontrol", "requeue", "77"]]
    else:
        assert lines == [command]


@pytest.mark.parametrize(
    "words, message",
    [([], "the command is missing"), (["sweep", "--workdir=d"], "an array runs one stage")],
)
def test_a_job_is_told_what_it_lacks(words, message, tmp_path):
    done = run_script(*COMMAND, *words, cwd=tmp_path, env={"SLURM_ARRAY_TASK_ID": "5"}, check=False)
    assert done.returncode == 2 and message in done.stderr


def test_the_preparation_of_a_job_has_only_flags_that_it_knows(tmp_path):
    flags = ["--config=c.py", "--compilation_cache=shared", "--workdir=w"]
    done = run_script(LAUNCH / "slurm.sbatch", *flags, "--dry_run", cwd=tmp_path)
    prepare, train, _ = map(shlex.split, done.stdout.splitlines())
    assert prepare[3:] == ["prepare", "--config=c.py", "--workdir=w"]
    assert train[-3:] == flags
