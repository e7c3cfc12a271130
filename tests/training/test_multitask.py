"""Several tasks on one encoder: turns, one encoder, idle heads, resumption, refusals."""

import pathlib
import re
import shutil

import numpy as np
import pytest

import bert_jax
from bert_jax.config import store
from bert_jax.devices.trees import flatten
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.multitask import read_tasks
from bert_jax.tools.listeners.make import training_listener
from bert_jax.training.evaluate import evaluate
from bert_jax.training.listener import Listener
from bert_jax.training.multitask import train_tasks
from bert_jax.training.open import open_run
from bert_jax.training.train import train
from bert_jax.training.turns import order_of_turns, tempered
from bert_jax.training.workdir import open_workdir
from tests.resuming import (
    StopAfter,
    arrays_of,
    assert_same_arrays,
    assert_same_run,
    metrics_of,
    newest_step,
)

NAMES = ("texts", "words")
EACH_STEP = {"log.every": "3", "eval.every": "7", "checkpoint.every": "5", "mesh.fsdp": 2}


@pytest.fixture(scope="module")
def make_configs(new_run):
    """Returns a function (changes of both tasks, of words) -> their configurations."""

    def make(changes=None, of_words=None):
        both = EACH_STEP | {"max_length": 24, "data.bucket_lengths": (24,)} | (changes or {})
        tasks = {"texts": ("classification", both), "words": ("tagging", both | (of_words or {}))}
        return {name: new_run(*task).config for name, task in tasks.items()}

    return make


@pytest.fixture(scope="module")
def configs(make_configs):
    return make_configs()


@pytest.fixture(scope="module")
def whole(configs, tmp_path_factory):
    """The folder of a run without interruptions."""
    folder = tmp_path_factory.mktemp("whole")
    train_tasks(configs, str(folder))
    return folder


def params_of(folder):
    return open_workdir(str(folder)).params


def encoder_of(params):
    return {p: x for p, x in params.items() if p.startswith("bert/") and "pooler" not in p}


def test_turns_are_a_random_order_of_all_steps():
    order = order_of_turns((300, 100), seed=1)
    assert np.bincount(order).tolist() == [300, 100]
    # Of each half, about a quarter: the mean is 50, the standard deviation 4.3.
    assert abs(order[:200].sum() - 50) < 5 * 4.3
    assert (order != order_of_turns((300, 100), seed=2)).any()


def test_a_temperature_gives_small_tasks_more_steps(make_configs, tmp_path):
    assert tempered((900, 100), 1.0) == [900, 100]
    assert tempered((900, 100), 2.0) == [750, 250]  # 30 : 10
    assert tempered((999, 1), 1e9) == [500, 500]
    with pytest.raises(UserError, match=r"temperature=0.0 must be above 0"):
        tempered((1, 2), 0.0)
    configs, opened = make_configs({}, {"epochs": 1.0}), []

    class Opened(Listener):
        def opened(self, run):
            opened.append(run.steps)
            if len(opened) == len(NAMES):
                raise InterruptedError

    before = [open_run(config, str(tmp_path)).steps for config in configs.values()]
    with pytest.raises(InterruptedError):
        listeners = dict.fromkeys(NAMES, Opened())
        train_tasks(configs, str(tmp_path / "run"), listeners=listeners, temperature=2.0)
    assert opened == tempered(before, 2.0) != before


def test_both_tasks_learn_on_one_encoder(whole, configs, files):
    folders = {name: str(whole / name) for name in NAMES}
    encoders = [encoder_of(params_of(folder)) for folder in folders.values()]
    assert len(encoders[0]) > 10
    assert_same_arrays(*encoders)
    for name, metric in (("texts", "accuracy"), ("words", "f1")):
        config = store.load(folders[name])
        values = evaluate(config, folders[name])
        last = [row for row in metrics_of(folders[name]) if row["split"] == "validation"][-1]
        assert values[metric] == last[metric] >= 0.9
        # A task takes as many steps as alone.
        assert last["step"] == 3 * -(-100 // 8) if name == "texts" else last["step"] > 10
    texts, words = (bert_jax.load(folder) for folder in folders.values())
    predicted = texts.predict(["the good moon", "bad sand"])
    assert [prediction["label"] for prediction in predicted] == ["good", "bad"]
    (predicted,) = words.predict(["the rome river"])
    assert [entity["text"] for entity in predicted["entities"]] == ["rome"]


def test_turns_of_other_tasks_do_not_change_a_task(make_configs, tmp_path):
    """While another task trains its head on the frozen encoder, a task trains as if alone.

    AdamW with weight decay would change idle parameters; so would a common count of steps.
    """
    changes = {"optimizer.weight_decay": 0.1, "checkpoint.use": "newest", "epochs": 1.0}
    frozen = {"optimizer.frozen_layers": -1, "optimizer.learning_rate": 1e-2}
    configs = make_configs(changes, frozen)
    train_tasks(configs, str(tmp_path / "both"))
    train(configs["texts"], str(tmp_path / "alone"))
    assert_same_run(tmp_path / "both" / "texts", tmp_path / "alone")
    texts, words = (params_of(tmp_path / "both" / name) for name in NAMES)
    assert_same_arrays(encoder_of(words), encoder_of(texts))
    lines = [row["loss"] for row in metrics_of(tmp_path / "both" / "words")]
    assert lines[-1] < lines[0]  # it does train


def test_a_stopped_run_resumes_bit_for_bit(whole, configs, tmp_path, capsys):
    folder = tmp_path / "run"
    listeners = {"texts": training_listener(name="texts"), "words": StopAfter(4)}
    results = train_tasks(configs, str(folder), listeners=listeners)
    assert results["texts"].stopped_by == "SIGTERM"
    printed = capsys.readouterr().out
    stopped = r"^texts      Stopped by SIGTERM after turn \d+ of \d+, which is saved"
    assert re.search(stopped, printed, re.M)
    assert not (folder / "texts" / "results.json").exists()
    assert not train_tasks(configs, str(folder))["words"].stopped_by
    for name in NAMES:
        assert_same_run(folder / name, whole / name)
    turns = f"checkpoints/{newest_step(whole)}"
    assert_same_arrays(arrays_of(folder / turns), arrays_of(whole / turns))


def test_the_last_evaluation_is_reported_once(whole, configs, tmp_path):
    """Although the run was interrupted before the checkpoint that follows it."""
    folder = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(folder / "words" / "checkpoints")
    train_tasks(configs, str(folder))
    assert_same_run(folder / "words", whole / "words")


def test_python(files, whole, configs, tmp_path):
    with pytest.raises(UserError, match=r"holds several tasks: .*/texts or .*/words\.$"):
        bert_jax.load(whole)
    with pytest.raises(UserError, match="holds several tasks"):
        bert_jax.train(bert_jax.get_config("tiny"), whole)
    models = bert_jax.multitask(configs, whole)  # which is complete
    assert [*models] == [*NAMES]
    expected = params_of(whole / "words")
    assert_same_arrays(
        {p: np.asarray(x) for p, x in flatten(models["words"].params).items()}, expected
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 2}, "Task words: seeds=2 cannot be used for tasks that are"),
        ({"checkpoint.milestones": ("50%",)}, r"milestones=\('50%',\) cannot be used"),
        ({"profile": "1:2"}, "Task words: profile=1:2 cannot be used for .* set it to ''"),
        ({"model.num_layers": 2}, "have the same model.num_layers: it is 1 in texts and 2 in"),
    ],
)
def test_tasks_that_cannot_be_trained_together(make_configs, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        train_tasks(make_configs({}, changes), str(tmp_path))
    assert not [*tmp_path.iterdir()]


def test_folders_and_names_that_are_refused(whole, configs, tmp_path):
    texts, words = configs.values()
    for given, message in (
        ({"texts": texts}, "give two or more"),
        ({"texts": texts, "a.b": words}, r"'a\.b' is not a valid name of a task"),
        (
            {"words": words, "texts": texts},
            "trained with the tasks texts, words, and not words, te",
        ),
    ):
        with pytest.raises(UserError, match=message):
            train_tasks(given, str(whole))
    changed = {name: config.replace({"epochs": 4.0}) for name, config in configs.items()}
    with pytest.raises(UserError, match=r"other settings: epochs: 3\.0 -> 4\.0"):
        train_tasks(changed, str(whole))
    with pytest.raises(UserError, match="holds a run: choose another folder"):
        train_tasks(configs, str(whole / "texts"))
    pathlib.Path(tmp_path, "words", "checkpoints", "3").mkdir(parents=True)
    with pytest.raises(UserError, match="words holds the checkpoints of another run: remove them"):
        train_tasks(configs, str(tmp_path))


def test_words_of_the_command_line():
    words = "a=configs/ner.py:wnut17 b=glue:mrpc a.data.train=x=y a.epochs=2 b.seed=3".split()
    assert read_tasks(words) == {
        "a": ("configs/ner.py:wnut17", {"data.train": "x=y", "epochs": "2"}),
        "b": ("glue:mrpc", {"seed": "3"}),
    }
    for word, message in (
        ("a", "'a' is neither NAME=CONFIG nor"),
        ("a.=3", "'a.=3' is neither"),
        ("c.seed=1", "there is no task c: give c=CONFIG before it"),
        ("a=b", "there is a task a already"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            read_tasks([*words, word])
