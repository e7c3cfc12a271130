"""The benchmark of packing: what it counts, and what it refuses."""

import types

import numpy as np
import pytest

from bert_jax.tools.benchmark import pack
from bert_jax.tools.cli import benchmark as benchmarks
from tests.runs.conftest import write_corpus

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


def test_real_tokens_are_counted_in_the_updates_measured():
    shapes = {3: (2, 8), 4: (1, 16)}
    batches = {
        number: (np.arange(np.prod(shape)) < real).astype(np.int32).reshape(shape)
        for (number, shape), real in zip(shapes.items(), (12, 4), strict=True)
    }
    rows = types.SimpleNamespace(
        batch_rows=lambda number: len(batches[number]),
        batch=lambda number, start, stop: {"example_ids": batches[number][start:stop]},
    )
    assert pack.fill_rate(rows, 3, 5) == 16 / 32


def test_the_table_says_how_much_of_the_padding_is_won():
    sides = {
        pack.SINGLE: pack.Side(0.5, [1000.0, 900.0, 1100.0]),
        pack.PACKED: pack.Side(0.98, [950.0, 940.0, 990.0]),
    }
    *_, single, packed, last = pack.table(sides)
    assert single.split()[4:] == ["50.0%", "1,000", "500", "500", "450", "550"]
    assert packed.split()[1:4] == ["98.0%", "950", "931"]
    # 931 / 500 = 1.86 times, of the 2 times that rows without padding would give.
    assert "1.86 times" in last and "is 2.00, a fraction of 0.93" in last


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "config.data.max_examples_per_row=1 does not pack"),
        (
            ("--config.data.max_examples_per_row=4", "--config.phases=((64,0.5),(128,0.5))"),
            "several phases",
        ),
    ],
)
def test_what_it_refuses(flags, message):
    with pytest.raises(ValueError, match=message):
        benchmarks.main(["benchmark", "pack", "--config=configs/tiny.py", *flags])


@pytest.mark.parametrize("name", ["tiny", "classification"])
def test_only_a_corpus_has_a_folder_of_data(name, monkeypatch, capsys):
    """Labelled files have no such field."""
    opened = types.SimpleNamespace(phases=(None,), training_rows=lambda phase: None)
    commands = []
    monkeypatch.setattr(pack, "open_run", lambda config, folder: opened)
    monkeypatch.setattr(pack, "fill_rate", lambda rows, start, stop: 0.5)
    monkeypatch.setattr(pack, "_train", lambda words, workdir: commands.append(words) or 100.0)
    flags = [f"--config=configs/{name}.py", "--config.data.max_examples_per_row=2", "--rounds=1"]
    benchmarks.main(["benchmark", "pack", *flags])
    assert "packed" in capsys.readouterr().out
    assert ["--config.data.max_examples_per_row=1" in words for words in commands] == [True, False]
    with_folder = [any("data.dir" in word for word in words) for words in commands]
    assert with_folder == [name == "tiny"] * 2


@pytest.mark.slow
def test_both_sides_are_trained(tmp_path, capsys):
    write_corpus(tmp_path / "corpus.txt")
    sizes = {"num_layers": 1, "hidden_size": 16, "intermediate_size": 32, "vocab_size": 96}
    flags = [f"--config.model.{name}={size}" for name, size in sizes.items()]
    flags += [
        f"--config.data.source=text:{tmp_path}/corpus.txt",
        "--config.data.line_format=sentences",
    ]
    flags += [
        "--config.data.max_examples_per_row=4",
        "--config.global_batch_size=8",
        "--steps=4",
        "--rounds=1",
    ]
    benchmarks.main(["benchmark", "pack", *flags])
    *_, header, single, packed, last = capsys.readouterr().out.splitlines()
    assert header.split()[0] == "fill" and single.startswith(pack.SINGLE)
    fills = [float(line.partition("%")[0].split()[-1]) for line in (single, packed)]
    assert fills[0] < fills[1] <= 100
    assert "packed rows have" in last
