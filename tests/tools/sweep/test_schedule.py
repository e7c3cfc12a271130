"""Scripts as jobs: order, failures, signals, kills, locks, devices, progress."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from bert_jax.tools.sweep import record, schedule
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
    "    sys.exit(143)\n"
    "signal.signal(signal.SIGTERM, stop)\n"
    "open('ready', 'w').close()\n"
    "time.sleep(0.0 if os.path.exists('saved') else 60)\n"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(schedule, "_SECONDS_BETWEEN_LOOKS", 0.01)


@pytest.fixture
def run(tmp_path, capsys):
    """Returns a function (*jobs) -> (outcome, printed lines)."""

    def run(*jobs, slots=()):
        by_name = {job.name: job for job in jobs}
        outcome = schedule.run_jobs(jobs, by_name, slots or [Slot(0)], str(tmp_path))
        return outcome, capsys.readouterr().out.splitlines()

    return run


def wait_until(is_true, seconds=20):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def test_jobs_run_in_order_and_once(run, tmp_path):
    jobs = script("a", NOTE), script("b", NOTE, needs=("a",)), script("c", NOTE)
    outcome, lines = run(*jobs)
    assert outcome == schedule.Outcome(finished=["a", "b", "c"])
    assert lines[:2] == ["a: started", "a: finished after 0:00 (1 of 3)"]
    again, lines = run(*jobs)
    assert (again.finished, lines) == (["a", "b", "c"], [])
    assert (tmp_path / "order").read_text().split() == ["a", "b", "c"]


def test_a_failure_skips_what_depends_on_it_and_nothing_else(run, tmp_path):
    jobs = (
        script("bad", "print('one')\nprint('two')\nraise SystemExit(3)"),
        script("child", needs=("bad",)),
        script("grandchild", needs=("child",)),
        script("good"),
    )
    outcome, lines = run(*jobs)
    assert outcome.failed == {"bad": "exit code 3"}
    assert outcome.skipped == {"child": "bad", "grandchild": "bad"}
    assert outcome.finished == ["good"]
    assert "child: skipped, since it needs bad" in lines
    _, first, *_, one, two, _, child, grandchild = outcome.describe_failures(str(tmp_path))
    assert first.startswith("bad failed: exit code 3. Its output is in ")
    assert (one, two) == ("    one", "    two")
    assert child == "child was skipped: it needs bad."
    assert grandchild == "grandchild was skipped: it needs bad."
    # What failed is tried again by the next start.
    retried, _ = run(script("bad"), *jobs[1:])
    assert retried.finished == ["good", "bad", "child", "grandchild"]


def test_a_failure_has_its_reason(run):
    codes = {
        "killed by SIGKILL, perhaps for lack of memory": "os.kill(os.getpid(), 9)",
        "killed by SIGABRT": "os.kill(os.getpid(), 6)",
        "another process stopped it with a signal": "raise SystemExit(143)",
    }
    outcome, _ = run(*(script(f"job{i}", code) for i, code in enumerate(codes.values())))
    assert [*outcome.failed.values()] == [*codes]


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


@pytest.fixture
def interrupt(tmp_path):
    """Returns a function: as soon as job `a` has made a file, this process receives a signal."""
    threads = []

    def interrupt(number, *files):
        def wait():
            for file in files:
                wait_until((record.folder_of("a", tmp_path) / file).exists)
                os.kill(os.getpid(), number)

        threads.append(threading.Thread(target=wait))
        threads[0].start()

    yield interrupt
    threads[0].join()


def test_a_signal_lets_the_processes_save_and_the_next_start_resumes(run, interrupt):
    jobs = script("a", SAVES), script("b", needs=("a",))
    interrupt(signal.SIGINT, "ready")
    outcome, lines = run(*jobs)
    assert outcome == schedule.Outcome(signal_name="SIGINT")
    assert lines[-1] == "a: stopped; it will be resumed"
    outcome, lines = run(*jobs)
    assert (outcome.finished, lines[0]) == (["a", "b"], "a: resumed")


def test_a_second_signal_ends_what_does_not_stop(run, interrupt):
    stubborn = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: open('asked', 'w').close())\n"
        "open('ready', 'w').close()\n"
        "while True: time.sleep(1)\n"
    )
    interrupt(signal.SIGTERM, "ready", "asked")
    outcome, _ = run(script("a", stubborn))
    assert (outcome.finished, outcome.signal_name) == ([], "SIGTERM")


def test_the_processes_of_a_killed_sweep_save_and_the_next_one_waits_for_them(run, tmp_path):
    """The lock of the folder outlives the sweep, and the kernel tells the process to stop."""
    slow = SAVES.replace("open('saved'", "time.sleep(0.3)\n    open('saved'")
    program = (
        "from bert_jax.tools.sweep import schedule\n"
        "from bert_jax.tools.sweep.slots import Slot\n"
        "from tests.tools.sweep.conftest import script\n"
        f"job = script('a', {slow!r})\n"
        f"schedule.run_jobs([job], {{'a': job}}, [Slot(0)], {str(tmp_path)!r})\n"
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


def test_a_running_job_has_a_line_with_step_loss_and_remaining_time(run, monkeypatch):
    monkeypatch.setattr(schedule, "_SECONDS_BETWEEN_LINES", 0.05)
    code = (
        "import json, time\n"
        "time.sleep(0.3)\n"
        "open('starts.jsonl', 'w').write(json.dumps({'step': 0, 'steps': 500}) + '\\n')\n"
        "row = {'step': 20, 'split': 'train', 'loss': 8.25, 'speed': {'steps_per_second': 4.0}}\n"
        "open('metrics.jsonl', 'w').write(json.dumps(row) + '\\n')\n"
        "time.sleep(0.3)\n"
    )
    _, lines = run(script("a", code))
    assert "a  prepares data  running for 0:00" in lines
    # 480 steps at 4 a second.
    assert any(x.startswith("a  step 20/500  loss 8.25  ETA 2:00  running for 0:0") for x in lines)
