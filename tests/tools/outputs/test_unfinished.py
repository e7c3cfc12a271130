"""An interruption changes nothing: predictions are resumed after the last complete window."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from bert_jax.tasks import task
from bert_jax.tools.listeners.terminal import Terminal
from bert_jax.tools.outputs.predictions import Unfinished
from tests.inference.conftest import REPOSITORY, make_texts, predict_file

WINDOW = 4


@pytest.fixture
def small_windows(set_window):
    set_window(WINDOW)


def interrupt(run, tmp_path, monkeypatch, number):
    """Predicts and is interrupted in window `number`, half of which is written."""
    append = Unfinished.append
    windows = []

    def append_half(self, predictions):
        windows.append(predictions)
        if len(windows) < number:
            return append(self, predictions)
        with open(tmp_path / "out" / "output.jsonl.unfinished", "a") as file:
            file.write(json.dumps(predictions[0]) + '\n{"id": "hal')
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Unfinished, "append", append_half)
        with pytest.raises(KeyboardInterrupt):
            predict_file(*run, str(tmp_path / "input.txt"), str(tmp_path / "out" / "output.jsonl"))


def test_it_resumes_after_the_last_complete_window(
    classifier, tmp_path, monkeypatch, small_windows, capsys
):
    run, texts = classifier, make_texts(18)
    source, output = tmp_path / "input.txt", tmp_path / "out" / "output.jsonl"
    source.write_text("\n".join(texts))
    output.parent.mkdir()
    predict_file(*run, str(source), str(output), listener=Terminal())
    whole = output.read_text()
    assert len(whole.splitlines()) == 18
    output.unlink()
    interrupt(run, tmp_path, monkeypatch, number=3)
    assert not output.exists()
    capsys.readouterr()
    assert predict_file(*run, str(source), str(output), listener=Terminal()) == 18
    printed = capsys.readouterr().out
    assert "8 examples are already predicted: continuing after them" in printed
    assert "10 examples of" in printed
    assert output.read_text() == whole
    assert [path.name for path in output.parent.iterdir()] == ["output.jsonl"]


@pytest.mark.parametrize("change", ["input", "settings", "parameters", "candidates", "lost"])
def test_predictions_of_something_else_are_not_kept(
    make_run, tmp_path, monkeypatch, small_windows, capsys, change
):
    config, workdir = make_run("classification")
    (tmp_path / "input.txt").write_text("\n".join(make_texts(18)))
    (tmp_path / "out").mkdir()
    interrupt((config, workdir), tmp_path, monkeypatch, number=3)
    if change == "input":
        (tmp_path / "input.txt").write_text("\n".join(make_texts(18, seed=1)))
    elif change == "settings":
        config = config.replace({"head.n_best": 3})
    elif change == "parameters":  # trained again in the same folder, for the same number of steps
        sums = pathlib.Path(workdir, "checkpoints", "0.sha256.json")
        sums.write_text(sums.read_text().replace('"metrics": {}', '"metrics": {"loss": 1.0}'))
    elif change == "lost":
        (tmp_path / "out" / "output.jsonl.unfinished").unlink()
    source, output = str(tmp_path / "input.txt"), tmp_path / "out" / "output.jsonl"
    top_k = 4 if change == "candidates" else 5
    assert predict_file(config, workdir, source, str(output), top_k, Terminal()) == 18
    assert "already predicted" not in capsys.readouterr().out
    assert len(output.read_text().splitlines()) == 18


def test_links_and_pipes_stay(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "output")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for name in ("link", "pipe"):
        unfinished = Unfinished(str(tmp_path / name))
        unfinished.resume({})
        unfinished.append([{"label": "a"}])
        assert (tmp_path / "disk" / "output.unfinished").exists() == (name == "link")
        unfinished.finish(None)
    assert os.read(reader, 99) == (tmp_path / "disk" / "output").read_bytes() == b'{"label": "a"}\n'
    os.close(reader)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["disk", "link", "output", "pipe"]


def done_of(output):
    """Returns the number of predictions that are known to be on disk."""
    origin = pathlib.Path(f"{output}.unfinished.json")
    return json.loads(origin.read_text())["done"] if origin.exists() else 0


def test_a_killed_process_is_resumed(classifier, tmp_path, capsys):
    config, workdir = classifier
    (tmp_path / "input.txt").write_text("\n".join(make_texts(2_500)))
    output = tmp_path / "output.jsonl"
    command = [sys.executable, "-m", "bert_jax", "predict", f"--model={workdir}"]
    command.append(f"{tmp_path}/input.txt")
    process = subprocess.Popen(
        [*command, f"--output={output}"], cwd=REPOSITORY, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and done_of(output) < task.WINDOW:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert done_of(output) and not output.exists()
    for path in (output, tmp_path / "whole.jsonl"):
        assert predict_file(config, workdir, str(tmp_path / "input.txt"), str(path), 5, Terminal())
        assert ("already predicted" in capsys.readouterr().out) == (path == output)
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
