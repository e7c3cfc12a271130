"""The launchers: what they would run, the environment they make, several processes that train."""

import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

import psutil
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


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_stay_short(script):
    assert len(script.read_text().splitlines()) <= 120


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


def test_the_quick_start_keeps_its_run_where_it_is_called(tmp_path):
    output = run_script(
        LAUNCH / "quickstart.sh", "--dry_run", "my run", "--config.steps=9", cwd=tmp_path
    ).stdout
    first = shlex.split(output.split("\n")[0])
    config, workdir = (
        f"--config={LAUNCH.parent}/configs/fast.py:tiny",
        f"--workdir={tmp_path}/my run",
    )
    assert first[3:] == [workdir, config, "--config.steps=9"]


def test_the_quick_start_takes_another_configuration(tmp_path):
    paper = "--config=configs/tiny.py"
    output = run_script(LAUNCH / "quickstart.sh", "--dry_run", paper, cwd=tmp_path).stdout
    assert shlex.split(output.split("\n")[0])[3:] == [f"--workdir={tmp_path}/quickstart", paper]


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


# ---- several processes, really

TINY = (
    "model.vocab_size=256 model.hidden_size=16 model.num_layers=1 model.num_heads=2"
    " model.intermediate_size=32 global_batch_size=8 phases=((32,1.0),) data.dupe_factor=1"
    " data.num_processes=1 data.validation_share=0 prng_impl=threefry2x32 log.every=1"
).split()


@pytest.fixture
def start_two(tmp_path):
    """Returns a function that starts two processes on text of its own, in an empty folder."""
    words = "the a of list set item value returns holds each is not empty when called with".split()
    sentences = [" ".join(words[(i * k) % len(words)] for k in range(1, 9)) for i in range(1, 200)]
    documents = ["\n".join(sentences[i : i + 10]) for i in range(0, 190, 10)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    # Here there is an environment already: a checkout whose launcher finds it.
    launch = tmp_path / "launch"
    launch.mkdir()
    shutil.copy(LAUNCH / "local_multiprocess.sh", launch)
    bin_folder = pathlib.Path(sys.executable).parent
    (launch / "environment.sh").write_text(f"PATH={shlex.quote(str(bin_folder))}:$PATH\n")
    started = []

    def start(*flags) -> subprocess.Popen:
        overrides = [f"--config.{setting}" for setting in TINY]
        command = ["bash", launch / "local_multiprocess.sh"]
        command += [f"--config={LAUNCH.parent}/configs/tiny.py", f"--workdir={tmp_path}/run"]
        command += [f"--config.data.source=text:{tmp_path}/text.txt", *overrides, *flags]
        started.append(
            subprocess.Popen(
                command,
                cwd=tmp_path,
                env=os.environ | {"PROCESSES": "2"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    start.workdir = tmp_path / "run"
    yield start
    for process in started:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.communicate()


def steps_of(workdir) -> list[int]:
    path = workdir / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["step"] for line in lines]


def test_two_processes_stop_together_and_go_on(start_two):
    process = start_two("--config.steps=100000", "--config.optimizer.warmup=10")
    deadline = time.monotonic() + 100
    while len(steps_of(start_two.workdir)) < 3 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "2 processes, mesh data=2" in output
    assert "Stopped by SIGTERM after step" in output
    last = steps_of(start_two.workdir)[-1]
    assert f"after step {last}," in output
    assert (start_two.workdir / "checkpoints" / f"{last}.sha256.json").exists()


def test_a_process_that_fails_ends_the_others(start_two):
    output, _ = (process := start_two("--config.steps=-1")).communicate(timeout=60)
    assert process.returncode == 2
    assert "error: config.steps=-1 must be above 0." in output
