"""Memory, disk and time: against arithmetic, real processes and real runs."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import pytest

from bert_jax.tools.doctor import duration, footprint, measured, space
from bert_jax.tools.doctor.evaluated import Evaluated
from bert_jax.tools.doctor.examine import examine
from bert_jax.tools.doctor.finding import in_bytes
from bert_jax.tools.doctor.trial import open_labelled, open_sample
from bert_jax.training.train import train
from tests.tools.doctor.conftest import bad, found

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def corpus_trial(make_config, tmp_path_factory):
    return open_sample(make_config(), str(tmp_path_factory.mktemp("corpus")))


@pytest.fixture(scope="module")
def labelled_trial(make_config, tmp_path_factory):
    config = make_config("classification", data__bucket_lengths=(16, 32))
    return open_labelled(config, str(tmp_path_factory.mktemp("labelled")))


@pytest.fixture(scope="module")
def found_of_corpus(corpus_trial):
    bench = measured.Workbench(corpus_trial, 2)
    return list(bench.measure(measured.all_shapes(corpus_trial.run)))


def test_a_corpus_has_a_shape_for_each_phase(corpus_trial):
    (shape,) = measured.all_shapes(corpus_trial.run)
    assert (shape.rows, shape.length, shape.updates) == (32, 32, 300)


def test_labelled_files_have_a_shape_for_each_length(labelled_trial):
    shapes = measured.all_shapes(labelled_trial.run)
    assert sum(shape.updates for shape in shapes) == labelled_trial.run.steps
    (phase,) = labelled_trial.run.phases
    for shape in shapes:
        rows = labelled_trial.run.training_rows(phase)
        assert rows.batch(shape.number, 0, shape.rows)["input_ids"].shape == (
            shape.rows,
            shape.length,
        )


def test_the_state_is_that_of_the_parameters_and_two_moments(corpus_trial, found_of_corpus):
    from bert_jax.training.state import abstract_params

    (phase,) = corpus_trial.run.phases
    run = corpus_trial.run
    numbers = sum(x.size for x in jax.tree.leaves(abstract_params(run.task_at(phase), run.mesh)))
    (only,) = found_of_corpus
    assert only.memory.state == pytest.approx(3 * 4 * numbers, rel=0.01)
    assert only.memory.step > only.memory.state


def test_updates_are_executed(found_of_corpus):
    (only,) = found_of_corpus
    assert only.rows == only.shape.rows
    assert 0 < only.step_seconds < 5 and only.host_seconds >= 0


def test_an_update_that_does_not_fit_is_measured_with_fewer_rows(corpus_trial, monkeypatch):
    """Its time is multiplied, its memory is that of all rows."""
    (shape,) = measured.all_shapes(corpus_trial.run)
    (whole,) = measured.Workbench(corpus_trial, 0).measure([shape])
    room = (whole.memory.step + whole.memory.state) // 2
    monkeypatch.setattr(measured, "free_memory", lambda: room)
    (part,) = measured.Workbench(corpus_trial, 1).measure([shape])
    assert part.memory == whole.memory
    assert part.rows == 8 and part.step_seconds > 0  # 8 devices
    assert "from 8 x 32 tokens" in duration.describe(part).what
    monkeypatch.setattr(space, "free_memory", lambda: whole.memory.step * 7 // 8)
    monkeypatch.setattr(space, "used_memory", lambda: 0)
    findings = list(
        space.check_memory(corpus_trial, [dataclasses.replace(part, process=0, program=0)])
    )
    assert "--config.microbatch_size=" in found(findings, "problem", "need").fix


def test_a_state_that_does_not_fit_is_not_measured(corpus_trial, monkeypatch):
    (shape,) = measured.all_shapes(corpus_trial.run)
    monkeypatch.setattr(measured, "free_memory", lambda: 1000)
    monkeypatch.setattr(space, "free_memory", lambda: 1000)
    (nothing,) = measured.Workbench(corpus_trial, 1).measure([shape])
    assert nothing.step_seconds == 0
    finding = found(space.check_memory(corpus_trial, [nothing]), "problem", "The run needs")
    assert "do not fit" in finding.fix
    found(duration.check_time(corpus_trial, [nothing], 0), "note", "is not estimated")


def test_the_process_counts_on_cpus(corpus_trial, found_of_corpus, monkeypatch):
    (only,) = found_of_corpus
    large = footprint.Memory(only.memory.state, 125_000_000, 10**9)  # on each of 8 devices
    part = dataclasses.replace(only, memory=large, process=8 * 10**8, program=2 * 10**8)
    monkeypatch.setattr(space, "used_memory", lambda: 10**9)
    monkeypatch.setattr(space, "free_memory", lambda: 10**9)
    found(space.check_memory(corpus_trial, [part]), "ok", "about 4.0 GB of memory: 2.0 GB for")
    monkeypatch.setattr(space, "free_memory", lambda: 390_000_000)  # 8 of them, and the process
    found(space.check_memory(corpus_trial, [part]), "warning", "it can have 4.1 GB")
    monkeypatch.setattr(space, "free_memory", lambda: 0)
    found(space.check_memory(corpus_trial, [part]), "ok", "is not known")


def test_the_memory_of_accelerators_is_their_own(corpus_trial, found_of_corpus, monkeypatch):
    (only,) = found_of_corpus
    monkeypatch.setattr(space, "device_memory", lambda: 10**9)
    monkeypatch.setattr(space, "free_memory", lambda: 2 * only.memory.step)
    found(space.check_memory(corpus_trial, [only]), "ok", in_bytes(only.memory.step))


def test_evaluations_may_need_more_than_updates(corpus_trial, found_of_corpus, monkeypatch):
    monkeypatch.setattr(space, "free_memory", lambda: 10**9)
    evaluated = [Evaluated(memory=10**10)]
    findings = space.check_memory(corpus_trial, found_of_corpus, evaluated)
    finding = found(findings, "problem", "160.0 GB for evaluations")
    assert finding.fix == "--config.eval.batch_size=8"


def test_microbatches_need_less(make_config, tmp_path):
    config = make_config("classification", microbatch_size=8)
    bench = measured.Workbench(trial := open_labelled(config, str(tmp_path)), 0)
    (small,) = bench.measure(measured.all_shapes(trial.run))
    config = make_config("classification")
    bench = measured.Workbench(trial := open_labelled(config, str(tmp_path)), 0)
    (whole,) = bench.measure(measured.all_shapes(trial.run))
    assert small.memory.state == whole.memory.state


@pytest.mark.parametrize("free, level", [(1e12, "ok"), (2e7, "problem")])
def test_disks(free, level, make_config, corpus_trial, monkeypatch):
    monkeypatch.setattr(space, "free_space", lambda _: int(free))
    findings = space.check_disk(make_config(), "runs/x", corpus_trial, 1_000_000)
    found(findings, level, "1 checkpoints of 1 MB")


def test_a_disk_that_is_nearly_full_is_a_warning(make_config, corpus_trial, monkeypatch):
    text = next(iter(space.check_disk(make_config(), "", corpus_trial, 10**9))).what
    needed = float(re.search(r"About ([\d.]+) GB", text)[1]) * 1e9
    monkeypatch.setattr(space, "free_space", lambda _: int(1.06 * needed))
    found(space.check_disk(make_config(), "", corpus_trial, 10**9), "warning", "are free")


def test_checkpoints_have_the_size_that_is_said(make_config, tmp_path):
    config = make_config("classification", epochs=1.0)
    trial = open_labelled(config, str(tmp_path / "trial"))
    (shape,) = measured.all_shapes(trial.run)
    (found,) = measured.Workbench(trial, 0).measure([shape])
    state = found.memory.checkpoint
    train(config, str(tmp_path / "run"))
    folder = tmp_path / "run" / "checkpoints"
    written = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    assert state < written < state + 200_000  # the names of arrays, compressed parts


def test_the_whole_time_is_the_sum_of_its_parts(corpus_trial):
    (shape,) = measured.all_shapes(corpus_trial.run)
    fake = measured.Measured(shape, footprint.Memory(1, 1, 1), 5.0, 2.0, 1.0, rows=16)
    assert duration.describe(fake).what.startswith("32 x 32 tokens: compiled in 5 s; 2 s an update")
    (total,) = duration.check_time(corpus_trial, [fake], 0)
    assert "updates 15 minutes" in total.what  # 300 x (2 + 1) s
    (rest,) = duration.check_time(corpus_trial, [fake], 200)
    assert "The 100 updates that are left will take" in rest.what
    assert "updates 5 minutes" in rest.what


def test_each_seed_takes_its_time(make_config, tmp_path):
    config = make_config("classification", seeds=3)
    trial = open_labelled(config, str(tmp_path))
    (shape,) = measured.all_shapes(trial.run)
    fake = measured.Measured(shape, footprint.Memory(1, 1, 1), 1.0, 1000.0, 0.0, rows=1)
    (total,) = duration.check_time(trial, [fake], 0)
    updates = re.search(r"about ([\d.]+) hours.*updates ([\d.]+) hours.*3 seeds", total.what)
    assert float(updates[1]) == pytest.approx(3 * float(updates[2]), rel=0.1)


@pytest.mark.parametrize("name", ["tiny", "classification"])
def test_a_good_run_is_measured_to_its_end(name, make_config):
    findings = list(examine(make_config(name), "", 1))
    assert bad(findings) == []
    assert "compiling" in found(findings, "ok", "The run will take about").what


def test_programs_of_all_shapes_and_evaluations_count(corpus_trial, found_of_corpus, monkeypatch):
    """Each stays in the memory of a process on CPUs."""
    (only,) = found_of_corpus
    monkeypatch.setattr(space, "used_memory", lambda: 10**9)
    monkeypatch.setattr(space, "free_memory", lambda: 10**11)
    two = [dataclasses.replace(only, program=n * 10**9) for n in (2, 3)]
    findings = space.check_memory(corpus_trial, two, [Evaluated(program=4 * 10**9)])
    assert "9.0 GB for compiled programs" in found(findings, "ok", "needs about").what


PRETRAINING = {
    "config": "configs/tiny.py",
    "data.source": "text:{files}/corpus.txt",
    "data.line_format": "sentences",
    "data.vocab": "{files}/vocab.txt",
    "model.vocab_size": "159",
    "phases": "((128, 1.0),)",
    "global_batch_size": "256",
    "data.validation_share": "0.4",
    "steps": "5",
}
FINE_TUNING = {
    "config": "configs/classification.py",
    "data.train": "{files}/train.tsv",
    "data.eval": "{files}/dev.tsv",
    "data.vocab": "{files}/vocab.txt",
    "data.bucket_lengths": "(8,12)",
    "model.vocab_size": "159",
    "model.num_layers": "4",
    "model.hidden_size": "256",
    "model.num_heads": "4",
    "model.intermediate_size": "1024",
    "max_length": 128,
    "epochs": "1",
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [PRETRAINING, FINE_TUNING], ids=["pretraining", "texts"])
def test_the_memory_is_that_of_a_real_run(settings, files, tmp_path):
    """Of a process that finds its programs kept, as one does that follows `doctor`.

    The bounds are those of docs/doctor.md: the same run has other peaks at other times, since more
    or less of the next update is in memory before the last one has ended.
    """
    config = settings["config"]
    flags = [f"--config={config}", f"--compilation_cache={tmp_path / 'cache'}"]
    rest = {name: value for name, value in settings.items() if name != "config"}
    flags += [f"--config.{name}={value.format(files=files)}" for name, value in rest.items()]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "JAX_NUM_CPU_DEVICES": "1"}
    options = {"cwd": REPOSITORY, "env": environment, "capture_output": True, "text": True}
    words = [sys.executable, "-m", "bert_jax"]

    def estimate() -> float:
        said = subprocess.run([*words, "doctor", *flags, "--json"], **options)
        (line,) = [f["what"] for f in json.loads(said.stdout)["findings"] if f["group"] == "memory"]
        number, unit = re.search(r"about ([\d.]+) (MB|GB)", line).groups()
        return float(number) * {"MB": 1e6, "GB": 1e9}[unit]

    estimate()  # compiles and keeps the programs
    kept = estimate()
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
        " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    train = [*words, "train", *flags, f"--workdir={tmp_path / 'run'}"]
    done = subprocess.run([sys.executable, "-c", program, *train], **options)
    peak = 1024 * int(done.stdout.splitlines()[-1])
    assert 0.75 * peak <= kept <= 1.5 * peak
