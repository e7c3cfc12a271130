"""A run on a skewed file: class weights in its configuration, decisions with its checkpoint."""

import ast
import json
import math

import numpy as np
import pytest

import bert_jax
from bert_jax.config import store
from bert_jax.inference.loading import load_model
from tests.training.labelled_files import NUM_EVAL

SETTINGS = {
    "task.class_weights": "auto",
    "task.label_smoothing": 0.1,
    "task.thresholds": "tuned",
    "task.calibration": "temperature",
    "metrics": ("macro_f1", "accuracy"),
    "epochs": 2.0,
}
GOOD, BAD = 50, 10
EPOCH = -(-(GOOD + BAD) // 8)


@pytest.fixture(scope="module")
def changes(files, tmp_path_factory):
    """The settings, with a file that has all good texts of another one and some of the bad."""
    header, *rows = files["classification"][0].read_text().splitlines(keepends=True)
    good, bad = ([row for row in rows if f"\t{label}\t" in row] for label in ("good", "bad"))
    path = tmp_path_factory.mktemp("skewed") / "train.tsv"
    path.write_text("".join([header, *good, *bad[:BAD]]))
    assert len(good) == GOOD
    return SETTINGS | {"data.train": str(path), "data.more_eval": (f"trained={path}",)}


@pytest.fixture(scope="module")
def run(new_run, changes):
    return new_run("classification", changes).train()


def test_the_weights_are_in_the_configuration_and_the_loss(run):
    weights = ast.literal_eval(store.load(str(run.workdir))["task.class_weights"])
    assert weights == pytest.approx({"bad": 3.0, "good": 0.6})
    assert f"classes    class_weights={weights}" in run.printed


def test_scores_with_and_without_thresholds_are_reported(run):
    values = run.results["eval"]
    names = {"macro_f1", "accuracy", "loss", "untuned_macro_f1", "untuned_accuracy", "temperature"}
    names |= {"nll", "ece", "uncalibrated_nll", "uncalibrated_ece"}
    assert values.keys() == names | {f"trained_{name}" for name in names}
    assert values["macro_f1"] >= values["untuned_macro_f1"]
    assert values["nll"] <= values["uncalibrated_nll"]
    assert values["trained_temperature"] == values["temperature"]
    rows = {row["step"]: row["macro_f1"] for row in run.rows()}
    assert list(rows) == [EPOCH, 2 * EPOCH]
    fitted = run.results["fitted"]
    assert fitted["temperature"] == values["temperature"]
    assert sum(fitted["thresholds"].values()) == pytest.approx(1)
    assert json.loads((run.workdir / "evaluation.json").read_text())["fitted"] == fitted


def test_evaluation_uses_what_the_checkpoint_has(run, files):
    """Also on another file, and where auto is given again."""
    results = run.results
    assert run.evaluate() == results["eval"]
    assert run.evaluate(**{"task.class_weights": "auto"}) == results["eval"]
    after = run.results
    del results["data"]["train"]
    assert after == results
    path = dict(entry.split("=") for entry in run.config.data.more_eval)["trained"]
    other = run.evaluate(**{"data.eval": path, "data.more_eval": ()})
    assert other == {name: results["eval"][f"trained_{name}"] for name in other}
    run.evaluate()  # restores results.json


def test_predictions_have_the_thresholds_and_the_temperature(run, files):
    model = bert_jax.load(run.workdir)
    rows = [line.split("\t") for line in files["classification"][1].read_text().splitlines()[1:]]
    found = model.predict([row[0] for row in rows])
    values, fitted = run.results["eval"], run.results["fitted"]
    right = sum(p["label"] == row[1] for p, row in zip(found, rows, strict=True))
    assert right / NUM_EVAL == pytest.approx(values["accuracy"])
    for prediction in found:
        shares = prediction["probabilities"]
        is_bad = shares["bad"] > fitted["thresholds"]["bad"]
        assert prediction["label"] == ("bad" if is_bad else "good")
    gold = [p["probabilities"][row[1]] for p, row in zip(found, rows, strict=True)]
    assert -np.log(gold).mean() == pytest.approx(values["nll"], rel=1e-4)


def test_decisions_that_are_switched_off_are_not_those_of_the_checkpoint(run, files):
    texts = [line.split("\t")[0] for line in files["classification"][1].read_text().splitlines()]
    fitted, plain = (
        bert_jax.load(run.workdir, **changes).predict(texts[1:])
        for changes in ({}, {"task__thresholds": "default", "task__calibration": "none"})
    )
    assert all(p["label"] == max(p["probabilities"], key=p["probabilities"].get) for p in plain)
    temperature = run.results["fitted"]["temperature"]
    odds = [
        [math.log(p["probabilities"]["good"] / p["probabilities"]["bad"]) for p in found]
        for found in (fitted, plain)
    ]
    np.testing.assert_allclose(np.array(odds[0]) * temperature, odds[1], rtol=1e-3, atol=1e-4)


def test_whoever_reads_a_run_before_its_first_evaluation_is_told(make_workdir, caplog):
    heads = {"classifier__kernel": (16, 2), "classifier__bias": (2,)}
    workdir = make_workdir(heads=heads, task="classification", task__thresholds="tuned")
    (workdir / "labels.json").write_text('["bad", "good"]')
    load_model(str(workdir))
    assert "step 7 was not evaluated, so its thresholds are not" in caplog.text
