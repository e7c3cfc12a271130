"""Exact sums, files that can be read after an interruption, early stopping, speed, and batches."""

import json
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.config.task import default_config
from bert_jax.devices.chips import peak_flops
from bert_jax.tasks.losses import Sum, metric
from bert_jax.training import metrics, reporting
from bert_jax.training.evaluate import evaluated_batches
from bert_jax.training.metrics import (
    EarlyStopping,
    MetricsFile,
    Totals,
    read_evaluations,
    read_metrics,
)
from bert_jax.training.reporting import Clock
from bert_jax.training.run import flops_per_token
from tests.tiny import make_task


def test_means_divide_the_sums_once():
    totals = Totals()
    totals.add({"x": metric(3.0, 2.0)})
    totals.add({"x": metric(1.0, 6.0)})
    totals.add_pair("norm", 0.5)
    totals.add_pair("nothing", 0.0, 0.0)
    means = totals.means()
    assert means.pop("nothing") != means.get("nothing", 0)  # nan
    assert means.pop("loss") != means.get("loss", 0)  # nan: nothing is minimized
    assert means == {"x": 0.5, "norm": 0.5}
    totals.clear()
    assert totals.means().keys() == {"loss"}


def test_sums_survive_json_to_the_last_bit():
    totals = Totals()
    for i in range(1, 50):
        totals.add({"x": Sum(1 / i, 1 / (i + 1))})
    again = Totals(json.loads(json.dumps(totals.to_json())))
    assert again.means() == totals.means()
    again.add_pair("x", 1.0)
    assert again.means() != totals.means()  # a copy


def test_the_loss_is_the_sum_of_its_terms():
    totals = Totals()
    totals.add({"a": Sum(1.0, 1.0), "b": Sum(4.0, 2.0), "c": metric(9.0, 1.0)})
    totals.add({"d": Sum(5.0, 1.0)}, is_loss=False)
    assert totals.means() == {"loss": 3.0, "a": 1.0, "b": 2.0, "c": 9.0, "d": 5.0}


def write(folder, first_step, *steps):
    file = MetricsFile(str(folder), first_step)
    for step in steps:
        file.write(step, "train", {"loss": 1 / max(1, step)}, {"tokens_per_second": 5.0})
    file.close()


def test_resuming_from_a_checkpoint_writes_no_step_twice(tmp_path):
    write(tmp_path, 0, 1, 2, 3, 4)
    write(tmp_path, 2, 3, 4, 5)
    assert [row["step"] for row in read_metrics(str(tmp_path))] == [1, 2, 3, 4, 5]
    write(tmp_path, 0, 0)  # killed after the evaluation of step 0, before a checkpoint
    write(tmp_path, 0, 0, 1)
    assert [row["step"] for row in read_metrics(str(tmp_path))] == [0, 1]


def test_the_last_speed_is_that_of_the_last_line_up_to_a_step(tmp_path):
    write(tmp_path, 0, 1, 2, 3)
    rows = read_metrics(str(tmp_path))
    for step, expected in ((2, rows[1]["speed"]), (0, {})):
        file = MetricsFile(str(tmp_path), step)
        assert file.last_speed == expected
        file.close()


def test_the_history_has_an_array_for_each_metric(tmp_path):
    file = MetricsFile(str(tmp_path), 0)
    file.write(1, "train", {"loss": 3.0}, {"seconds": 1.0})
    file.write(2, "train", {"loss": float("nan"), "skipped_share": 0.5}, {})
    file.write(2, "validation", {"loss": 2.0}, {})
    file.close()
    history = metrics.history(str(tmp_path))
    np.testing.assert_equal(
        history,
        {
            "train": {
                "step": np.array([1, 2]),
                "loss": np.array([3.0, np.nan]),
                "skipped_share": np.array([np.nan, 0.5]),
            },
            "validation": {"step": np.array([2]), "loss": np.array([2.0])},
        },
    )


def test_an_incomplete_last_line_is_left_out(tmp_path):
    write(tmp_path, 0, 1, 2)
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 3, "spl')
    assert [row["step"] for row in read_metrics(str(tmp_path))] == [1, 2]


def test_the_best_value_of_a_metric():
    low = ("loss", "causal_lm_loss", "word_perplexity", "bits_per_character")
    names = (*low, "causal_lm_accuracy", "f1", "pearson")
    assert tuple(filter(metrics.is_best_when_low, names)) == low


# ------------------------------------------------------------------ early stopping


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
    with pytest.raises(
        ValueError, match="'f1', which this task does not measure: choose from loss"
    ):
        stopping.add({"loss": 1.0})


# ------------------------------------------------------------------ speed


def test_an_update_has_three_times_the_flops_of_its_forward_pass():
    """The forward pass counted by hand, a multiplication and an addition each being one FLOP."""
    task = make_task()
    model = task.model
    seq, predictions = 16, 3
    hidden, inner, vocab = model.hidden_size, model.intermediate_size, model.vocab_size
    projections = 4 * 2 * seq * hidden * hidden
    attention = 2 * 2 * seq * seq * hidden
    feed_forward = 2 * 2 * seq * hidden * inner
    head = 2 * predictions * (hidden * hidden + hidden * vocab)
    forward = model.num_layers * (projections + attention + feed_forward) + head
    counted = seq * flops_per_token(task, seq)
    assert abs(counted - 3 * forward) < 1e-6 * forward


def test_the_peak_is_that_of_the_longest_matching_name_times_the_devices(monkeypatch):
    class Device:
        device_kind = "TPU v5 lite"

    monkeypatch.setattr(jax, "devices", lambda: [Device()] * 8)
    assert peak_flops() == 8 * 197e12
    Device.device_kind = "an abacus"
    assert peak_flops() is None


def test_the_clock_knows_what_the_run_took_without_what_it_was_stopped_for(monkeypatch):
    now = 100.0
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: now)
    clock = Clock(seconds=7.0, tokens=50)  # before the run was resumed
    clock.count(rows=1, tokens=10, flops=1.0, waited=0.0)
    now = 102.0
    assert clock.stop() == clock.stop() == {"seconds": 9.0, "tokens": 60}
    now = 200.0  # an evaluation
    speed = clock.read()
    assert (speed["seconds"], speed["tokens"], speed["tokens_per_second"]) == (9.0, 60, 5.0)
    clock.count(rows=1, tokens=10, flops=1.0, waited=0.0)
    now = 201.0
    speed = clock.read()
    assert (speed["seconds"], speed["tokens"], speed["tokens_per_second"]) == (10.0, 70, 10.0)


# ------------------------------------------------------------------ what is evaluated


ROWS: Any = SimpleNamespace(rows_per_epoch=21, evaluation_batches=lambda size: "abcdef")


def numbers(part=(0.0, 1.0), most=0, segments="pairs"):
    values = {"eval.part": part, "eval.max_batches": most, "data.segments": segments}
    config = default_config("pretraining" if segments == "pairs" else "bidirectional_lm").replace(
        values
    )
    return [number for number, _ in evaluated_batches(config, ROWS, 4)]


def test_parts_divide_the_batches():
    assert numbers() == [0, 1, 2, 3, 4, 5]
    assert numbers((0.0, 0.5)) + numbers((0.5, 1.0)) == numbers()
    assert [numbers((i / 4, (i + 1) / 4)) for i in range(4)] == [[0, 1], [2], [3], [4, 5]]


def test_a_part_has_at_least_one_batch_and_at_most_max_batches():
    assert numbers((0.98, 1.0)) == [5] and numbers((0.0, 0.01)) == [0]
    assert numbers((0.5, 1.0), 4) == [3, 4, 5]


def test_max_batches_are_spread_over_the_text_but_are_the_first_ones_of_streams():
    assert numbers(most=3) == [0, 2, 4] and numbers(most=4) == [0, 1, 3, 4]
    assert numbers((0.5, 1.0), 1) == [3]
    assert numbers(most=3, segments="stream") == [0, 1, 2]


@pytest.mark.parametrize("part", [(), (0.5,), (0.5, 0.5), (0.5, 1.5), (-0.1, 1.0), ("a", 1.0)])
def test_other_parts_are_refused(part):
    with pytest.raises(ValueError, match="eval.part=.* is not where a part begins and ends"):
        numbers(part)
