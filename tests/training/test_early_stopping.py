"""Early stopping: evaluations without improvement, in a run and by hand."""

import json

import pytest

from bert_jax.training.early_stopping import EarlyStopping
from bert_jax.training.metrics import read_evaluations


def test_a_run_without_improvement_stops_early_and_stays_complete(new_run):
    """It does not learn: the first of its equal evaluations is the best, and is saved for that."""
    changes = {
        "optimizer.learning_rate": 0.0,
        "eval.every": "2",
        "checkpoint.every": "1000 steps",
        "eval.patience": 2,
    }
    run = new_run("classification", changes).train()
    assert int(run.state.step) == 6
    assert [row["step"] for row in run.rows()] == [2, 4, 6]
    assert "health: " in run.printed
    results = run.results
    assert results["step"] == 2 == run.params("best")[1] and run.params()[1] == 6
    (run.workdir / "results.json").unlink()
    assert int(run.train().state.step) == 6
    assert "This run is complete: it ended early, after 6 of" in run.printed
    assert run.params()[1] == 6 and run.results == results


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
