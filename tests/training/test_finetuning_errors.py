"""Settings, files and folders that fine-tuning refuses, each with its message."""

import re

import pytest

from bert_jax.training.open import open_run
from bert_jax.training.workdir import write_labels


def assert_refused(
    new_run, message, task="classification", changes=None, to_train=True, workdir=None
):
    with pytest.raises(ValueError, match=message):
        run = new_run(task, changes, workdir)
        open_run(run.config, str(run.workdir), to_train)


# Task, changes of its configuration, and a fragment of the message.
INVALID = [
    ("classification", {"data.train": ""}, "data.train is missing"),
    ("classification", {"data.eval": ""}, "data.eval is missing"),
    ("classification", {"data.vocab": ""}, "config.init_from is missing"),
    ("classification", {"data.more_eval": ("other.tsv",)}, "is not NAME=FILE with a name"),
    ("classification", {"metrics": ("f2",), "checkpoint.best_metric": "f2"}, "'f2' is none of"),
    ("classification", {"task.published": "cola2"}, "is not a published set"),
    ("classification", {"task.text_a": ""}, "text_a is missing"),
    ("multiple_choice", {"metrics": ("accuracy", "f1")}, "'f1' is none of accuracy"),
    (
        "classification",
        {"metrics": ("f1",), "checkpoint.best_metric": "f1", "task.label": "text_a"},
        "take macro_f1",
    ),
    ("span", {"model.vocab_size": 9}, "entries, more than"),
    ("classification", {"model.attention_pattern": "causal"}, "reads the first token, which"),
    ("multiple_choice", {"task.lm_weight": 0.5}, "adds the loss of the next tok"),
    ("classification", {"task.both_orders": True}, "needs a second text"),
    ("classification", {"task.stride": 23}, "is above 22, the tokens of"),
    ("multiple_choice", {"task.long_texts": "windows"}, "task.long_texts does not exist"),
    ("classification", {"task.class_weights": '{"ugly": 2}'}, "'ugly' is none of the labels"),
    ("tagging", {"task.head": "crf", "task.class_weights": "auto"}, "a CRF has a loss of whole"),
    ("tagging", {"task.thresholds": "tuned"}, "task.thresholds does not exist"),
    ("span", {"task.calibration": "temperature"}, "task.calibration does not exist"),
    (
        "classification",
        {"task.mix_layer_norm": True, "task.layers": "scalar_mix", "microbatch_size": 4},
        "normalizes over a whole batch",
    ),
    ("classification", {"task.windows_per_epoch": 2}, "has no effect with config.task.long_texts"),
    (
        "classification",
        {"task.both_orders": True, "task.long_texts": "windows"},
        "encodes whole pairs",
    ),
]


@pytest.mark.parametrize("task, changes, message", INVALID)
def test_invalid_settings_are_reported_before_a_run_begins(new_run, task, changes, message):
    assert_refused(new_run, re.escape(message), task, changes)


def test_a_label_that_is_not_in_training_is_reported_with_its_line(new_run, files, tmp_path):
    path = tmp_path / "new.tsv"
    path.write_text("text_a\tlabel\nthe moon\tgood\nthe sand\tugly\n")
    message = (
        rf"{path}, line 3: unknown label 'ugly'; the labels of the training data are bad, good\."
    )
    changes = {"data.eval": str(path)}
    assert_refused(new_run, message, changes=changes, workdir=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    (tmp_path / "vocab.txt").write_text(files["vocab"].read_text())
    write_labels(str(tmp_path), ("bad", "good"))
    assert_refused(new_run, message, changes=changes, to_train=False, workdir=tmp_path)
    path = tmp_path / "new.conll"
    path.write_text("ann B-PER\nsand B-ORG\n")
    message = r"unknown label 'B-ORG'; the labels of the training data are O, B-LOC, I-LOC"
    assert_refused(new_run, message, "tagging", {"data.eval": str(path)})


def test_a_folder_without_a_run_is_not_evaluated(new_run, files, tmp_path):
    assert_refused(new_run, "holds no vocabulary", to_train=False, workdir=tmp_path)
    (tmp_path / "vocab.txt").write_text(files["vocab"].read_text())
    assert_refused(new_run, r"has no labels\.json: train first", to_train=False, workdir=tmp_path)
