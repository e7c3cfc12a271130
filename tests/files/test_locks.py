"""A folder has one holder at a time; a lock that nobody holds any more is taken over."""

import fcntl
import json
import os
import subprocess
import sys
import threading

import pytest

from bert_jax.files import locks
from bert_jax.files.errors import UserError
from bert_jax.files.locks import lock

_HOLD = (
    "import sys; from bert_jax.files.locks import lock\n"
    "with lock(sys.argv[1]):\n"
    "    print(flush=True)\n"
    "    sys.stdin.read()\n"
)


@pytest.fixture
def folder(tmp_path) -> str:
    return str(tmp_path / "run")


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def other(folder):
    """Another process that has locked the folder."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _HOLD, folder], **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def write_holder(folder, **changes) -> None:
    """Leaves a lock file as a process does that is killed."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, locks.NAME), "w") as file:
        json.dump(locks._this_process() | changes, file)


def refuse(folder) -> str:
    with pytest.raises(UserError) as error, lock(folder):
        pass
    return str(error.value)


def test_another_process_is_refused_and_named(folder, other):
    text = refuse(folder)
    assert f"{folder} is in use by process {other.pid} on {os.uname().nodename} (since 2" in text
    other.communicate("")
    with lock(folder):
        pass
    assert not os.path.exists(folder)


def test_a_killed_process_leaves_a_lock_that_is_taken_over(folder, other, lines):
    other.kill()
    other.wait()
    with lock(folder, lines.append):
        assert refuse_in_a_thread(folder)
    assert lines[0].endswith("which has ended, is taken over")
    assert f"process {other.pid} on" in lines[0]


def refuse_in_a_thread(folder) -> list[str]:
    found = []
    thread = threading.Thread(target=lambda: found.append(refuse(folder)))
    thread.start()
    thread.join()
    return found


def test_one_thread_may_lock_twice_and_another_may_not(folder):
    with lock(folder), lock(f"{folder}/../run"):
        assert f"process {os.getpid()} on" in refuse_in_a_thread(folder)[0]
    with lock(folder):
        pass


def test_an_error_leaves_no_lock_and_no_new_folder(folder):
    with pytest.raises(RuntimeError), lock(folder):
        raise RuntimeError
    assert not os.path.exists(folder)
    os.mkdir(folder)
    with pytest.raises(RuntimeError), lock(folder):
        raise RuntimeError
    assert os.listdir(folder) == []


def test_children_that_outlive_the_holder_do_not_keep_it(folder, other, lines):
    """The lock of a process that forked belongs to the child, too."""
    write_holder(folder, process=other.pid, began="1")  # another process of that number
    with lock(folder, lines.append):
        pass
    assert lines[0].endswith("which has ended, is removed")


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_requeued_job_takes_over_on_another_node(folder, other, lines, monkeypatch, restarts):
    """flock of the node that failed is still held, as the kernel of a server sees it."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
    write_holder(folder, host="node-1", restarts=0)
    if not restarts:
        assert "on node-1" in refuse(folder)
        return
    with lock(folder, lines.append):
        pass
    assert "on node-1" in lines[0] and lines[0].endswith("which has ended, is removed")


def test_file_systems_without_locks(folder, lines, monkeypatch):
    def refuse_flock(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse_flock)
    with lock(folder):
        assert "is in use by process" in refuse_in_a_thread(folder)[0]
    write_holder(folder, began="1")
    with lock(folder, lines.append):
        pass
    assert lines
    write_holder(folder, host="node-1")
    assert f"remove {folder}/lock.json" in refuse(folder)
