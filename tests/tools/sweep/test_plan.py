"""What a sweep may not be, and the settings of sweep files."""

import pathlib
import re

import pytest

from bert_jax.tools.sweep.plan import Column, Run, Sweep, Table, load_sweep

BERT = Run("bert", "configs/tiny.py", system="bert", task="pretraining")
NER = Run("ner", "configs/ner.py", after="bert", system="bert", task="ner")
F1 = (Column("ner", "f1"),)
ROWS = {"bert": "BERT"}


def with_table(*table, runs=(BERT, NER), **options):
    return lambda: Sweep("S", runs, (Table("T", *table, **options),))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Run("a/b", "c"), "'a/b' is not a valid name of a run"),
        (lambda: Run("a", "c", seeds=-1), "seeds=-1 must be at least 0"),
        (lambda: Run("a", "c", at_step=3), "at_step=3 is a checkpoint of the run `after`"),
        (lambda: Run("a", "c", {"init_from": "x"}, after="b"), "an override of init_from"),
        (lambda: Sweep("S", ()), "The sweep 'S' has no runs"),
        (lambda: Sweep("S", (BERT, BERT)), "Two runs of the sweep have the name 'bert'"),
        (lambda: Sweep("S", (NER,)), "needs the run 'bert', but there is no such run"),
        (lambda: Sweep("S", (NER, BERT)), "needs the run 'bert', but it stands after it"),
        (with_table({}, F1), "The table 'T' has no rows or no columns"),
        (with_table(ROWS, F1, runs=(BERT,)), "The table 'T' names ner, which no run"),
        (with_table({"elmo": "ELMo"}, F1), "The table 'T' names elmo"),
        (with_table(ROWS, F1, reference="gpt"), "The table 'T' names gpt"),
        (with_table(ROWS, F1, reference={"bert": "gpt"}), "The table 'T' names gpt"),
    ],
)
def test_a_wrong_sweep_is_refused(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


SWEEP = """def get_sweep(scale="paper", steps: int = 3, rate=1e-4, deep=False):
    values = {"steps": steps, "rate": rate, "deep": deep}
    return Sweep(scale, (Run("bert", "configs/tiny.py", values),))"""


@pytest.fixture
def write_sweep(tmp_path):
    """Returns a function (body of the file) -> its path."""

    def write(body: str) -> str:
        path = pathlib.Path(tmp_path, "mine.py")
        path.write_text(f"from bert_jax.tools.sweep.plan import Run, Sweep\n\n{body}\n")
        return str(path)

    return write


def test_settings_have_the_types_of_their_defaults(write_sweep):
    path = write_sweep(SWEEP)
    sweep = load_sweep(f"{path}:mini", ["steps=5", "rate=2", "deep=true"])
    assert sweep.title == "mini"
    assert sweep.runs[0].overrides == {"steps": 5, "rate": 2.0, "deep": True}
    assert load_sweep(path).title == "paper"
    assert load_sweep(f"{path}:mini", ["scale=a=b"]).title == "a=b"


@pytest.mark.parametrize(
    "body, argument, words, message",
    [
        (SWEEP, "", ["stps=5"], "Unknown setting --set stps. Did you mean steps? Available: scale"),
        (SWEEP, "", ["steps=many"], "--set steps=many is not an integer."),
        (SWEEP, "", ["deep=yes"], "--set deep=yes is not true or false."),
        (SWEEP, "", ["scale"], "--set 'scale' is not NAME=VALUE"),
        (SWEEP, "", ["steps=1", "steps=2"], "--set steps is given twice: '1' and '2'"),
        ("def get_sweep(:", "", [], "cannot be used: invalid syntax"),
        ("get_config = 3", "", [], "is not a sweep file: it has no function get_sweep"),
        ("def get_sweep():\n    return 3", "", [], "get_sweep returns int, not a Sweep"),
        ("def get_sweep():\n    return 3", ":mini", [], "has no settings, so 'mini' has none"),
    ],
)
def test_a_file_or_a_setting_that_cannot_be_used(body, argument, words, message, write_sweep):
    with pytest.raises(ValueError, match=re.escape(message)):
        load_sweep(write_sweep(body) + argument, words)
