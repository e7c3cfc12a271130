"""Early stopping: evaluations without improvement, in runs and by hand."""

import json

import pytest

from bert_jax.training.early_stopping import EarlyStopping
from bert_jax.training.metrics import read_evaluations
from tests.training.conftest import Run


def stopping_early(new_run, **changes):
    """Returns a run whose evaluations are never better than the first: it does not learn."""
    values = {
        "optimizer.learning_rate": 0.0,
        "eval.every": "2",
        "checkpoint.every": "2",
        "eval.patience": 2,
        **changes,
    }
    return new_run("classification", values)


def test_a_run_without_improvement_stops_early_and_stays_complete(new_run):
    run = stopping_early(new_run).train()
    assert int(run.state.step) == 6
    assert [row["step"] for row in run.rows()] == [2, 4, 6]
    assert run.results["step"] == 2  # the first of equals
    assert "health: " in run.printed
    again = Run(run.config, run.workdir).train()
    assert int(again.state.step) == 6
    assert "This run is complete: it ended early, after 6 of" in again.printed
    assert run.params()[1] == 6


def test_the_best_evaluation_is_saved_where_no_checkpoint_is_due(new_run):
    """Without learning it is the first; results.json is written again if it is missing."""
    changes = {"optimizer.learning_rate": 0.0, "eval.every": "5", "checkpoint.every": "1000 steps"}
    run = new_run("classification", {**changes, "epochs": 1.0}).train()
    assert [row["step"] for row in run.rows()] == [5, 10, 13]
    results = run.results
    assert results["step"] == 5 == run.params("best")[1] and run.params()[1] == 13
    (run.workdir / "results.json").unlink()
    run.train()
    assert "This run is complete: all its 13 steps were done before." in run.printed
    assert run.results == results


@pytest.mark.parametrize(
    "name, limit, values, over_after",
    [
        ("f1", 1, (0.1, 0.2, 0.2), 3),
        ("f1", 2, (0.1, 0.3, 0.2, 0.25, 0.9), 4),
        ("f1", 2, (0.1, 0.3, 0.2, 0.4, 0.3), None),
        ("loss", 2, (3.0, 2.0, 2.5, 2.0), 4),
        ("f1", 0, (0.3, 0.2, 0.1, 0.0), None),
        ("loss", 2, (3.0, float("nan"), None), 3),
        ("loss", 2, (None, float("nan"), 3.0, 2.0), None),
    ],
)
def test_patience_counts_evaluations_since_the_best(name, limit, values, over_after):
    stopping = EarlyStopping(limit, name, ())
    over = []
    for value in values:
        stopping.add({name: value})
        over.append(stopping.has_ended)
    expected = over_after is not None
    assert any(over) == expected
    if expected:
        assert over.index(True) + 1 == over_after


def test_patience_counts_evaluations_before_a_resumption(tmp_path):
    rows = [(10, 0.5), (20, 0.9), (30, 0.8), (40, 0.7)]
    lines = [{"step": s, "split": "validation", "f1": v} for s, v in rows]
    lines.insert(1, {"step": 15, "split": "train", "loss": 1.0})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert EarlyStopping(2, "f1", read_evaluations(str(tmp_path), 40)).has_ended
    stopping = EarlyStopping(2, "f1", read_evaluations(str(tmp_path), 30))
    assert not stopping.has_ended
    stopping.add({"f1": 0.9})
    assert stopping.has_ended
