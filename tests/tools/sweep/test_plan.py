"""What a sweep may not be, and the settings of sweep files."""

import re

import pytest

from bert_jax.tools.sweep.load import load_sweep, parse_settings
from bert_jax.tools.sweep.plan import Column, Run, Sweep, Table, needs

BERT = Run("bert", "configs/tiny.py", system="bert", task="pretraining")
NER = Run("ner", "configs/ner.py", after="bert", system="bert", task="ner")
TABLE = Table("T", {"bert": "BERT"}, (Column("ner", "f1"),))


def test_a_run_needs_what_it_names():
    overrides = {"data.vocab": "{data:a}/vocab.txt", "data.train": "{run:b}/x", "steps": 3}
    assert needs(Run("x", "c", overrides, after="c")) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Run("a/b", "c"), "'a/b' is no name of a run"),
        (lambda: Run("a", "c", seeds=-1), "seeds=-1 must be at least 0"),
        (lambda: Run("a", "c", at_step=3), "at_step=3 is a checkpoint of the run `after`"),
        (lambda: Run("a", "c", {"init_from": "x"}, after="b"), "an override of init_from"),
        (lambda: Sweep("S", ()), "The sweep 'S' has no runs"),
        (lambda: Sweep("S", (BERT, BERT)), "Two runs of the sweep have the name 'bert'"),
        (lambda: Sweep("S", (NER,)), "needs the run 'bert', but there is no such run"),
        (lambda: Sweep("S", (NER, BERT)), "needs the run 'bert', but it stands after it"),
        (lambda: Sweep("S", (BERT,), (TABLE,)), "The table 'T' names ner, which no run"),
        (
            lambda: Sweep("S", (BERT, NER), (Table("T", {}, (Column("ner", "f1"),)),)),
            "The table 'T' has no rows or no columns",
        ),
        (
            lambda: Sweep(
                "S", (BERT, NER), (Table("T", TABLE.rows, TABLE.columns, reference="gpt"),)
            ),
            "The table 'T' names gpt",
        ),
    ],
)
def test_a_wrong_sweep_is_refused(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


SWEEP = """def get_sweep(scale="paper", steps: int = 3, rate=1e-4, deep=False):
    values = {"steps": steps, "rate": rate, "deep": deep}
    return Sweep(scale, (Run("bert", "configs/tiny.py", values),))"""


def test_settings_have_the_types_of_their_defaults(write_sweep):
    path = write_sweep(SWEEP)
    sweep = load_sweep(f"{path}:mini", {"steps": "5", "rate": "2", "deep": "true"})
    assert sweep.title == "mini"
    assert sweep.runs[0].overrides == {"steps": 5, "rate": 2.0, "deep": True}
    assert load_sweep(path, {}).title == "paper"
    assert load_sweep(f"{path}:mini", {"scale": "tiny"}).title == "tiny"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"stps": "5"}, "Unknown setting --set stps. Did you mean steps? Available: scale, steps"),
        ({"steps": "many"}, "--set steps=many is not an integer."),
        ({"rate": "high"}, "--set rate=high is not a number."),
        ({"deep": "yes"}, "--set deep=yes is not true or false."),
    ],
)
def test_a_wrong_setting_is_refused(settings, message, write_sweep):
    with pytest.raises(ValueError, match=re.escape(message)):
        load_sweep(write_sweep(SWEEP), settings)


@pytest.mark.parametrize(
    "body, message",
    [
        ("def get_sweep(:", "cannot be read: invalid syntax"),
        ("import nothing_like_this", "cannot be read: No module named 'nothing_like_this'"),
        ("get_config = 3", "is not a sweep file: it has no function get_sweep"),
        ("def get_sweep():\n    return 3", "get_sweep returns int, not a Sweep"),
    ],
)
def test_a_file_that_is_no_sweep_is_refused(body, message, write_sweep):
    with pytest.raises(ValueError, match=re.escape(message)):
        load_sweep(write_sweep(body), {})


def test_an_argument_without_settings_is_refused(write_sweep):
    with pytest.raises(ValueError, match="the file has no settings, so 'mini' has none"):
        load_sweep(write_sweep("def get_sweep():\n    return 3") + ":mini", {})


def test_a_missing_file_is_named():
    with pytest.raises(
        ValueError, match=r"--sweep=configs/sweeps/table9.py: there is no such file"
    ):
        load_sweep("configs/sweeps/table9.py", {})


def test_settings_are_names_with_values():
    assert parse_settings(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for words, message in (
        (["scale"], "'scale' is not NAME=VALUE"),
        (["a=1", "a=2"], "--set a is given twice: '1' and '2'"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_settings(words)
