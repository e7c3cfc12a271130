"""Scripts as jobs: order, failures, signals, kills, locks, devices."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from bert_jax.tools.sweep import process as processes
from bert_jax.tools.sweep import record, schedule
from bert_jax.tools.sweep.progress import Board, describe
from bert_jax.tools.sweep.slots import Slot
from tests.tools.sweep.conftest import script

# Appends its folder's name to a file that all jobs share.
NOTE = "open('../../order', 'a').write(os.path.basename(os.getcwd()) + '\\n')\n"
# As training does on SIGTERM: it saves, says so, and ends well.
SAVES = (
    "import signal, sys, time\n"
    "def stop(*_):\n"
    "    open('saved', 'w').close()\n"
    "    print('Stopped by SIGTERM after step 3, which is saved.', flush=True)\n"
    "    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, stop)\n"
    "open('ready', 'w').close()\n"
    "time.sleep(0.0 if os.path.exists('saved') else 60)\n"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(schedule, "_SECONDS_BETWEEN_LOOKS", 0.01)


@pytest.fixture
def run(tmp_path):
    """Returns a function (*jobs) -> (outcome, printed lines)."""

    def run(*jobs, slots=()):
        stream = io.StringIO()
        outcome = schedule.run_jobs(
            jobs,
            {job.name: job for job in jobs},
            slots or [Slot(0)],
            str(tmp_path),
            Board(str(tmp_path), stream),
        )
        return outcome, stream.getvalue().splitlines()

    return run


def order(folder) -> list[str]:
    return (folder / "order").read_text().split()


def wait_until(is_true, seconds=20):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def test_jobs_run_in_order_and_once(run, tmp_path):
    jobs = script("a", NOTE), script("b", NOTE, needs=("a",)), script("c", NOTE)
    outcome, lines = run(*jobs)
    assert outcome == schedule.Outcome(finished=["a", "b", "c"])
    assert order(tmp_path) == ["a", "b", "c"]
    assert lines[:2] == ["a: started", "a: finished after 0:00 (1 of 3)"]
    again, lines = run(*jobs)
    assert (again.finished, lines) == (["a", "b", "c"], [])
    assert order(tmp_path) == ["a", "b", "c"]


def test_a_failure_skips_what_depends_on_it_and_nothing_else(run, tmp_path):
    jobs = (
        script("bad", "print('one')\nprint('two')\nraise SystemExit(3)"),
        script("child", NOTE, needs=("bad",)),
        script("grandchild", NOTE, needs=("child",)),
        script("good", NOTE),
    )
    outcome, lines = run(*jobs)
    assert outcome.failed == {"bad": "exit code 3"}
    assert outcome.skipped == {"child": "bad", "grandchild": "bad"}
    assert (outcome.finished, order(tmp_path)) == (["good"], ["good"])
    assert "child: skipped, since it needs bad" in lines
    told = outcome.describe_failures(str(tmp_path))
    assert told[1].startswith("bad failed: exit code 3. Its output is in ")
    assert told[-5:] == [
        "    one",
        "    two",
        "",
        "child was skipped: it needs bad.",
        "grandchild was skipped: it needs bad.",
    ]
    # What failed is tried again by the next start.
    retried, _ = run(script("bad", NOTE), *jobs[1:])
    assert retried.finished == ["good", "bad", "child", "grandchild"]


def test_a_killed_process_is_a_failure_that_says_so(run):
    outcome, _ = run(script("a", "os.kill(os.getpid(), 9)"), script("b", "os.kill(os.getpid(), 6)"))
    assert outcome.failed == {
        "a": "killed by SIGKILL, perhaps for lack of memory",
        "b": "killed by SIGABRT",
    }


def test_jobs_on_several_slots_run_together_on_their_own_devices(run, tmp_path):
    meet = (  # ends only if the other job runs at the same time
        "import json, time\n"
        "open('../../met-' + os.path.basename(os.getcwd()), 'w').close()\n"
        "seen = [sorted(os.sched_getaffinity(0)), os.environ.get('CUDA_VISIBLE_DEVICES')]\n"
        "json.dump(seen, open('seen.json', 'w'))\n"
        "while not all(os.path.exists('../../met-' + name) for name in 'ab'): time.sleep(0.01)\n"
    )
    cores = sorted(os.sched_getaffinity(0))
    first, last = frozenset(cores[:1]), frozenset(cores[-1:])
    slots = [
        Slot(0, first, {"CUDA_VISIBLE_DEVICES": "0,1"}),
        Slot(1, last, {"CUDA_VISIBLE_DEVICES": "2,3"}),
    ]
    outcome, lines = run(script("a", meet), script("b", meet), script("c"), slots=slots)
    assert sorted(outcome.finished) == ["a", "b", "c"]
    seen = [json.loads((record.folder_of(x, tmp_path) / "seen.json").read_text()) for x in "ab"]
    assert seen == [[sorted(first), "0,1"], [sorted(last), "2,3"]]
    assert lines[0] == f"a: started on cores {cores[0]}, CUDA_VISIBLE_DEVICES=0,1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_processes_save_and_the_next_start_resumes(number, run, tmp_path):
    job, after = script("a", SAVES), script("b", NOTE, needs=("a",))
    ready = record.folder_of("a", tmp_path) / "ready"

    def interrupt():
        wait_until(ready.exists)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    outcome, lines = run(job, after)
    thread.join()
    assert outcome == schedule.Outcome(signal_name=signal.Signals(number).name)
    assert lines[-1] == "a: stopped; it will be resumed"
    assert not record.is_finished("a", tmp_path)
    outcome, lines = run(job, after)
    assert outcome.finished == ["a", "b"]
    assert lines[0] == "a: resumed"


def test_a_second_signal_ends_what_does_not_stop(run, tmp_path):
    stubborn = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: open('asked', 'w').close())\n"
        "open('ready', 'w').close()\n"
        "while True: time.sleep(1)\n"
    )
    folder = record.folder_of("a", tmp_path)

    def interrupt():
        for name in ("ready", "asked"):
            wait_until((folder / name).exists)
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    outcome, _ = run(script("a", stubborn))
    thread.join()
    assert (outcome.finished, outcome.signal_name) == ([], "SIGTERM")


def test_a_run_that_somebody_else_stopped_is_not_complete(run):
    said = "print('Stopped by SIGTERM after step 3, which is saved.')"
    outcome, _ = run(script("a", said))
    assert outcome.failed == {"a": "another process stopped it with a signal"}


def test_the_processes_of_a_killed_sweep_save_and_the_next_one_waits_for_them(run, tmp_path):
    """The lock of the folder outlives the sweep, and the kernel tells the process to stop."""
    slow = SAVES.replace("open('saved'", "time.sleep(0.3)\n    open('saved'")
    program = (
        "import sys\n"
        "from bert_jax.tools.sweep import schedule\n"
        "from bert_jax.tools.sweep.progress import Board\n"
        "from bert_jax.tools.sweep.slots import Slot\n"
        "from tests.tools.sweep.conftest import script\n"
        f"job = script('a', {slow!r})\n"
        f"schedule.run_jobs([job], {{'a': job}}, [Slot(0)], {str(tmp_path)!r}, Board(''))\n"
    )
    sweep = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    folder = record.folder_of("a", tmp_path)
    wait_until((folder / "ready").exists)
    sweep.kill()
    sweep.wait()
    assert not (folder / "saved").exists()
    outcome, lines = run(script("a", slow))
    assert lines[0] == "a: waiting, since another process works in its folder"
    assert (outcome.finished, (folder / "saved").exists()) == (["a"], True)


def test_a_locked_folder_is_left_to_its_process(tmp_path):
    lock = processes.try_lock("a", str(tmp_path))
    assert processes.try_lock("a", str(tmp_path)) is None
    lock.close()
    processes.try_lock("a", str(tmp_path)).close()


# ------------------------------------------------------------------------------------- progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Running:
    """A process as the board sees it."""

    def __init__(self, name, kind="train"):
        self.job, self.seconds = script(name), 65.0
        object.__setattr__(self.job, "kind", kind)


def write_progress(folder, lines, log):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "log.txt").write_text(log)


def test_a_line_has_step_loss_and_remaining_time(tmp_path):
    rows = [
        {"step": 10, "split": "train", "loss": 9.5, "speed": {"steps_per_second": 1.0}},
        {"step": 20, "split": "train", "loss": 8.25, "speed": {"steps_per_second": 4.0}},
        {"step": 20, "split": "validation", "loss": 7.0},
    ]
    log = "phase      steps 0-500: ...\nstep  20/500  loss 8.25  ...\n"
    write_progress(record.folder_of("a", tmp_path), rows, log)
    shown = describe(Running("a"), str(tmp_path))
    assert shown == "a  step 20/500  loss 8.25  ETA 2:00  running for 1:05"  # 480 steps, 4 a second
    assert describe(Running("b"), str(tmp_path)) == "b  starts  running for 1:05"
    assert "prepares data" in describe(Running("c", "prepare"), str(tmp_path))


def test_lines_are_replaced_on_a_terminal(tmp_path):
    stream = Terminal()
    board = Board(str(tmp_path), stream)
    for _ in range(2):
        board.refresh([Running("a"), Running("b")], "0 of 2 complete")
    board.event("a: finished")
    board.refresh([], "")
    erase = "\x1b[3A\x1b[J"
    assert stream.getvalue().count(erase) == 2
    assert stream.getvalue().endswith(f"{erase}a: finished\n")


def test_elsewhere_a_running_job_has_a_line_a_minute(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    board = Board(str(tmp_path), stream)
    for now[0] in (0.0, 59.0, 60.0, 61.0, 119.0, 121.0):
        board.refresh([Running("a")], "")
    assert stream.getvalue().count("a  starts") == 2 and "\x1b" not in stream.getvalue()
