"""The launchers: what they would run, and several processes."""

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


def run_script(*command, cwd, env=None, check=True) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", *map(str, command)],
        cwd=cwd,
        env=os.environ | {"PATH": f"{NO_PYTHON}{os.pathsep}{os.environ['PATH']}"} | (env or {}),
        capture_output=True,
        text=True,
        check=check,
        timeout=120,
    )


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs shellcheck (the extra test)")
def test_shellcheck_finds_nothing(tmp_path):
    names = [script.name for script in SCRIPTS]
    subprocess.run(["shellcheck", "--external-sources", *names], cwd=LAUNCH, check=True)


@pytest.mark.parametrize("name", PASSING)
def test_a_dry_run_prints_the_same_line_of_the_program_and_runs_nothing(name, tmp_path):
    flags = [
        "--config=configs/base.py",
        "--workdir=/mnt/runs/a folder",
        "--config.phases=((128, 1.0),)",
    ]
    done = run_script(LAUNCH / name, "--dry_run", *flags, cwd=tmp_path, env=TPU)
    assert "Not checked: no Python here has what bert_jax requires." in done.stderr
    words = shlex.split(done.stdout)
    if name == "tpu_vm.sh":  # the command for the workers is one word
        words = shlex.split(next(word for word in words if word.startswith("--command=")))
    lines = [i for i, word in enumerate(words) if word == "bert_jax.main"]
    assert lines
    for i in lines:
        rest = words[i + 1 :]
        assert rest[rest.index(flags[0]) :][:3] == flags
    assert not list(tmp_path.iterdir())


def test_processes_on_this_machine_differ_in_their_number_only(tmp_path):
    env = {"PROCESSES": "3", "PORT": "1234"}
    script = LAUNCH / "local_multiprocess.sh"
    lines = run_script(script, "--config=c.py", "--dry_run", cwd=tmp_path, env=env).stdout
    expected = "python -m bert_jax.main --coordinator=localhost:1234 --num_processes=3"
    assert lines.split("\n")[:3] == [
        f"{expected} --process_id={i} --config=c.py " for i in range(3)
    ]


def test_the_checks_are_the_same_for_all(tmp_path):
    output = run_script(LAUNCH / "test.sh", "--dry_run", "-m", "slow", cwd=tmp_path).stdout
    *checks, tests = map(shlex.split, output.splitlines())
    programs = [words[:2] for words in checks]
    assert programs == [
        ["ruff", "format"], ["ruff", "check"], ["lint-imports", "--no-logo"], ["pyright"],
    ]  # fmt: skip
    assert tests[:3] == ["python", "-m", "pytest"] and tests[-2:] == ["-m", "slow"]


def test_all_checks_end_with_those_of_beam(tmp_path):
    output = run_script(LAUNCH / "test.sh", "--dry_run", cwd=tmp_path).stdout
    assert output.splitlines()[-1].endswith(
        "tests/files/test_beam.py tests/data/corpus/test_beam.py "
    )


@pytest.mark.parametrize(
    "words, folder, flags",
    [
        (["my run", "--config.steps=9"], "my run", ["--config=FAST", "--config.steps=9"]),
        (["--config=configs/tiny.py"], "quickstart", ["--config=configs/tiny.py"]),
    ],
)
def test_the_quick_start_keeps_its_run_where_it_is_called(words, folder, flags, tmp_path):
    output = run_script(LAUNCH / "quickstart.sh", "--dry_run", *words, cwd=tmp_path).stdout
    fast = str(LAUNCH.parent / "configs/fast.py:plain")
    flags = [f"--workdir={tmp_path}/{folder}", *(flag.replace("FAST", fast) for flag in flags)]
    assert shlex.split(output.split("\n")[0])[3:] == flags


FAST = ["--xla_gpu_enable_triton_gemm=false", "--xla_gpu_enable_cublaslt=true"]
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, FAST),
        ({"DETERMINISTIC": "1"}, [*FAST, DETERMINISTIC]),
        (
            {"XLA_FLAGS": "--xla_gpu_enable_triton_gemm=true"},
            [*FAST, "--xla_gpu_enable_triton_gemm=true"],
        ),
    ],
)
def test_gpus_are_fast_by_default_and_deterministic_on_request(env, expected, tmp_path):
    env = {"XLA_FLAGS": "", "DETERMINISTIC": ""} | env
    words = ["--dry_run", "--config=c.py"]
    line = run_script(LAUNCH / "gpu_server.sh", *words, cwd=tmp_path, env=env).stdout
    command, variable, *_ = shlex.split(line)
    name, _, flags = variable.partition("=")
    assert (command, name, flags.split()) == ("env", "XLA_FLAGS", expected)
    assert f'XLA_FLAGS="{" ".join(FAST)}"' in (LAUNCH / "Dockerfile").read_text()


def test_gpus_get_the_versions_of_their_measurements():
    """All others are those of constraints.txt."""
    cpu, gpu = (
        dict(line.split("==") for line in (REPOSITORY / name).read_text().splitlines()[skipped:])
        for name, skipped in (("constraints.txt", 1), ("constraints-cuda.txt", 2))
    )
    changed = {name: gpu.get(name) for name in cpu if gpu.get(name) != cpu[name]}
    assert changed == {"jax": "0.11.2", "jaxlib": "0.11.2", "flax": "0.12.12", "libtpu": None}
    assert gpu.keys() <= cpu.keys()


# ---- help and dry runs


@pytest.mark.parametrize(
    "script", [s for s in SCRIPTS if s.name not in SOURCED], ids=lambda s: s.name
)
def test_help_is_the_head_of_a_script_and_needs_nothing(script, tmp_path):
    done = run_script(script, "--config=c.py", "--help", "--dry_run", cwd=tmp_path)
    head = script.read_text().partition("\nset -")[0]
    assert done.stdout and all(f"# {line}".rstrip() in head for line in done.stdout.splitlines())
    assert f"launch/{script.name}" in done.stdout and "--dry_run" in done.stdout
    assert not done.stderr and not list(tmp_path.iterdir())


# A Python that has the requirements and notes what it is asked.
CHECKING = """#!/bin/bash
[[ $1 != -c ]] || exit 0
echo "$JAX_NUM_CPU_DEVICES $*" >>"$NOTES"
exit "$CODE"
"""


@pytest.fixture
def check(tmp_path):
    """A function (script, *flags, code, **env) -> the exit code, and the line of doctor."""
    python = tmp_path / "a python"
    python.write_text(CHECKING)
    python.chmod(0o755)
    notes = tmp_path / "notes"

    def run(name, *flags, code=0, **env):
        notes.write_text("")
        unset = {"JAX_NUM_CPU_DEVICES": "", "JAX_PLATFORMS": "", "DEVICES": ""}
        env = unset | {"PYTHON": str(python), "NOTES": str(notes), "CODE": str(code)} | env
        done = run_script(LAUNCH / name, *flags, "--dry_run", cwd=tmp_path, env=env, check=False)
        return done, notes.read_text().strip()

    return run


DOCTOR = "-m bert_jax doctor --nodata"
JOBSET = {"NAME": "b", "IMAGE": "i", "HOSTS": "3", "GPUS": "8"}


@pytest.mark.parametrize(
    ("name", "env", "expected"),
    [
        ("local.sh", {}, f"{DOCTOR} --config=c.py"),
        ("gpu_server.sh", {}, f"{DOCTOR} --config=c.py"),
        ("local_multiprocess.sh", {"DEVICES": "2"}, f"4 {DOCTOR} --config=c.py"),
        ("slurm.sbatch", {}, f"16 {DOCTOR} --config=c.py"),
        ("slurm.sbatch", {"DEVICES": "4"}, f"4 {DOCTOR} --config=c.py"),
        ("tpu_vm.sh", TPU, f"16 {DOCTOR} --config=c.py"),
        ("tpu_vm.sh", TPU | {"TYPE": "v4-16"}, f"8 {DOCTOR} --config=c.py"),
        ("jobset.sh", JOBSET, f"24 {DOCTOR} --config=c.py"),
    ],
)
def test_a_dry_run_asks_doctor_with_the_devices_of_the_run(name, env, expected, check):
    done, asked = check(name, "--workdir", "gs://bucket/a", "--config=c.py", **env)
    assert (done.returncode, asked) == (0, expected), done.stderr


def test_the_folder_of_a_run_on_this_machine_is_looked_at(check):
    flags = ["--config", "c.py", "--workdir", "a"]
    assert check("local.sh", *flags)[1] == f"{DOCTOR} {' '.join(flags)}"
    assert check("slurm.sbatch", *flags)[1] == f"16 {DOCTOR} --config c.py"
    words = ["train", *flags]
    assert check("slurm_command.sbatch", *words)[1] == f"{DOCTOR} {' '.join(flags)}"


def test_a_dry_run_fails_for_wrong_settings_but_not_for_another_machine(check):
    codes = [check("local.sh", "--config=c.py", code=code)[0].returncode for code in (0, 1, 2)]
    assert codes == [0, 0, 2]
    done, asked = check("local.sh", "--workdir=w")
    assert (done.returncode, asked) == (2, "") and "error: --config is missing" in done.stderr
    for words in (["local.sh", "--mode=evaluate"], ["slurm_command.sbatch", "evaluate"]):
        done, asked = check(*words, "--workdir=w")
        assert (done.returncode, asked) == (0, "")
        assert "Not checked: a dry run checks training only." in done.stderr


@pytest.mark.parametrize(
    ("flag", "code", "message"),
    [
        ("--config.mesh.fsdp=16", 0, "model bert, float32, mesh data=1, fsdp=16, tensor=1."),
        ("--cofig=configs/tiny.py", 2, "error: Unknown flag --cofig: did you mean --config?"),
    ],
)
def test_a_dry_run_for_a_tpu_checks_the_configuration(flag, code, message, tmp_path):
    flags = [f"--config={REPOSITORY}/configs/tiny.py", "--workdir=gs://bucket/a", flag]
    env = TPU | {"PYTHON": sys.executable}
    script = REPOSITORY / "launch/tpu_vm.sh"
    done = run_script(script, *flags, "--dry_run", cwd=tmp_path, env=env, check=False)
    assert done.returncode == code, done.stderr
    assert message in done.stderr and "\ndata\n" not in done.stderr


def test_a_tpu_needs_its_name(tmp_path):
    result = run_script(LAUNCH / "tpu_vm.sh", "--dry_run", cwd=tmp_path, check=False)
    assert result.returncode != 0
    assert "NAME: the name of the TPU" in result.stderr


# ---- several processes on this machine, with a stand-in for the program

# Process 0 gets the signal, and all processes stop at the same step; process 1 fails with CODE.
PROGRAM = """#!/bin/bash
[[ $* == *create_server* ]] && echo 1234 && exit
echo "$*" >>words
[[ -z ${CODE:-} || $* != *process_id=1* ]] || exit "$CODE"
[[ $* != *process_id=0* ]] || trap 'touch stopped' TERM
touch "started$BASHPID"
until [[ -e stopped ]]; do sleep 0.05; done
exit 143
"""


@pytest.fixture
def start_two(tmp_path):
    """Returns a function (**environment) that starts two processes of the stand-in."""
    launch = tmp_path / "launch"
    launch.mkdir()
    for name in ("flags.sh", "local_multiprocess.sh"):
        shutil.copy(LAUNCH / name, launch)
    (launch / "python").write_text(PROGRAM)
    (launch / "python").chmod(0o755)
    (launch / "environment.sh").write_text(f"PATH={shlex.quote(str(launch))}:$PATH\n")
    started = []

    def start(**environment) -> subprocess.Popen:
        command = ["bash", launch / "local_multiprocess.sh", "--config=c.py", "--workdir=a run"]
        env = os.environ | {"PROCESSES": "2"} | environment
        started.append(subprocess.Popen(command, cwd=tmp_path, env=env))
        return started[-1]

    yield start
    (tmp_path / "stopped").touch()
    for process in started:
        process.kill()
        process.wait()


def test_a_signal_to_the_launcher_stops_all_processes(start_two, tmp_path):
    process = start_two()
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob("started*"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    words = sorted((tmp_path / "words").read_text().splitlines())
    expected = "-m bert_jax.main --coordinator=localhost:1234 --num_processes=2"
    flags = "--config=c.py --workdir=a run"
    assert words == [f"{expected} --process_id={i} {flags}" for i in range(2)]


def test_a_process_that_fails_ends_the_others(start_two):
    assert start_two(CODE="3").wait(timeout=30) == 3
