"""The pool of processes: results, errors, and the death of a process."""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from bert_jax.files.workers import Workers

REPOSITORY = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module", params=[1, 2])
def workers(request):
    with Workers(request.param) as workers:
        yield workers


def test_all_jobs_are_done(workers):
    results = list(workers.run([functools.partial(divmod, n, 7) for n in range(50)]))
    assert sorted(results) == sorted(divmod(n, 7) for n in range(50))
    assert list(workers.run([])) == []


def test_what_a_job_raises_is_raised_here(workers):
    with pytest.raises(ValueError, match="invalid literal for int.*'x'"):
        list(workers.run([functools.partial(int, text) for text in "1x"]))
    with pytest.raises(FileNotFoundError) as error:
        list(workers.run([functools.partial(os.stat, "/no/such/file")]))
    assert error.value.filename == "/no/such/file"


def test_a_defect_shows_where_it_is():
    with Workers(2) as workers, pytest.raises(ZeroDivisionError) as error:
        list(workers.run([functools.partial(divmod, 1, 0)]))
    assert "In a worker process" in error.value.__notes__[0]


def test_a_process_that_dies_is_reported():
    with (
        Workers(2) as workers,
        pytest.raises(OSError, match="a worker process died.*num_processes"),
    ):
        list(workers.run([functools.partial(signal.raise_signal, signal.SIGKILL)]))


def test_an_error_ends_the_other_jobs_too():
    started = time.monotonic()
    jobs = [functools.partial(time.sleep, 600), functools.partial(os.stat, "/no/such/file")]
    with Workers(2) as workers, pytest.raises(FileNotFoundError):
        list(workers.run(jobs))
    assert time.monotonic() - started < 60


def test_workers_neither_import_nor_run_the_script_that_starts_them(tmp_path):
    """A script without a guard; a module beside it is found."""
    (tmp_path / "beside.py").write_text("def double(n): return 2 * n")
    (tmp_path / "script.py").write_text(
        "import functools, beside\n"
        "from bert_jax.files.workers import Workers\n"
        "print('runs')\n"
        "with Workers(2) as workers:\n"
        "    jobs = [functools.partial(beside.double, n) for n in range(4)]\n"
        "    print(sorted(workers.run(jobs)))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    for words in (["script.py"], ["-m", "script"], ["-c", "import script"]):
        command = [sys.executable, *words]
        found = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
        assert found == "runs\n[0, 2, 4, 6]\n"


def test_workers_end_with_a_process_that_is_killed():
    program = (
        "import functools, os, time; from bert_jax.files.workers import Workers\n"
        "with Workers(2) as workers:\n"
        "    print(*workers.run([os.getpid]), flush=True)\n"
        "    list(workers.run([functools.partial(time.sleep, 600)]))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{worker}") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{worker}")
