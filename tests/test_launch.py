"""The launchers: what they would run, the environment they make, several processes."""

import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time

import pytest

LAUNCH = pathlib.Path(__file__).resolve().parents[1] / "launch"
SCRIPTS = sorted([*LAUNCH.glob("*.sh"), *LAUNCH.glob("*.sbatch")])
# Launchers that pass all their flags on to the program.
PASSING = ("local.sh", "local_multiprocess.sh", "gpu_server.sh", "slurm.sbatch", "tpu_vm.sh")
TPU = {"NAME": "bert", "ZONE": "here", "TYPE": "v5litepod-16", "SHARE": "host:/runs"}


def run_script(*command, cwd, env=None, check=True) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", *map(str, command)],
        cwd=cwd,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        check=check,
        timeout=120,
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash(script, tmp_path):
    run_script("-n", script, cwd=tmp_path)


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
    output = run_script(LAUNCH / name, "--dry_run", *flags, cwd=tmp_path, env=TPU).stdout
    words = shlex.split(output)
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
    lines = run_script(script, "--dry_run", "--workdir=w", cwd=tmp_path, env=env).stdout
    expected = "python -m bert_jax.main --coordinator=localhost:1234 --num_processes=3"
    assert lines.split("\n")[:3] == [f"{expected} --process_id={i} --workdir=w " for i in range(3)]


def test_the_checks_are_the_same_for_all(tmp_path):
    output = run_script(LAUNCH / "test.sh", "--dry_run", "-m", "slow", cwd=tmp_path).stdout
    *checks, tests = map(shlex.split, output.splitlines())
    assert checks == [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["pyright"]]
    assert tests[:3] == ["python", "-m", "pytest"] and tests[-2:] == ["-m", "slow"]


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


@pytest.mark.parametrize("name", ["gpu_server.sh", "slurm.sbatch", "Dockerfile"])
def test_gpus_are_asked_for_operations_that_repeat_themselves(name):
    assert "--xla_gpu_deterministic_ops=true" in (LAUNCH / name).read_text()


def test_a_tpu_needs_its_name(tmp_path):
    result = run_script(LAUNCH / "tpu_vm.sh", "--dry_run", cwd=tmp_path, check=False)
    assert result.returncode != 0
    assert "NAME: the name of the TPU" in result.stderr


# ---- environment.sh, with an interpreter that only writes down what it is asked

FAKE_PYTHON = """#!/bin/bash
case "$*" in
  -c*) [[ -z ${TOO_OLD:-} ]]; exit ;;
  "-m venv --clear .venv") [[ -z ${NO_ENSUREPIP:-} ]] || { mkdir -p .venv; exit 1; } ;;
esac
echo "$*" >>calls
if [[ "$*" == "-m venv"* ]]; then
  rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python && touch .venv/bin/activate
fi
[[ "$*" != *--editable* || -z ${INTERRUPTED:-} ]]
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a space in its path, and a function that enters it and tells the calls."""
    root = tmp_path / "my checkout"
    (root / "launch").mkdir(parents=True)
    shutil.copy(LAUNCH / "environment.sh", root / "launch")
    for name in ("setup.py", "constraints.txt"):
        (root / name).write_text("")
    python = tmp_path / "fake python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)

    def enter(check=True, **env) -> list[str]:
        (root / "calls").write_text("")
        # The arguments of a script that sources it are none of its business.
        script = 'set -euo pipefail; source "$0/launch/environment.sh"; echo "root $root"'
        env = {"PYTHON": str(python), "EXTRAS": ""} | env
        result = run_script("-c", script, root, "--flag", cwd=tmp_path, env=env, check=check)
        assert result.returncode or f"root {root}" in result.stdout
        enter.errors = result.stderr
        return (root / "calls").read_text().splitlines()

    enter.root = root
    return enter


PIP = "-m pip install --quiet --disable-pip-version-check -c constraints.txt"


def test_the_environment_is_made_once(checkout):
    assert checkout() == ["-m venv --clear .venv", f"{PIP} --editable ."]
    assert checkout() == []


def test_extras_are_added_to_what_is_there_and_torch_comes_first(checkout):
    checkout()
    assert checkout(EXTRAS="parity test") == [
        f"{PIP} torch",
        f"{PIP} --editable .[parity,test]",
    ]
    assert checkout(EXTRAS="test") == []
    assert checkout() == []


def test_an_interrupted_installation_is_made_anew(checkout):
    checkout(check=False, INTERRUPTED="1")
    assert checkout() == ["-m venv --clear .venv", f"{PIP} --editable ."]


def test_other_versions_and_another_place_are_made_anew(checkout, tmp_path):
    checkout(EXTRAS="test")
    (checkout.root / "constraints.txt").write_text("numpy==2.4.0\n")
    assert checkout()[0] == "-m venv --clear .venv"
    assert checkout(EXTRAS="test") == [f"{PIP} --editable .[test]"]


def test_an_interpreter_without_ensurepip_lends_its_own_pip(checkout):
    assert checkout(NO_ENSUREPIP="1") == [
        "-m venv --clear --without-pip .venv",
        "-m pip --python .venv/bin/python install --quiet pip",
        f"{PIP} --editable .",
    ]


def test_an_old_interpreter_is_named(checkout):
    assert checkout(check=False, TOO_OLD="1") == []
    assert "no Python 3.11 or later" in checkout.errors
    assert "PYTHON=..." in checkout.errors


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
    shutil.copy(LAUNCH / "local_multiprocess.sh", launch)
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
