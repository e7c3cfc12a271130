"""Predictions and scores of classification from logits, by hand."""

import dataclasses
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.config.task import default_config
from bert_jax.data.labelled.examples import TextExample


def make(kind="single", metrics=("accuracy",), **changes):
    values = {"task.problem_type": kind, "metrics": metrics, "checkpoint.best_metric": "loss"}
    values |= {
        f"task.{name}": value for name, value in ({"label_separator": "|"} | changes).items()
    }
    return default_config("classification").replace(values).task


def examples(*labels):
    return [
        TextExample(f"x.tsv, line {n}", f"id{n}", "text", labels=found)
        for n, found in enumerate(labels)
    ]


def with_labels(data, gold):
    return dataclasses.replace(data, labels=data.find_labels(gold))


def predictions_of(data, gold, logits):
    return data.collect(gold, None, [{"logits": row} for row in logits])


def test_the_largest_logit_is_the_label_and_softmax_its_probability():
    gold = examples(("b",), ("a",), ("c",))
    data = with_labels(make(metrics=("accuracy", "macro_f1")), gold)
    assert data.labels == ("a", "b", "c")
    logits = np.log([[0.1, 0.7, 0.2], [0.2, 0.2, 0.6], [0.25, 0.25, 0.5]])
    found = predictions_of(data, gold, logits)
    assert [(p["id"], p["label"]) for p in found] == [("id0", "b"), ("id1", "c"), ("id2", "c")]
    assert found[0]["probabilities"] == pytest.approx({"a": 0.1, "b": 0.7, "c": 0.2})
    # F1 of a, b and c: 0, 1 and 2/3.
    scores = data.score(gold, found)
    assert scores == pytest.approx({"accuracy": 2 / 3, "macro_f1": 5 / 9})
    assert list(scores) == ["accuracy", "macro_f1"]
    assert data.baseline(gold) == pytest.approx(1 / 3)


def test_labels_above_one_half_are_predicted():
    gold = examples(("a", "c"), (), ("b",))
    data = with_labels(make("multi", ("f1", "accuracy")), gold)
    logits = np.array([[1.0, -1.0, 0.5], [-800.0, -1.0, -0.1], [2.0, 800.0, -3.0]])
    found = predictions_of(data, gold, logits)
    assert [p["labels"] for p in found] == [["a", "c"], [], ["a", "b"]]
    assert found[0]["probabilities"]["a"] == pytest.approx(1 / (1 + np.exp(-1)))
    assert found[2]["probabilities"]["b"] == 1 and found[1]["probabilities"]["a"] == 0
    # Of four labels found three are right, and all three of gold are found.
    assert data.score(gold, found) == pytest.approx({"f1": 6 / 7, "accuracy": 2 / 3})


def test_a_regression_gives_numbers():
    gold = examples(("1",), ("2.5",), ("4",))
    data = with_labels(make("regression", ("pearson", "spearman")), gold)
    assert data.labels == ()
    values = np.array([[0.0], [1.0], [4.0]])
    found = predictions_of(data, gold, values)
    assert [p["value"] for p in found] == [0.0, 1.0, 4.0]
    pearson = np.corrcoef([1, 2.5, 4], [0, 1, 4])[0, 1]
    assert data.score(gold, found) == pytest.approx({"pearson": pearson, "spearman": 1.0})
    assert data.baseline(gold) == 0


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_the_logits_of_the_windows_of_a_text_are_pooled(pool):
    gold = examples(("b",), ("a",))
    data = with_labels(make(long_texts="windows"), gold)
    data = dataclasses.replace(data, window_pool=pool)
    logits = np.array([[1.0, 2.0], [5.0, 0.0], [0.0, 3.0], [2.0, -1.0]])
    rows = SimpleNamespace(example=np.array([0, 0, 0, 1]))
    found = data.collect(gold, rows, [{"logits": row} for row in logits])
    pooled = {"mean": [2.0, 5 / 3], "max": [5.0, 3.0]}[pool]
    exp = np.exp(pooled)
    assert list(found[0]["probabilities"].values()) == pytest.approx(exp / exp.sum())
    assert [one["label"] for one in found] == ["a", "a"]
    assert data.score(gold, found) == {"accuracy": 0.5}  # of texts
    data = make("regression", ("pearson",), long_texts="windows", window_pool="mean")
    (*_, last) = data.collect(gold, rows, [{"logits": np.array([x])} for x in (5, 5, 8, 2)])
    assert last["value"] == 2


def test_a_published_set_determines_labels_and_their_kind():
    assert make(published="stsb", metrics=("pearson",)).kind == "regression"
    mnli = make(published="mnli")
    assert len(mnli.labels) == 3
    assert mnli.find_labels(examples(("contradiction",))) == mnli.labels


def test_f1_is_of_two_labels():
    data = make(metrics=("f1",))
    assert dataclasses.replace(data, labels=("a", "b")).labels == ("a", "b")
    with pytest.raises(ValueError, match=r"one of two labels, and there are 3 \(a, b, c\): take"):
        dataclasses.replace(data, labels=("a", "b", "c"))


@pytest.mark.parametrize(
    "arguments, content, expected",
    [
        ({}, "one, two\nthree\n", [("one, two", None), ("three", None)]),  # plain lines
        ({"text_a": "text_a"}, "text_a\tid\none\t7\n", [("one", None)]),
        ({"text_a": "1", "label": "0"}, "7\tone\n8\ttwo\n", [("one", None), ("two", None)]),
        ({"published": "lcqmc"}, "one\ttwo\t1\n", [("one", "two")]),
        ({"published": "mrpc"}, "Quality\t#1 String\t#2 String\n1\ta\tb\n", [("a", "b")]),
        ({"published": "chnsenticorp"}, "text_a\none\n", [("one", None)]),
        ({"published": "chnsenticorp"}, "one\ntwo\n", [("one", None), ("two", None)]),
    ],
)
def test_a_text_file_in_the_form_of_the_training_file_is_read_as_such(
    tmp_path, arguments, content, expected
):
    path = tmp_path / "test.txt"
    path.write_text(content)
    texts = make(**arguments).read(str(path), Counter(), labelled=False)
    assert [(text.text_a, text.text_b) for text in texts] == expected
    path.write_text("one\ntwo\n")
    with pytest.raises(ValueError, match="line 1: no columns .'#1 String', '#2 String'"):
        list(make(published="mrpc").read(str(path), Counter(), labelled=False))
