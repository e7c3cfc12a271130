"""Each benchmark runs to its end; what two of them compute of their times and scores."""

import re

import numpy as np
import pytest

from benchmarks import command, side_by_side
from tests.benchmarks.test_finetune import small_task, write_examples  # noqa: F401
from tests.runs.conftest import write_corpus

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


def test_stages_of_preparation_are_measured(tmp_path, capfd):
    write_corpus(tmp_path / "corpus.txt")
    fields = {"source": f"text:{tmp_path}/corpus.txt", "line_format": "sentences"}
    flags = [f"--config.data.{name}={value}" for name, value in fields.items()]
    command.main("prepare", [*flags, "--config=configs/tiny.py", "--config.model.vocab_size=96"])
    lines = capfd.readouterr().out.splitlines()
    assert re.fullmatch(r"[\d.]+ s, at most \d+ MiB in any process", lines[1])
    stages = {line.rstrip(" .0123456789") for line in lines[3:]}
    assert {"count words", "tokenize", "pairs", "shards"} <= stages


def test_groups_of_steps_take_half_a_second_and_the_first_step_is_left_out(monkeypatch):
    clock, events, durations = 0.0, [], iter((1.0, *[0.2] * 100))
    monkeypatch.setattr(side_by_side.time, "perf_counter", lambda: clock)

    def run_step():
        nonlocal clock
        clock += next(durations)
        events.append("step")

    seconds = side_by_side.time_steps(run_step, lambda: events.append("wait"))
    waits = [i for i, event in enumerate(events) if event == "wait"]
    assert np.diff([-1, *waits]).tolist() == [2, 2, 4, 4, 4]  # half a second has three steps
    np.testing.assert_allclose(seconds, 0.2)


@pytest.mark.slow
def test_steps_of_the_smallest_model(capfd):
    command.main("step", ["--models=tiny", "--rounds=1", "--batch_size=8"])
    lines = capfd.readouterr().out.splitlines()
    assert any(line.startswith("bert_jax ") for line in lines)
    assert any(line.startswith("transformers ") for line in lines) == side_by_side.can_compare()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["tagging", "classification", "span"])
def test_all_sides_are_scored(small_task, task, tmp_path, capsys):  # noqa: F811
    pytest.importorskip("accelerate")
    folder, _ = small_task
    file = str(write_examples(tmp_path)[task][2]) if task != "tagging" else str(small_task[1])
    output = str(tmp_path / "scores.jsonl")
    for _ in range(2):  # the second time, all scores are there
        words = [file, f"--evaluate={file}", f"--model={folder}", f"--output={output}"]
        grid = ["--rates=1e-2", "--epochs=2", "--seeds=1"]
        command.main("defaults", [*words, *grid, "--config.epochs=1", "--config.max_length=32"])
        printed = capsys.readouterr().out
        assert {"defaults", "Trainer", "0.01, 2 epochs"} <= {
            line.split("  ")[0] for line in printed.splitlines()
        }
    assert "seed 0" not in printed
