"""Fine-tuning runs learn, resume exactly, and score the same however they are batched."""

import dataclasses
import json
import os
import random
import signal

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from bert_jax.config import store
from bert_jax.data.labelled.batching import choose_lengths
from bert_jax.devices import sharding
from bert_jax.files.atomic import read_json_lines
from bert_jax.files.checksums import file_sha256
from bert_jax.scores.classification import Counts, micro
from bert_jax.training import reporting
from bert_jax.training.evaluate import make_evaluator
from bert_jax.training.open import open_run
from tests.runs.test_exactness import stop_after
from tests.training.conftest import CHANGES, Run
from tests.training.labelled_files import NUM_EVAL, NUM_TRAIN, write_choices

# ------------------------------------------------------------------ learning


@pytest.mark.parametrize(
    "name, metrics, least, baseline",
    [
        ("classification", ("accuracy",), 0.9, (0.5, 0.8)),
        ("multi_label", ("f1", "accuracy", "macro_f1"), 0.85, (0.4, 0.8)),
        ("regression", ("pearson", "spearman"), 0.8, (0, 0)),
        ("tagging", ("f1", "precision", "recall", "accuracy", "PER_f1", "LOC_f1"), 0.9, (0, 0)),
        ("words", ("accuracy",), 0.95, (0.8, 0.93)),
        ("crf", ("f1", "precision", "recall", "accuracy", "PER_f1", "LOC_f1"), 0.9, (0, 0)),
        ("span", ("f1", "exact", "best_f1", "best_exact"), 80, (20, 60)),
        ("multiple_choice", ("accuracy",), 0.9, (1 / 3, 0.7)),
    ],
)
def test_a_run_learns_the_rule_and_records_its_data(finished, name, metrics, least, baseline):
    run = finished(name)
    results, task = run.results, CHANGES[name][0]
    assert set(results) == {"eval", "step", "seed", "task", "init_from", "baseline", "data"}
    assert next(iter(results["eval"])) == metrics[0] == run.config.metrics[0]
    assert {*metrics, "loss"} <= set(results["eval"])
    assert baseline[0] <= results["baseline"] <= baseline[1] < least
    assert results["eval"][metrics[0]] >= least
    assert (results["task"], results["seed"], results["init_from"]) == (task, 0, "")
    sizes = {"train": NUM_TRAIN, "eval": NUM_EVAL}
    for split, size in sizes.items():
        path = run.config[f"data.{split}"]
        expected = {"source": path, "sha256": file_sha256(path), "examples": size}
        assert results["data"][split] == expected
    assert "health: good" in run.printed
    assert store.load(str(run.workdir)).to_dict() == run.config.to_dict()


def test_labels_are_those_of_the_training_file_in_order(finished):
    assert finished("classification").labels == ["bad", "good"]
    assert finished("multi_label").labels == ["fine", "nice"]
    assert finished("regression").labels == finished("span").labels == []
    assert finished("tagging").labels == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


def test_the_best_checkpoint_is_the_one_evaluated(finished):
    run = finished("classification")
    values = {row["step"]: row["accuracy"] for row in run.rows()}
    epoch = -(-NUM_TRAIN // 8)
    assert list(values) == [epoch * number for number in range(1, 6)]
    best = max(values, key=lambda step: (values[step], -step))
    row = next(row for row in run.rows() if row["step"] == best)
    assert run.results["step"] == best
    assert run.results["eval"] == {n: v for n, v in row.items() if n not in ("step", "split")}
    assert run.params("best")[1] == best and run.params("newest")[1] == 5 * epoch
    assert f"best       step {best}" in run.printed


@pytest.mark.parametrize("name", ["classification", "crf", "span"])
def test_evaluating_from_the_workdir_gives_the_same_scores(finished, name):
    run = finished(name)
    before = run.results
    values = run.evaluate()
    after = run.results
    assert values == before["eval"]
    del before["data"]["train"]  # which evaluation does not read
    assert after == before


def test_more_files_are_evaluated_under_their_names(finished):
    values = finished("classification").results["eval"]
    assert list(values) == ["accuracy", "loss", "trained_accuracy", "trained_loss"]
    run = finished("classification")
    alone = run.evaluate(**{"data.eval": run.config.data.train, "data.more_eval": ()})
    assert alone == {"accuracy": values["trained_accuracy"], "loss": values["trained_loss"]}
    run.evaluate()  # restores results.json


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_reader_sees_agrees_with_the_scores(finished, name):
    run = finished(name)
    review = json.loads((run.workdir / "evaluation.json").read_text())
    values = run.results["eval"]
    assert review["step"] == run.results["step"]
    assert review["examples"] == run.results["data"]["eval"]["examples"]
    assert len(review["errors"]) == min(review["wrong"], 30)
    counts = {name: Counts(*numbers) for name, numbers in review.get("classes", {}).items()}
    if counts and "f1" in values:
        assert micro(counts).f1 == pytest.approx(values["f1"])
    if "confusion" in review:
        matrix = np.array(review["confusion"])
        assert np.trace(matrix) / matrix.sum() == pytest.approx(values["accuracy"])
    if "values" in review:
        assert np.corrcoef(np.transpose(review["values"]))[0, 1] == pytest.approx(values["pearson"])
    if "calibration" in review and "accuracy" in values:
        _, right, number = np.transpose(review["calibration"])
        assert (right * number).sum() / number.sum() == pytest.approx(values["accuracy"])
    if name in ("classification", "multiple_choice", "multi_label"):
        assert 1 - review["wrong"] / review["examples"] == pytest.approx(values["accuracy"])
    if "exact" in values:
        share = 100 - 100 * review["wrong"] / review["examples"]
        assert share == pytest.approx(values["exact"])
    assert "health: " + review["verdict"][-1].removeprefix("health: ") in run.printed


# ------------------------------------------------------------------ stopping


@pytest.mark.parametrize("name, stop_at", [("classification", (5, 31)), ("crf", (20,))])
def test_a_stopped_run_resumes_bit_for_bit(finished, new_run, monkeypatch, name, stop_at):
    whole = finished(name)
    run = Run(whole.config, new_run(CHANGES[name][0]).workdir)
    push = reporting.Reporter.push

    def push_and_stop(self, step, *rest):
        push(self, step, *rest)
        if step in stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(reporting.Reporter, "push", push_and_stop)
    for step in stop_at:
        assert int(run.train().state.step) == step
        assert f"Stopped by SIGTERM after step {step}" in run.printed
    run.train()
    assert f"resumed    after step {stop_at[-1]}" in run.printed
    starts = read_json_lines(run.workdir / "starts.jsonl")
    assert [start["step"] for start in starts] == [0, *stop_at]
    assert {start["steps"] for start in starts} == {int(run.state.step)}
    assert run.results["eval"] == whole.results["eval"]
    assert run.results["step"] == whole.results["step"]
    assert run.rows() == whole.rows()
    (params, step), (expected, last) = run.params(), whole.params()
    assert step == last
    for path, array in expected.items():
        assert params[path].tobytes() == array.tobytes(), path


def test_a_run_keeps_the_lengths_that_it_began_with(new_run, monkeypatch):
    """Also one of an earlier version, whose configuration had other lengths by default."""
    changes = {"model.num_layers": 1, "epochs": 1.0}
    whole = new_run("tagging", changes | {"data.bucket_lengths": (10, 13)}).train()
    assert "padded to 10, 13, 24 tokens: one compilation each" in whole.printed
    stopped = Run(whole.config, new_run("tagging").workdir)
    with monkeypatch.context() as patch:
        stop_after(patch, 5)
        assert int(stopped.train().state.step) == 5
    resumed = Run(new_run("tagging", changes | {"data.bucket_lengths": ()}).config, stopped.workdir)
    assert resumed.train().is_complete and "padded to 10, 13, 24 tokens" in resumed.printed
    assert store.load(str(resumed.workdir)).data.bucket_lengths == (10, 13)
    (params, step), (expected, last) = resumed.params(), whole.params()
    assert step == last
    for path, array in expected.items():
        assert params[path].tobytes() == array.tobytes(), path


def test_a_run_chooses_lengths_of_its_training_rows_and_keeps_them(new_run):
    changes = {
        "model.num_layers": 1,
        "epochs": 1.0,
        "data.bucket_lengths": (),
        "max_length": 32,
    }
    run = new_run("tagging", changes)
    opened = open_run(run.config, str(run.workdir))
    rows = opened.training[0]
    lengths = choose_lengths(rows.rows.lengths, 4)
    assert rows.loader.lengths == lengths and len(lengths) > 1
    assert opened.config.data.bucket_lengths == lengths and run.config.data.bucket_lengths == ()
    # What is evaluated may be longer.
    assert rows.pad_lengths == opened.evaluation[0][0].pad_lengths == (*lengths, 32)
    run.train()
    assert store.load(str(run.workdir)).data.bucket_lengths == lengths
    assert run.evaluate() == run.results["eval"]


def test_a_begun_run_refuses_other_training_data(finished, new_run, tmp_path):
    first = finished("multiple_choice")
    path = tmp_path / "train.csv"
    write_choices(path, random.Random(5), 20)
    changes = {"data.train": str(path), "checkpoint.allow_changes": False}
    config = first.config.replace(changes)
    with pytest.raises(ValueError, match="was trained with other settings"):
        Run(config, first.workdir).train()


# ------------------------------------------------------------------ what scores depend on


def evaluate_in(finished_run, batch_size, lengths, mesh):
    """Returns (predictions, loss) of the newest parameters on the evaluation file."""
    config = store.load(str(finished_run.workdir))
    config = config.replace({"data.bucket_lengths": lengths})
    run = open_run(config, str(finished_run.workdir), to_train=False)
    config = config.replace({"eval.batch_size": batch_size})
    run = dataclasses.replace(run, mesh=mesh)
    params = jax.device_put(finished_run.state.params, sharding.replicated(mesh))
    evaluation = make_evaluator(run, run.phases[0])(params)
    return evaluation.predictions, evaluation.values["loss"]


def numbers_in(prediction):
    """Returns the leaves of a prediction that are no floats, and those that are."""
    leaves = jax.tree.leaves(prediction, is_leaf=lambda x: x is None)
    floats = [leaf for leaf in leaves if isinstance(leaf, float)]
    return [leaf for leaf in leaves if not isinstance(leaf, float)], floats


@pytest.mark.parametrize(
    "name", ["classification", "tagging", "crf", "span", "multiple_choice", "regression"]
)
def test_scores_do_not_depend_on_batches_padding_or_devices(finished, name):
    run = finished(name)
    longest = run.config.max_length
    one = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), sharding.AXES)
    eight, two_ways = sharding.make_mesh(), sharding.make_mesh(fsdp=2)
    predictions, loss = evaluate_in(run, 1, (longest,), one)  # each row by itself
    # A batch of 8 and of 16 has a last one that is not full; 64 takes all rows at once.
    for batch_size, lengths, mesh in (
        (8, (longest,), eight),
        (16, (9, 13, longest), eight),
        (64, (longest,), two_ways),
    ):
        others, other_loss = evaluate_in(run, batch_size, lengths, mesh)
        np.testing.assert_allclose(other_loss, loss, rtol=1e-5, atol=1e-5)
        for prediction, other in zip(predictions, others, strict=True):
            (same, floats), (other_same, other_floats) = map(numbers_in, (prediction, other))
            assert other_same == same
            np.testing.assert_allclose(other_floats, floats, atol=2e-5, rtol=1e-4)


# ------------------------------------------------------------------ what is trained


def test_a_frozen_encoder_is_unchanged_bit_for_bit(finished, new_run):
    """Also with weight decay, and split over devices; the CRF on it learns."""
    first = finished("span")
    changes = {
        "init_from": str(first.workdir),
        "head.tagging": "crf",
        "head.layers": "scalar_mix",
        "optimizer.frozen_layers": -1,
        "optimizer.learning_rate": 2e-2,
        "optimizer.weight_decay": 0.1,
        "mesh.fsdp": 2,
    }
    run = new_run("tagging", changes).train()
    assert run.results["eval"]["f1"] > 0.6
    assert run.results["init_from"] == str(first.workdir)
    before, after = first.params("best")[0], run.params()[0]
    encoder = {path for path in before if path.startswith(("bert/embeddings", "bert/encoder"))}
    assert encoder == {path for path in after if path.startswith("bert/")}
    for path in encoder:
        assert after[path].tobytes() == before[path].tobytes(), path
    assert after["scalar_mix/weights"].any() and after["transitions"].any()


def test_first_layers_are_frozen_and_last_layers_reinitialized(finished, new_run):
    first = finished("classification")
    changes = {
        "init_from": str(first.workdir),
        "reinit_layers": 1,
        "optimizer.frozen_layers": 1,
        "optimizer.weight_decay": 0.1,
        "optimizer.learning_rate": 1e-5,
        "model.initializer_range": 0.01,
        "epochs": 0.0,
        "steps": 2,
    }
    run = new_run("classification", changes).train()
    assert "with new, random ones for bert/encoder/layer_1, bert/pooler" in run.printed
    before, after = first.params("best")[0], run.params()[0]
    for path, array in before.items():
        if path.startswith(("bert/embeddings", "bert/encoder/layer_0")):
            assert after[path].tobytes() == array.tobytes(), path
        elif path.startswith(("bert/encoder/layer_1", "bert/pooler")):
            if path.endswith("kernel"):  # initialized, then two small steps
                assert np.abs(after[path]).max() < 0.05 < np.abs(array).max(), path
        else:  # the head continues
            np.testing.assert_allclose(after[path], array, atol=1e-4)
            assert (after[path] != array).any()
