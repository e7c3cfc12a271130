"""What train prints: lines, the parameter table, the progress bar; TensorBoard events."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bert_jax.config.task import default_config
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.devices import sharding
from bert_jax.tools.listeners import reviews, terminal
from bert_jax.tools.listeners.banner import banner
from bert_jax.tools.listeners.tensorboard import TensorBoard
from bert_jax.tools.listeners.terminal import Terminal
from bert_jax.training.listener import Evaluation
from bert_jax.training.metrics import MetricsFile
from bert_jax.training.state import parameter_rules
from tests.tiny import make_task

SPEED = {
    "steps_per_second": 2.0,
    "tokens_per_second": 8192.0,
    "examples_per_second": 64.0,
    "waiting_for_data": 0.02,
}
VALUES = {
    "loss": 3.25,
    "masked_lm_loss": 2.75,
    "masked_lm_accuracy": 0.412,
    "next_sentence_accuracy": 0.9,
    "learning_rate": 1e-4,
}


def test_a_report_is_one_line():
    line = terminal.progress_line(40, 1000, VALUES, SPEED | {"mfu": 0.45})
    assert line == (
        "step   40/1000  loss 3.25  MLM loss 2.75  MLM accuracy 41.2%  NSP accuracy 90.0%"
        "  lr 1.00e-04  8,192 tokens/s  64.0 examples/s  data wait 2%  MFU 45.0%  ETA 8:00"
    )
    line = terminal.progress_line(1000, 1000, VALUES, SPEED)
    assert "MFU" not in line and "ETA" not in line


def test_there_is_a_row_for_each_parameter():
    mesh = sharding.make_mesh(data=4, fsdp=1, tensor=2)
    params = {
        "intermediate": {"kernel": jnp.zeros((2, 6)), "bias": jnp.zeros(6)},
        "layer_norm": {"scale": jnp.ones(1200)},
    }
    params = jax.device_put(
        params, sharding.parameter_shardings(mesh, parameter_rules(make_task()), params)
    )
    rows = reviews.parameter_rows(params)
    assert rows[0] == ["intermediate/bias", "6", "float32", "('tensor',)", 6]
    assert rows[1][:2] == ["intermediate/kernel", "2x6"]
    assert rows[2][-1] == 1200


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_bar_shows_the_progress_on_a_terminal_only(capsys, monkeypatch, is_terminal):
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    screen = Terminal()
    screen.progress(5, 10)
    screen.line("a line")
    bar = f"\r\x1b[K[{'#' * 20}{'-' * 20}] 5/10\r\x1b[K" if is_terminal else ""
    assert capsys.readouterr().out == f"{bar}a line\n"


@pytest.mark.parametrize("use", ["newest", "best"])
def test_the_last_lines_compare_with_the_evaluation_before_the_first_step(capsys, tmp_path, use):
    before, after = {"loss": 5.5, "masked_lm_accuracy": 0.2}, {"loss": 3.0, "x": 1.0}
    before |= {"general_loss": 2.0}
    file = MetricsFile(str(tmp_path), 0)
    file.write(0, "validation", before, {})
    file.close()
    config = SimpleNamespace(checkpoint=SimpleNamespace(use=use))
    run, screen = SimpleNamespace(workdir=str(tmp_path), config=config), Terminal()
    screen.metrics(0, "validation", before, {})
    last = after | {"masked_lm_accuracy": 0.4, "general_loss": 2.5}
    screen.evaluation(run, 9, Evaluation(last, ()), is_last=True, is_chosen=True)
    if use == "best":
        screen.chosen(run, 9, last)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "before     held-out loss 5.5  MLM accuracy 20.0%",
        "before     general  loss 2",
    ]
    assert lines[-2:] == [
        "change     held-out loss 5.5 -> 3  MLM accuracy 20.0% -> 40.0%",
        "change     general  loss 2 -> 2.5",
    ]
    assert sum(line.startswith("change") for line in lines) == 2
    screen.chosen(run, 9, last | {"loss": 6.0})
    assert ("was better on the held-out text before" in capsys.readouterr().out) == (use == "best")


def test_events_of_a_resumed_run_have_each_step_once(tmp_path, monkeypatch):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    run = SimpleNamespace(workdir=str(tmp_path))
    for first_step, steps in ((0, (1, 2, 3, 4)), (2, (3, 4, 5))):
        monkeypatch.setattr("os.getpid", lambda first_step=first_step: first_step)
        listener = TensorBoard()
        listener.started(run, SimpleNamespace(step=first_step))
        for step in steps:
            listener.metrics(step, "train", {"loss": 1 / step}, {"tokens_per_second": 5.0})
        listener.close()
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("train/loss")] == [1, 2, 3, 4, 5]


def test_the_banner_of_a_corpus():
    content = {"settings": {"source": "text:*.txt"}, "formats": {"128": {"vocab_size": 1300}}}
    manifest: Any = SimpleNamespace(
        content=content, folder="D", fingerprint="0123456789abcdef", num_rows=lambda *_: 1000
    )
    config = default_config("pretraining").replace(
        {"phases": ((128, 1.0),), "preset": "google_2018"}
    )
    rows = CorpusRows(manifest, "train", 128, 256)
    run: Any = SimpleNamespace(
        config=config, phases=config.make_phases(100), training=(rows,), task=config.task
    )
    preset, phase, data = banner(run)
    assert preset == "preset     google_2018, but model.activation='gelu_tanh', data.mode='dynamic'"
    assert phase == (
        "phase      steps 0-100: 256 x 128 tokens per step, 19 predictions per sequence; 1,000"
        " sequences, 25.6 epochs"
    )
    assert data == (
        "data       text:*.txt in D, fingerprint 0123456789ab, 1,300 tokens in the vocabulary"
    )


def test_the_banner_of_labelled_files():
    read: Any = SimpleNamespace(num_rows=3)
    counts = {"texts_truncated": 2}
    rows = LabelledRows("eval", "dev.tsv", "0123456789abcdef", [1, 2, 3], read, counts, (16, 32))
    origins = (("seed", "default"), ("steps", "given"), ("task.pool", "encoder"))
    config = dataclasses.replace(default_config("classification"), origins=origins)
    data = config.task.with_labels(("bad", "good"))
    run: Any = SimpleNamespace(config=config, training=(), evaluation=((rows,),), task=data)
    assert list(banner(run)) == [
        "eval       dev.tsv: 3 examples, 3 rows, 2 texts truncated; SHA-256 0123456789ab",
        "labels     bad, good",
        "batches    32 rows, padded to 16, 32 tokens: one compilation each",
        "head       the last layer -> [CLS] -> pooler",
        "encoder    task.pool=cls",
        "given      steps=1",
    ]
