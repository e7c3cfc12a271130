"""Exact sums, and files that can be read after an interruption."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.training import metrics
from bert_jax.training.metrics import MetricsFile, Totals, read_metrics


def test_means_divide_the_sums_once():
    totals = Totals()
    totals.add({"loss": SimpleNamespace(numerator=3.0, denominator=2.0)})
    totals.add({"loss": SimpleNamespace(numerator=1.0, denominator=6.0)})
    totals.add_pair("norm", 0.5)
    totals.add_pair("nothing", 0.0, 0.0)
    means = totals.means()
    assert means.pop("nothing") != means.get("nothing", 0)  # nan
    assert means == {"loss": 0.5, "norm": 0.5}
    totals.clear()
    assert totals.means() == {}


def test_sums_survive_json_to_the_last_bit():
    totals = Totals()
    for i in range(1, 50):
        totals.add_pair("x", 1 / i, 1 / (i + 1))
    again = Totals(json.loads(json.dumps(totals.to_json())))
    assert again.means() == totals.means()
    again.add_pair("x", 1.0)
    assert again.means() != totals.means()  # a copy


def test_the_loss_is_the_sum_of_its_terms():
    assert metrics.with_loss({"a": 1.0, "b": 2.0, "c": 9.0}, ("a", "b"))["loss"] == 3.0
    assert math.isnan(metrics.with_loss({"a": 1.0}, ("a", "b"))["loss"])


def write(folder, first_step, *steps):
    file = MetricsFile(str(folder), first_step)
    for step in steps:
        file.write(step, "train", {"loss": 1 / max(1, step)}, {"tokens_per_second": 5.0})
    file.close()


def test_rows_are_read_as_they_were_written(tmp_path):
    write(tmp_path, 0, 1, 2)
    assert read_metrics(str(tmp_path)) == [
        {"step": 1, "split": "train", "loss": 1.0, "speed": {"tokens_per_second": 5.0}},
        {"step": 2, "split": "train", "loss": 0.5, "speed": {"tokens_per_second": 5.0}},
    ]


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


def test_a_folder_without_metrics_has_none(tmp_path):
    assert read_metrics(str(tmp_path)) == []


@pytest.mark.parametrize(
    "metric, is_low",
    [
        ("loss", True),
        ("causal_lm_loss", True),
        ("word_perplexity", True),
        ("bits_per_character", True),
        ("causal_lm_accuracy", False),
        ("f1", False),
        ("pearson", False),
    ],
)
def test_the_best_value_of_a_metric(metric, is_low):
    assert metrics.is_best_when_low(metric) == is_low
