"""What all benchmarks share: turns, processes, tables; and how they are started."""

import os
import pathlib
import re

import pytest

from benchmarks import __main__ as overview
from benchmarks import command
from benchmarks.side_by_side import table, take_turns

FOLDER = pathlib.Path(overview.__file__).parent
NAMES = dict.fromkeys(re.findall(r"python -m benchmarks\.(\w+)", overview.__doc__ or ""))
PROGRAM = """
import os
def build(first):
    numbers = iter(range(first, first + 2))
    return lambda: {"number": next(numbers), "pid": os.getpid()}
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that the processes of programs can import."""
    (tmp_path / "some_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    return "some_program"


def test_programs_take_turns_in_processes_of_their_own(module):
    programs = {name: (module, {"first": first}) for first, name in enumerate("abc")}
    order = []
    answers = take_turns(programs, 2, lambda name, answer: order.append(name))
    assert sorted(order[:3]) == ["a", "b", "c"] and order[3:] == order[:3][::-1]
    numbers = {name: [turn["number"] for turn in turns] for name, turns in answers.items()}
    assert numbers == {"a": [0, 1], "b": [1, 2], "c": [2, 3]}
    processes = {turn["pid"] for turns in answers.values() for turn in turns}
    assert len(processes) == 3 and os.getpid() not in processes


def test_the_columns_of_a_table_end_at_one_place():
    lines = list(table(("texts/s", "x"), {"ours": ("9", "1.00"), "another": ("12,345.6", "")}))
    assert lines == [
        "          texts/s     x",
        "ours            9  1.00",
        "another  12,345.6",
    ]


def test_every_benchmark_is_listed():
    runs = {p.stem for p in FOLDER.glob("*.py") if "command.start(" in p.read_text()}
    assert runs == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example_and_the_flags(name, capsys):
    with pytest.raises(SystemExit):
        command.main(name, ["--help"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: python -m benchmarks.{name} ")
    assert printed.count(f"python -m benchmarks.{name} ") > 1


# ml_collections 1.1 loads the configuration file in a way that Python 3.12 calls deprecated.
@pytest.mark.filterwarnings("ignore:the load_module.. method:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "flag", "message"),
    [
        ("step", "--models=huge", "Unknown size 'huge'. Available: base, large, medium, small,"),
        ("defaults", "--rates=x", "--rates=x are not numbers, such as 1e-4,3e-4."),
        ("prepare", "--config.steep=1", "no configuration field 'steep'"),
        ("finetune", "--seeds=2", "config.init_from is missing: a folder of Hugging"),
        ("recipe", "--seeds=2", "The recipes are missing"),
        ("recipe", "--seconds=0", "--seconds=0.0 must be above 0"),
    ],
)
def test_invalid_flags_are_refused(name, flag, message):
    needed = ["train.csv", "--evaluate=x", "--model=x"] if name == "defaults" else []
    with pytest.raises(ValueError, match=message):
        command.main(name, [*needed, flag])
