"""The launchers: what they would run, what they check, and how a pod is stopped."""

import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest
import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
# A copy without .venv, where no Python has the requirements: dry runs check nothing.
_COPY = tempfile.TemporaryDirectory(prefix="bert_jax_launch_")
LAUNCH = pathlib.Path(shutil.copytree(REPOSITORY / "launch", pathlib.Path(_COPY.name, "launch")))
NO_PYTHON = pathlib.Path(_COPY.name, "programs")
NO_PYTHON.mkdir()
for _name in ("python3", "python3.11", "python3.12", "python3.13"):
    (NO_PYTHON / _name).write_text("#!/bin/sh\nexit 1\n")
    (NO_PYTHON / _name).chmod(0o755)
SCRIPTS = sorted([*LAUNCH.glob("*.sh"), *LAUNCH.glob("*.sbatch")])
SOURCED = ("environment.sh", "flags.sh", "gpu_flags.sh")
# Launchers that pass all their flags on to the program.
PASSING = ("local.sh", "local_multiprocess.sh", "gpu_server.sh", "slurm.sbatch", "tpu_vm.sh")
TPU = {"NAME": "bert", "ZONE": "here", "TYPE": "v5litepod-16", "SHARE": "host:/runs"}
GPUS = {"NAME": "bert", "IMAGE": "here/bert:1", "CLAIM": "runs", "HOSTS": "3", "GPUS": "8"}
SLICE = {"NAME": "bert", "IMAGE": "i", "CLAIM": "runs"}
SLICE |= {"TPU": "tpu-v5-lite-podslice", "TOPOLOGY": "4x4"}
FLAGS = ["--config=c.py", "--workdir=/mnt/runs/a run", "--config.phases=((128, 1.0),)"]


def run_script(script, *words, cwd, env=None, check=True) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(LAUNCH / script), *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PATH": f"{NO_PYTHON}{os.pathsep}{os.environ['PATH']}"} | (env or {}),
        capture_output=True,
        text=True,
        check=check,
        timeout=120,
    )


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs shellcheck (the extra test)")
def test_shellcheck_finds_nothing():
    names = [script.name for script in SCRIPTS]
    subprocess.run(["shellcheck", "--external-sources", *names], cwd=LAUNCH, check=True)


@pytest.mark.parametrize(
    "script", [s for s in SCRIPTS if s.name not in SOURCED], ids=lambda s: s.name
)
def test_help_is_the_head_of_a_script_and_needs_nothing(script, tmp_path):
    done = run_script(script, "--config=c.py", "--help", "--dry_run", cwd=tmp_path)
    head = script.read_text().partition("\nset -")[0]
    assert done.stdout and all(f"# {line}".rstrip() in head for line in done.stdout.splitlines())
    assert f"launch/{script.name}" in done.stdout and "--dry_run" in done.stdout
    assert not done.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", PASSING)
def test_a_dry_run_prints_the_same_line_of_the_program_and_runs_nothing(name, tmp_path):
    done = run_script(name, "--dry_run", *FLAGS, cwd=tmp_path, env=TPU | {"PROCESSES": "3"})
    assert "Not checked: no Python here has what bert_jax requires." in done.stderr
    words = shlex.split(done.stdout)
    if name == "tpu_vm.sh":  # the command for the workers is one word
        words = shlex.split(next(word for word in words if word.startswith("--command=")))
    lines = [i for i, word in enumerate(words) if word == "bert_jax.main"]
    assert len(lines) == (3 if name == "local_multiprocess.sh" else len(lines)) > 0
    for i in lines:
        rest = words[i + 1 :]
        assert rest[rest.index(FLAGS[0]) :][:3] == FLAGS
    assert not list(tmp_path.iterdir())


def test_the_checks_are_the_same_for_all(tmp_path):
    output = run_script("test.sh", "--dry_run", "-m", "slow", cwd=tmp_path).stdout
    *checks, tests = map(shlex.split, output.splitlines())
    assert [words[0] for words in checks] == ["ruff", "ruff", "lint-imports", "pyright"]
    assert tests[:3] == ["python", "-m", "pytest"] and tests[-2:] == ["-m", "slow"]


def test_gpus_get_the_versions_of_their_measurements():
    """All others are those of constraints.txt."""
    cpu, gpu = (
        dict(line.split("==") for line in (REPOSITORY / name).read_text().splitlines()[skipped:])
        for name, skipped in (("constraints.txt", 1), ("constraints-cuda.txt", 2))
    )
    changed = {name: gpu.get(name) for name in cpu if gpu.get(name) != cpu[name]}
    assert changed == {"jax": "0.11.2", "jaxlib": "0.11.2", "flax": "0.12.12", "libtpu": None}
    assert gpu.keys() <= cpu.keys()


XLA = "--xla_gpu_enable_triton_gemm=false --xla_gpu_enable_cublaslt=true"
COMMAND = "slurm_command.sbatch"


@pytest.mark.parametrize(
    ("script", "words", "env", "expected"),
    [
        ("quickstart.sh", ["my run"], {}, "--workdir={0}/my run"),
        ("quickstart.sh", ["--config=mine.py"], {}, "--workdir={0}/quickstart --config=mine.py"),
        ("gpu_server.sh", FLAGS, {}, f"XLA_FLAGS={XLA}"),
        ("gpu_server.sh", FLAGS, {"DETERMINISTIC": "1"}, f"{XLA} --xla_gpu_deterministic_ops=true"),
        ("gpu_server.sh", FLAGS, {"XLA_FLAGS": "--own"}, f"XLA_FLAGS={XLA} --own"),
        ("tpu_vm.sh", FLAGS, TPU | {"TYPE": "v6e-8"}, "--runtime-version=v2-alpha-tpuv6e "),
        ("tpu_vm.sh", FLAGS, TPU | {"TYPE": "v9-8", "VERSION": "own"}, "--runtime-version=own "),
        ("slurm.sbatch", ["--config=c.py", "--workdir=w"], {}, "prepare --config=c.py --workdir=w"),
        (COMMAND, ["evaluate", "--workdir=a"], {}, "python -m bert_jax evaluate --workdir=a"),
        (
            *(COMMAND, ["sweep", "--workdir=d", "--stage", "1"], {"SLURM_ARRAY_TASK_ID": "14"}),
            "srun --ntasks=1 python -m bert_jax sweep --workdir=d --stage 1 --number=14 scontrol",
        ),
    ],
)
def test_what_a_launcher_adds(script, words, env, expected, tmp_path):
    env = {"XLA_FLAGS": "", "DETERMINISTIC": "", "VERSION": ""} | env
    done = run_script(script, "--dry_run", *words, cwd=tmp_path, env=env)
    assert expected.format(tmp_path) in " ".join(shlex.split(done.stdout))


@pytest.mark.parametrize(
    ("script", "change", "message"),
    [
        ("tpu_vm.sh", {"NAME": ""}, "NAME: the name of the TPU"),
        ("tpu_vm.sh", {"TYPE": "tpu7x-8"}, "is not in the Cloud TPU API: launch/jobset.sh"),
        ("tpu_vm.sh", {"TYPE": "v9-8"}, "error: TYPE=v9-8 is none of v2-N, v3-N"),
        ("tpu_vm.sh", {"SHARE": ""}, "SHARE: "),
        ("tpu_vm.sh", {"FLAGS": "--workdir=runs/base"}, "error: --workdir=gs://BUCKET/FOLDER"),
        ("jobset.sh", {"FLAGS": "--workdir=runs/base"}, "error: --workdir=gs://BUCKET/FOLDER"),
        ("jobset.sh", {"CLAIM": ""}, "CLAIM: "),
        ("jobset.sh", {"NAME": "Bert"}, "error: NAME=Bert is no name of a JobSet"),
        ("jobset.sh", {"TOPOLOGY": "16"}, "error: TOPOLOGY=16 is no topology"),
        ("jobset.sh", {"CHIPS": "3"}, "has 16 chips, not a multiple of CHIPS=3."),
        ("jobset.sh", {"TPU": ""}, "HOSTS: the number of nodes"),
        (COMMAND, {"FLAGS": ""}, "the command is missing"),
        (COMMAND, {"FLAGS": "sweep", "SLURM_ARRAY_TASK_ID": "5"}, "an array runs one stage"),
    ],
)
def test_what_a_launcher_lacks_is_an_error(script, change, message, tmp_path):
    env = {"VERSION": ""} | SLICE | (TPU if script == "tpu_vm.sh" else {}) | change
    words = env.pop("FLAGS").split() if "FLAGS" in env else FLAGS
    done = run_script(script, "--dry_run", *words, cwd=tmp_path, env=env, check=False)
    assert done.returncode != 0 and message in done.stderr


@pytest.mark.parametrize(
    ("flag", "code", "message"),
    [
        ("--config.mesh.fsdp=16", 0, "model bert, float32, mesh data=1, fsdp=16, tensor=1."),
        ("--cofig=configs/tiny.py", 2, "error: Unknown flag --cofig: did you mean --config?"),
    ],
)
def test_a_dry_run_for_a_tpu_checks_the_configuration_for_its_chips(flag, code, message, tmp_path):
    flags = [f"--config={REPOSITORY}/configs/tiny.py", "--workdir=gs://bucket/a", flag]
    words = ["bash", REPOSITORY / "launch/tpu_vm.sh", "--dry_run", *flags]
    env = os.environ | TPU | {"PYTHON": sys.executable}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == code and message in done.stderr


# ---- JobSets

ODD = [
    "--config=c.py",
    "--workdir=/mnt/runs/r",
    '--config.a="x" $(HOME) $HOME \\n',
    "--config.b=1: {2} # 3\nend",
]


def jobset(env, tmp_path, *flags) -> tuple[dict, dict, dict, dict]:
    """The manifest of a dry run, and its Job, pod and container."""
    done = run_script("jobset.sh", "--dry_run", *(flags or ODD), cwd=tmp_path, env=env)
    manifest = yaml.safe_load(done.stdout)
    (replicated,) = manifest["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    return manifest, job, pod, container


def test_a_jobset_of_gpus_has_a_pod_for_each_host(tmp_path):
    manifest, job, pod, container = jobset(GPUS | {"RESTARTS": "3"}, tmp_path)
    assert (manifest["apiVersion"], manifest["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert job["completions"] == job["parallelism"] == 3 and job["completionMode"] == "Indexed"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert mounts["/mnt/runs"]["persistentVolumeClaim"] == {"claimName": "runs"}
    # What fails restarts all pods; evictions are not counted.
    policy = manifest["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 3 and job["backoffLimit"] == 0
    assert policy["rules"][0]["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    evicted, stopped = job["podFailurePolicy"]["rules"]
    assert evicted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert stopped["onExitCodes"]["values"] == [143]
    assert pod["restartPolicy"] == "Never"  # as Kubernetes demands of a podFailurePolicy


@pytest.mark.parametrize(
    "topology, chips, hosts", [("4x4", "", 4), ("2x2x4", "", 4), ("2x4", "8", 1)]
)
def test_a_jobset_of_tpus_has_a_pod_for_each_host_of_the_slice(topology, chips, hosts, tmp_path):
    """A run in a bucket needs no claim."""
    env = SLICE | {"TOPOLOGY": topology, "CHIPS": chips, "CLAIM": ""}
    _, job, pod, container = jobset(env, tmp_path, "--config=c.py", "--workdir=gs://bucket/base")
    assert job["completions"] == job["parallelism"] == hosts
    assert container["resources"]["limits"] == {"google.com/tpu": int(chips or 4)}
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == topology
    assert [volume["name"] for volume in pod["volumes"]] == ["shm"]


# What a container runs instead of the program: writes down its arguments, and on SIGTERM "saves".
PROGRAM = """#!/usr/bin/env bash
printf '%s\\n' "$@" >words
trap 'sleep 0.5; touch saved; exit 143' TERM
touch started
while true; do sleep 0.1; done
"""


def test_an_evicted_pod_saves_and_its_program_had_the_flags_unchanged(tmp_path):
    (tmp_path / "program").write_text(PROGRAM)
    (tmp_path / "program").chmod(0o755)
    *_, container = jobset(GPUS, tmp_path)
    # In Kubernetes $$ is a dollar, and $(HOME) would be the variable.
    command = [word.replace("$$", "$") for word in container["command"]]
    python = "/bert_jax/.venv/bin/python"
    assert python in command[2]
    command[2] = command[2].replace(python, shlex.quote(str(tmp_path / "program")))
    env = os.environ | {"JOB_COMPLETION_INDEX": "2"}
    with subprocess.Popen(command, cwd=tmp_path, env=env) as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 143
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "words").read_text().split("\n", 5) == [
        *("-m", "bert_jax.main", "--coordinator=bert-hosts-0-0.bert:8476"),
        *("--num_processes=3", "--process_id=2", "\n".join([*ODD, ""])),
    ]
