"""Preparation in Apache Beam: the bytes of processes of this machine, whatever an engine does."""

import dataclasses
import functools
import importlib.util
import os
import pathlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bert_jax.data.corpus.jobs import Jobs
from bert_jax.data.corpus.prepare import prepare
from bert_jax.files import beam
from bert_jax.files.beam import Beam
from tests.data.corpus.corpora import contents, make_config, quiet

pytestmark = [
    pytest.mark.usefixtures("small_units"),
    pytest.mark.skipif(
        importlib.util.find_spec("apache_beam") is None,
        reason="needs the extra beam, in an environment of its own (launch/test.sh)",
    ),
    # Beam's own, and what it leaves open when a pipeline fails.
    pytest.mark.filterwarnings("ignore"),
]
TWO_PROCESSES = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
TWO_THREADS = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")
# Jobs that write a file, a folder, and a shard beside the folder of unfinished work.
KINDS = ("sample", "tokenize", "write_shard")
WORDPIECE = {"vocab": "train:wordpiece", "max_examples_per_row": 3}


@pytest.fixture(scope="module")
def expected(text, tmp_path_factory):
    """Returns the files that one process of this machine makes, by the changes of a config."""

    @functools.cache
    def make(**changes) -> dict[str, bytes]:
        folder = tmp_path_factory.mktemp("expected")
        prepare(make_config(text, **changes), str(folder), 1, quiet)
        return contents(folder)

    return make


def prepare_in_beam(
    text, folder, *flags: str, runner="DirectRunner", **changes
) -> dict[str, bytes]:
    engine = Beam(runner, flags)
    prepare(make_config(text, **changes), str(folder), log=quiet, beam=engine)
    return contents(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mode": "static", "masking": "whole_word"},
        {"segments": "running_text", "vocab": "train:bpe"},
        {"segments": "stream", "vocab": "train:words", "lowercase": False},
    ],
    ids=str,
)
def test_the_bytes_are_those_of_this_machine(changes, text, tmp_path, expected):
    assert prepare_in_beam(text, tmp_path, **changes) == expected(**changes)


@pytest.mark.parametrize("flags", [TWO_PROCESSES, TWO_THREADS], ids=["processes", "threads"])
def test_two_workers(flags, text, tmp_path, expected, monkeypatch):
    """Processes do not see the patch that makes units small, but the pieces are their arguments."""
    wanted, workers = expected(), tmp_path / "workers"
    workers.mkdir()
    monkeypatch.setenv("WORKERS", str(workers))
    monkeypatch.setattr(Jobs, "sample", noted_sample)
    assert prepare_in_beam(text, tmp_path / "data", *flags) == wanted
    others = {int(name) for name in os.listdir(workers)}
    assert len(others) == (2 if flags == TWO_PROCESSES else 1)
    assert (os.getpid() in others) == (flags == TWO_THREADS)
    if flags == TWO_PROCESSES:
        assert {path.read_text() for path in workers.iterdir()} == {"without jax"}


original_sample = Jobs.sample


def noted_sample(*arguments) -> int:
    has_jax = "with" if "jax" in sys.modules else "without"
    pathlib.Path(os.environ["WORKERS"], str(os.getpid())).write_text(f"{has_jax} jax")
    time.sleep(0.05)  # so that the other worker has something left to do
    return original_sample(*arguments)


# ------------------------------------------------------------------ attempts that fail

originals = {kind: getattr(Jobs, kind) for kind in KINDS}


def fail_after_part(kind: str, jobs, path, *arguments) -> int:
    """Runs the job, but its first attempt ends when a part of a file is written.

    The part stays, as after a kill, which no handler sees: a shard's is beside the shards.
    """
    marker = pathlib.Path(os.environ["FAILS_ONCE"])
    if not marker.exists():
        target = arguments[0] if kind == "write_shard" else path
        part = f"{target}.0123456789abcdef.part"
        if kind == "tokenize":
            os.makedirs(part)
            part = os.path.join(part, "tokens")
        pathlib.Path(part).write_bytes(b"a part of ")
        marker.write_text(part)
        raise OSError(5, "Input/output error", target)
    return originals[kind](jobs, path, *arguments)


@pytest.fixture(params=KINDS)
def failing_stage(request, tmp_path, monkeypatch):
    """A kind of job that fails once; the value is the file that says so."""
    marker = tmp_path / "failed"
    monkeypatch.setenv("FAILS_ONCE", str(marker))
    kind = request.param
    monkeypatch.setattr(Jobs, kind, lambda *arguments: fail_after_part(kind, *arguments))
    return marker


def test_an_engine_repeats_a_unit_that_fails_once(
    failing_stage, text, tmp_path, expected, monkeypatch
):
    """Beam's runner that repeats bundles, as engines of many machines do."""
    from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
    from apache_beam.runners.portability import fn_api_runner

    monkeypatch.setattr(fn_api_runner, "FnApiRunner", BundleBasedDirectRunner)
    assert prepare_in_beam(text, tmp_path / "data", **WORDPIECE) == expected(**WORDPIECE)
    assert failing_stage.exists()


def test_the_work_goes_on_after_an_engine_gave_up(failing_stage, text, tmp_path, expected):
    """The runner in memory repeats nothing."""
    folder = tmp_path / "data"
    with pytest.raises(ValueError, match="failed with DirectRunner: .*Input/output error") as error:
        prepare_in_beam(text, folder, **WORDPIECE)
    assert "Run it again" in str(error.value) and "\n" not in str(error.value)
    assert failing_stage.exists() and not (folder / "manifest.json").exists()
    assert prepare_in_beam(text, folder, **WORDPIECE) == expected(**WORDPIECE)


def test_units_that_are_done_twice_at_the_same_time(text, tmp_path, expected, monkeypatch):
    """Two attempts begin together, and none moves a file before the other has written its own."""
    wanted, do, replace = expected(**WORDPIECE), beam._Units.do, os.replace
    both = threading.Barrier(2, timeout=60)

    def together(function, *arguments):
        both.wait()
        return function(*arguments)

    def twice(units, number):
        late = {path: functools.partial(together, job) for path, job in units.jobs}
        late = dataclasses.replace(units, jobs=tuple(late.items()))
        with ThreadPoolExecutor(2) as pool, monkeypatch.context() as patch:
            patch.setattr(os, "replace", functools.partial(together, replace))
            for attempt in [pool.submit(do, late, number) for _ in range(2)]:
                attempt.result(120)

    monkeypatch.setattr(beam._Units, "do", twice)
    assert prepare_in_beam(text, tmp_path, **WORDPIECE) == wanted


def test_text_that_cannot_be_used_is_one_line(tmp_path):
    """Nothing is repeated: it would fail again."""
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("a b.\n\nc d.\n")
    (tmp_path / "3.txt").write_bytes(b"good.\n\n\xff bad.\n")
    changes = {"on_bad_text": "error", "vocab": "train:wordpiece"}
    with pytest.raises(ValueError) as alone:
        prepare(make_config(tmp_path, **changes), str(tmp_path / "alone"), 1, quiet)
    with pytest.raises(ValueError) as in_beam:
        prepare_in_beam(tmp_path, tmp_path / "data", **changes)
    assert str(in_beam.value) == str(alone.value) and "3.txt" in str(alone.value)
    assert not (tmp_path / "data" / "unfinished").exists()
