"""The step benchmark: its output, refused settings, and that all programs do the same work."""

import os

import numpy as np
import pytest

from bert_jax.tools.benchmark import machine, step, workload
from bert_jax.tools.benchmark.turns import Rival, take_turns
from bert_jax.tools.cli import benchmark as benchmarks


class Recorder:
    """A rival that notes its turn."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def measure(self):
        self.log.append(self.name)
        return [1.0, 2.0]


def test_turns_alternate_and_all_numbers_are_kept():
    log = []
    rivals = {name: Recorder(name, log) for name in ("a", "b", "c")}
    numbers = take_turns(rivals, rounds=2)
    assert sorted(log[:3]) == sorted(log[3:]) == ["a", "b", "c"]
    assert log[:3] == log[3:][::-1]
    assert numbers == {name: [1.0, 2.0] * 2 for name in ("a", "b", "c")}


@pytest.fixture
def rival_module(tmp_path, monkeypatch):
    """A module that the processes of rivals can import."""
    (tmp_path / "some_rival.py").write_text(
        "import os\n"
        "def start(first):\n"
        "    numbers = iter(range(first, first + 2))\n"
        "    return {'pid': os.getpid()}, lambda: [next(numbers)]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "some_rival"


def test_a_rival_lives_in_a_process_of_its_own_and_says_why_it_failed(rival_module):
    rival = Rival(rival_module, "start", first=5)
    assert rival.properties["pid"] != os.getpid()
    assert [rival.measure(), rival.measure()] == [[5], [6]]
    with pytest.raises(RuntimeError, match="StopIteration"):
        rival.measure()
    rival.close()


def test_the_batch_asks_for_20_different_positions_of_each_row():
    batch = workload.make_batch(4)
    positions = batch["masked_lm_positions"]
    assert positions.shape == (4, 20)
    assert (np.diff(positions, axis=1) > 0).all()
    assert positions.min() > 0 and positions.max() < 127


def test_time_steps_leaves_out_the_first():
    calls = []
    seconds = workload.time_steps(lambda: calls.append(1), least_seconds=0.0001)
    assert len(calls) == len(seconds) + 1 and min(seconds) >= 0


def test_the_table_says_how_many_times_longer_a_rival_takes():
    properties = {
        "flops": 8e9,
        "peak_flops": 1e12,
        "device": "H200",
        "platform": "gpu",
        "devices": 2,
    }
    head, header, ours, theirs = step.table(
        {step.OURS: 0.1, step.PLAIN: 0.25}, properties, ceiling=100e9, batch_size=4
    )
    assert head == ("2 x H200 (gpu), 8.0 GFLOP a step, fastest matrix product 200 GFLOP/s")
    assert header.split() == "ms a step tokens/s x ours GFLOP/s of that MFU".split()
    assert ours.split() == ["bert_jax", "100.0", "5,120", "1.00", "80", "40%", "8.0%"]
    assert theirs.split() == ["transformers", "250.0", "2,048", "2.50", "32", "16%", "3.2%"]


def test_the_best_of_both_sides_are_compared():
    seconds = {
        (step.OURS, "float32"): 0.1,
        (step.OURS, "bfloat16"): 0.2,
        (step.PLAIN, "float32"): 0.3,
        (step.GATHERED, "float32"): 0.25,
        (step.GATHERED, "bfloat16"): 0.15,
    }
    assert step.best(seconds, batch_size=4) == (
        "best of both: bert_jax in float32, 5,120 tokens/s; transformers, masked positions in"
        " bfloat16, 3,413 tokens/s: 1.50 times"
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--models=tiny,huge"], "Unknown model huge. Available: tiny, mini, small, base, large."),
        (["--dtypes=float16"], "Unknown dtype float16. Available: float32, bfloat16."),
        (["--rounds=0"], "argument --rounds: 0 must be at least 1"),
        (["--batch=8"], "Unknown flag --batch: did you mean --batch_size?"),
    ],
)
def test_invalid_flags_are_refused(argv, message):
    with pytest.raises(ValueError, match=message):
        benchmarks.main(["benchmark", "step", *argv])


# ml_collections 1.1 loads the configuration file in a way that Python 3.12 calls deprecated.
@pytest.mark.filterwarnings("ignore:the load_module.. method:DeprecationWarning")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["speed"],
            "Unknown benchmark 'speed'. Available: step, train, pack, prepare, finetune, recipe",
        ),
        ([], "The benchmark is missing. Available: step"),
        (["train", "--steps=0"], "argument --steps: 0 must be at least 1"),
        (["prepare", "--times=1,x"], "--times=1,x are not positive integers, such as 1,10."),
        (["prepare", "--config=x"], "Unknown flag --config: see --help."),
        (["finetune", "--seeds=0"], "argument --seeds: 0 must be at least 1"),
        (["finetune"], "config.init_from is missing: a folder of Hugging"),
        (["finetune", "--config=configs/nothing.py"], "there is no such file, neither in"),
    ],
)
def test_invalid_words_after_benchmark_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        benchmarks.main(["benchmark", *words])


def test_the_machine_is_named():
    assert "cores; Python 3." in step.describe_machine()


@pytest.mark.slow
def test_all_of_it_on_the_smallest_model(capfd):
    benchmarks.main(["benchmark", "step", "--models=tiny", "--rounds=1", "--batch_size=8"])
    lines = capfd.readouterr().out.splitlines()
    assert any(line.startswith("bert_jax ") for line in lines)
    has_rival = any(line.startswith("transformers ") for line in lines)
    assert has_rival == machine.has_transformers()
