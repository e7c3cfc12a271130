"""The comparison of defaults: its table, its file of scores, and a run of all sides."""

import pytest

from benchmarks import command, defaults
from bert_jax.scores.spread import summarize_seeds
from tests.benchmarks.test_finetune import small_task, write_examples  # noqa: F401


def test_the_table_has_the_best_of_the_grid_first():
    scores = {
        "defaults": (0.8, 0.9),
        "0.001, 3 epochs": (0.5, 0.7),
        "0.0001, 3 epochs": (0.9, 0.9),
        "Trainer": (0.5, 0.5),
    }
    summaries = {name: summarize_seeds(found, 0.5) for name, found in scores.items()}
    header, *rows, constant, best = defaults.lines("accuracy", 0.5, summaries)
    assert header.split() == ["accuracy", "to", "defaults", "degenerate"]
    assert [row.split("  ")[0] for row in rows] == [
        "defaults", "Trainer", "0.0001, 3 epochs", "0.001, 3 epochs",
    ]  # fmt: skip
    assert rows[0].split()[1:] == ["0.8500", "±", "0.0707", "+0.0000", "0", "of", "2"]
    assert rows[1].split()[1:] == ["0.5000", "±", "0.0000", "-0.3500", "2", "of", "2"]
    assert constant == "constant prediction 0.5000"
    assert best == "best of the grid: 0.0001, 3 epochs; its median 0.7500"


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
