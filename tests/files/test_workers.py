"""The pool of processes: results, errors, and the death of a process."""

import functools
import os
import signal

import pytest

from bert_jax.files.workers import Workers


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


def test_a_process_that_dies_is_reported():
    with (
        Workers(2) as workers,
        pytest.raises(OSError, match="a worker process died.*num_processes"),
    ):
        list(workers.run([functools.partial(signal.raise_signal, signal.SIGKILL)]))
