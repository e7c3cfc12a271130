"""Preparation that several programs divide between them: the bytes of one program."""

import fcntl
import pathlib
import threading
import time

import pytest

from bert_jax.data.corpus.jobs import Jobs
from bert_jax.data.corpus.prepare import prepare
from bert_jax.files import shares
from bert_jax.files.shares import OtherTaskError, parse_share
from tests.data.corpus.corpora import contents, make_config, quiet

pytestmark = pytest.mark.usefixtures("small_units")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(shares, "_POLL_SECONDS", 0.01)


def run_tasks(config, folder, numbers, count) -> dict[int, Exception]:
    """Runs tasks at the same time, each in a thread; returns their errors."""
    errors = {}

    def run(number: int) -> None:
        try:
            prepare(config, str(folder), 1, quiet, (number, count))
        except ValueError as error:
            errors[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return errors


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "static", "masking": "whole_word"},
        {"segments": "full_sentences", "max_examples_per_row": 3, "vocab": "train:wordpiece"},
        {"segments": "running_text", "vocab": "train:bpe"},
        {"segments": "stream", "vocab": "train:words", "lowercase": False},
    ],
    ids=str,
)
def test_the_bytes_are_those_of_one_program(changes, text, tmp_path):
    """Pairs of dynamic data are those of the next tests."""
    config, count = make_config(text, **changes), 3
    prepare(config, str(tmp_path / "one"), 1, log=quiet)
    last_first = reversed(range(count))
    assert run_tasks(config, tmp_path / "many", last_first, count) == {}
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_every_task_does_a_part(text, tmp_path, monkeypatch):
    """Units are spread by their names, and none is done twice."""
    done, run = [], Jobs.sample

    def recorded(jobs, path, *arguments) -> int:
        done.append((threading.current_thread().name, path))
        return run(jobs, path, *arguments)

    monkeypatch.setattr(Jobs, "sample", recorded)
    assert run_tasks(make_config(text), tmp_path, range(3), 3) == {}
    assert len({name for name, _ in done}) == 3
    assert len({path for _, path in done}) == len(done)


@pytest.mark.parametrize(("number", "stage"), [(0, "tokenize"), (1, "sample"), (1, "write_shard")])
def test_a_task_that_dies_is_started_again(number, stage, text, prepared, tmp_path, monkeypatch):
    """The other waits; what is finished is not repeated."""
    config = make_config(text)
    run_job, died = getattr(Jobs, stage), threading.Event()

    def dies(*arguments) -> int:
        if not died.is_set() and threading.current_thread().name == f"task {number}":
            died.set()
            raise KeyboardInterrupt
        return run_job(*arguments)

    monkeypatch.setattr(Jobs, stage, dies)
    folder, left = str(tmp_path / "two"), []

    def run(task: int) -> None:
        try:
            prepare(config, folder, 1, quiet, (task, 2))
        except KeyboardInterrupt:
            left.append(task)
            run(task)

    threads = [threading.Thread(target=run, args=(i,), name=f"task {i}") for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert left == [number]
    assert contents(tmp_path / "two") == contents(pathlib.Path(prepared.folder))


def test_a_task_that_fails_stops_the_others(tmp_path):
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text("a b.\n\nc d.\n")
    (tmp_path / "5.txt").write_bytes(b"good.\n\n\xff bad.\n")
    config = make_config(tmp_path, on_bad_text="error", vocab="train:wordpiece")
    errors = run_tasks(config, tmp_path / "data", (2, 1, 0), 3)
    assert set(errors) == {0, 1, 2} and "5.txt" in str(errors[0])
    for number in (1, 2):
        assert isinstance(errors[number], OtherTaskError)
        assert str(errors[number]) == f"Task 0 of 3 stopped: {errors[0]}"
    (tmp_path / "5.txt").write_text("good.\n\nbad.\n")
    assert run_tasks(config, tmp_path / "data", (2, 1, 0), 3) == {}
    prepare(config, str(tmp_path / "one"), 1, log=quiet)
    assert contents(tmp_path / "data") == contents(tmp_path / "one")


def test_all_tasks_have_the_same_number_of_tasks(text, prepared, tmp_path):
    """Others are refused, whichever begins first, and disturb nobody: units would be nobody's."""
    config = make_config(text)
    folder = tmp_path / "data"
    with pytest.raises(KeyboardInterrupt):
        prepare(config, str(folder), 1, interrupt, (0, 2))
    refused = run_tasks(config, folder, [0, 1, 2], 3)
    assert set(refused) == {0, 1, 2}
    for error in refused.values():
        assert not isinstance(error, OtherTaskError)
        assert "is divided between 2 tasks, and this is one of 3: give all of" in str(error)
        assert "--share=I/2, or finish alone with --merge." in str(error)
    assert run_tasks(config, folder, [0, 1], 2) == {}
    assert contents(folder) == contents(pathlib.Path(prepared.folder))


def test_a_task_that_is_early_waits_for_the_number_of_tasks(text, tmp_path):
    """It begins before the first task, in a folder where one program alone was stopped."""
    config, folder, errors = make_config(text), tmp_path / "data", {}
    with pytest.raises(KeyboardInterrupt):
        prepare(config, str(folder), 1, interrupt)
    early = threading.Thread(target=lambda: errors.update(run_tasks(config, folder, [2], 3)))
    early.start()
    time.sleep(0.2)
    assert early.is_alive()
    assert run_tasks(config, folder, [0, 1], 2) == {}
    early.join(120)
    assert "is divided between 2 tasks, and this is one of 3" in str(errors[2])


def test_one_program_alone_finishes_what_any_number_of_tasks_left(text, prepared, tmp_path):
    config, folder = make_config(text), tmp_path / "data"
    with pytest.raises(KeyboardInterrupt):
        prepare(config, str(folder), 1, interrupt, (0, 7))
    prepare(config, str(folder), 1, quiet)
    assert contents(folder) == contents(pathlib.Path(prepared.folder))


def test_one_program_alone_waits_for_no_task(text, tmp_path):
    with open(tmp_path / ".lock-1", "w+") as file:
        file.write("process 1 on a host")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        errors = run_tasks(make_config(text), tmp_path, [0], 1)
    message = f"process 1 on a host is a task of the preparation in {tmp_path}: wait until it ends"
    assert str(errors[0]).startswith(message)
    assert run_tasks(make_config(text), tmp_path, [0], 1) == {}


def interrupt(line: str) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("value", ["1", "2/2", "a/b", "-1/2", "1/0", "/"])
def test_other_forms_of_a_share_are_refused(value):
    with pytest.raises(ValueError, match="I/N"):
        parse_share(value)
