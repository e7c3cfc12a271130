"""Settings, files and folders that fine-tuning refuses, each with its message."""

import pytest

from bert_jax.training.open import open_run
from bert_jax.training.workdir import write_labels


def assert_refused(
    new_run, message, task="classification", changes=None, to_train=True, workdir=None
):
    with pytest.raises(ValueError, match=message):
        run = new_run(task, changes, workdir)
        open_run(run.config, str(run.workdir), to_train)


@pytest.mark.parametrize(
    "task, changes, message",
    [
        ("classification", {"data.train": ""}, r"data\.train is missing: the file to train on"),
        ("classification", {"data.eval": ""}, r"data\.eval is missing: the file to evaluate on"),
        ("classification", {"data.vocab": ""}, r"config\.init_from is missing: the pre-trained"),
        (
            "classification",
            {"data.more_eval": ("other.tsv",)},
            r"more_eval: 'other\.tsv' is not NAME=FILE with a name of its own",
        ),
        (
            "classification",
            {"metrics": ("f2",), "checkpoint.best_metric": "f2"},
            r"metrics: 'f2' is none of accuracy, f1, macro_f1, matthews, the metrics for"
            r" task\.problem_type='single'",
        ),
        (
            "classification",
            {"task.published": "cola2"},
            r"published='cola2' is no published set\. Available: cola",
        ),
        ("classification", {"task.text_a": ""}, r"text_a is missing: the column of the text"),
        (
            "multiple_choice",
            {"metrics": ("accuracy", "f1")},
            r"metrics=\('accuracy', 'f1'\) must be \('accuracy',\) for multiple choice",
        ),
        (
            "classification",
            {"metrics": ("f1",), "checkpoint.best_metric": "f1", "task.label": "text_a"},
            r"metrics: f1 is of one of two labels, and there are \d+ \(.*\): take macro_f1",
        ),
        (
            "span",
            {"model.vocab_size": 9},
            r"has \d+ entries, more than",
        ),
        (
            "classification",
            {"model.attention_pattern": "causal"},
            r"task\.pool='cls' reads the first token, which",
        ),
        (
            "multiple_choice",
            {"task.lm_weight": 0.5},
            r"lm_weight=0\.5 adds the loss of the next tok",
        ),
        (
            "classification",
            {"task.both_orders": True},
            r"line 2: task\.both_orders=True needs a second text: set config\.task\.text_b",
        ),
        (
            "classification",
            {"task.stride": 23},
            r"config\.task\.stride=23 is above 22, the tokens of",
        ),
        (
            "multiple_choice",
            {"task.long_texts": "windows"},
            r"config\.task\.long_texts does not exist",
        ),
        (
            "classification",
            {"task.class_weights": '{"ugly": 2}'},
            r"task\.class_weights: 'ugly' is none of the labels bad, good\.",
        ),
        (
            "tagging",
            {"task.head": "crf", "task.class_weights": "auto"},
            r"task\.class_weights='auto' cannot be used: a CRF has a loss of whole sentences,"
            r" config\.task\.head=linear one of words\. Set --config\.task\.class_weights=none\.",
        ),
        (
            "tagging",
            {"task.thresholds": "tuned"},
            r"config\.task\.thresholds does not exist",
        ),
        (
            "span",
            {"task.calibration": "temperature"},
            r"config\.task\.calibration does not exist",
        ),
    ],
)
def test_invalid_settings_are_reported_when_the_run_is_opened(new_run, task, changes, message):
    assert_refused(new_run, message, task, changes)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"task.mix_layer_norm": True, "task.layers": "scalar_mix", "microbatch_size": 4},
            "mix_layer_norm=True normalizes over a whole batch, which config.microbatch_size=4",
        ),
        (
            {"task.windows_per_epoch": 2},
            "windows_per_epoch=2 has no effect with config.task.long_texts='truncate': set config",
        ),
        (
            {"task.both_orders": True, "task.long_texts": "windows"},
            r"task\.both_orders=True encodes whole pairs, and config\.task\.long_texts='windows'",
        ),
    ],
)
def test_invalid_settings_are_reported_at_once(new_run, changes, message):
    with pytest.raises(ValueError, match=message):
        new_run("classification", changes)


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
