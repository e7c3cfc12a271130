"""What all benchmarks share: turns, processes, tables; and the flags of the command."""

import os

import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.tools.benchmark import side_by_side
from bert_jax.tools.benchmark.side_by_side import describe_machine, table, take_turns

PROGRAM = """
import os
from bert_jax.files.errors import UserError
def build(first, end="stop"):
    numbers = iter(range(first, first + 2))
    if end == "user":
        raise UserError("a wrong setting")
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


def test_a_program_that_fails_says_why(module):
    with pytest.raises(RuntimeError, match="StopIteration"):
        take_turns({"a": (module, {"first": 0})}, 3)
    with pytest.raises(ValueError, match="^a wrong setting$"):
        take_turns({"a": (module, {"first": 0, "end": "user"})}, 1)


def test_the_columns_of_a_table_end_at_one_place():
    lines = list(table(("texts/s", "x"), {"ours": ("9", "1.00"), "another": ("12,345.6", "")}))
    assert lines == [
        "          texts/s     x",
        "ours            9  1.00",
        "another  12,345.6",
    ]


def test_what_is_left_out_is_said(monkeypatch, capsys):
    monkeypatch.setattr(side_by_side, "installed", lambda *names: ["torch"])
    assert not side_by_side.can_compare("seqeval")
    message = "transformers is left out, without seqeval, transformers: pip install"
    assert capsys.readouterr().out.startswith(message)


def test_the_machine_is_named():
    assert "cores; Python 3." in describe_machine()


# ml_collections 1.1 loads the configuration file in a way that Python 3.12 calls deprecated.
@pytest.mark.filterwarnings("ignore:the load_module.. method:DeprecationWarning")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["speed"],
            "Unknown benchmark 'speed'. Did you mean serve. Available: step, ",
        ),
        ([], "The benchmark is missing. Available: step"),
        (["step", "--models=huge"], "Unknown size 'huge'. Available: base, large, medium, small,"),
        (["step", "--dtypes=float16"], "config.dtype='float16' must be one of float32, bfloat16,"),
        (["step", "--rounds=0"], "--rounds=0 must be at least 1"),
        (["step", "--batch=8"], "Unknown flag --batch: did you mean --batch_size?"),
        (["prepare", "--tasks=1,x"], "--tasks=1,x are not positive integers, such as 1,2,4."),
        (["prepare", "--config.steep=1"], "no configuration field 'steep'"),
        (["finetune"], "config.init_from is missing: a folder of Hugging"),
        (["finetune", "--config=configs/nothing.py"], "there is no such file, neither in"),
        (["inference", "--model=x"], "--input is missing: a file with a text a line"),
    ],
)
def test_invalid_words_after_benchmark_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        run_command(["benchmark", *words])
