"""The race of recipes: its curves, its table, its picture, and a short one."""

import json

import numpy as np
import pytest

from benchmarks import command
from benchmarks import curves as race_curves
from benchmarks.curves import seconds_to
from benchmarks.recipe import parse_recipe
from benchmarks.rivals.recipe_reference import mask
from benchmarks.side_by_side import installed
from tests.runs.conftest import write_corpus

has_trainer = len(installed("torch", "transformers", "accelerate")) == 3
has_keras = len(installed("keras", "keras_hub")) == 2


def curve(*points):
    """Of (seconds, loss)."""
    names = ("step", "seconds", "tokens", "loss", "accuracy", "bits_per_character")
    rows = ((i, t, 64 * i, loss, 0.25, loss / 4) for i, (t, loss) in enumerate(points))
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_the_time_to_a_loss_is_on_the_line_between_two_evaluations():
    falling = curve((10.0, 6.0), (20.0, 4.0), (30.0, 4.5), (40.0, 2.0))
    assert seconds_to(falling, 5.0) == 15.0
    assert seconds_to(falling, 4.0) == 20.0
    assert seconds_to(falling, 3.25) == 35.0
    assert seconds_to(falling, 7.0) == 10.0
    assert seconds_to(falling, 1.9) is None


def test_the_table_compares_with_the_first_recipe():
    curves = {
        "bert": [curve((10.0, 6.0), (60.0, 4.0)), curve((10.0, 6.0), (60.0, 5.0))],
        "fast": [curve((10.0, 5.0), (20.0, 4.0)), curve((10.0, 5.0), (20.0, 4.0))],
    }
    header, bert, fast = race_curves.lines(curves)
    assert "seconds to 4.500" in header
    assert bert.split() == "bert 1 60.0 1.125 ± 0.177 4.500 ± 0.707 25.0% 1 of 2 reach it".split()
    assert fast.split() == "fast 1 20.0 1.000 ± 0.000 4.000 ± 0.000 25.0% 15.0 1.00".split()
    both = {name: curves["fast"] for name in ("a", "b")}
    assert list(race_curves.lines(both))[2].split()[-2:] == ["20.0", "1.00"]


@pytest.mark.parametrize(
    "recipes, message",
    [
        (["fast"], "is not NAME=CONFIG;FIELD=VALUE"),
        (["a b=c"], "is not NAME=CONFIG;FIELD=VALUE"),
        (["a=c;=d"], "is not NAME=CONFIG;FIELD=VALUE"),
        (["a=x.py", "a=y.py"], "Two recipes are called a: give"),
        (["a=configs/tiny.py", "b=transformers:gpt"], "Unknown rival 'transformers:gpt'. Availab"),
        (
            ["a=configs/tiny.py", "b=keras:gpt"],
            "Unknown rival 'keras:gpt'. Available: .*keras:bert",
        ),
        (["a=transformers:bert"], "The first recipe must be one of ours"),
    ],
)
def test_recipes_that_cannot_be_compared_are_refused(recipes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        command.main("recipe", [*recipes, f"--output={tmp_path}/race"])


def test_a_recipe_is_a_configuration_with_overrides():
    text = "a-b=configs/fast.py:tiny; data.max_examples_per_row=2 ;optimizer.name=muon"
    fields = ["--config.data.max_examples_per_row=2", "--config.optimizer.name=muon"]
    found = parse_recipe(text)
    assert (found.name, found.flags()) == ("a-b", ["--config=configs/fast.py:tiny", *fields])
    rival = parse_recipe("a=transformers:bert;learning_rate=1e-3;optim=adamw_torch")
    assert rival.arguments() == {"learning_rate": 1e-3, "optim": "adamw_torch"}


def test_rows_of_a_rival_are_masked_as_in_bert():
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 1000, (400, 64), dtype=np.int32)
    ids[:, 0], ids[:, 39], ids[:, 40:] = 2, 3, 0
    batch = {"input_ids": ids, "is_token": ids > 0, "is_special": np.isin(ids, [0, 2, 3])}
    masked, positions, true, weights = mask(rng, batch, 0.2, 4, 1000)
    assert positions.shape == (400, 13)  # 0.2 of 64
    assert (weights.sum(axis=1) == 8).all()  # 0.2 of 40
    assert all(len({*row}) == 13 for row in positions)
    assert (np.take_along_axis(ids, positions, 1) == true).all()
    chosen = np.zeros(ids.shape, bool)
    np.put_along_axis(chosen, positions, weights > 0, 1)
    assert not (chosen & batch["is_special"]).any()
    assert (masked[~chosen] == ids[~chosen]).all()
    became = masked[chosen]
    assert abs((became == 4).mean() - 0.8) < 0.03  # five standard errors are 0.035
    assert abs((became == ids[chosen]).mean() - 0.1) < 0.03
    # Each of the 38 places is as likely as another: 400 * 8 / 38 = 84 times, with a deviation of 8.
    counts = chosen[:, 1:39].sum(axis=0)
    assert counts.min() > 44 and counts.max() < 124


@pytest.mark.slow
def test_a_race_is_run_once_and_shown_again(tmp_path, capsys):
    write_corpus(tmp_path / "corpus.txt")
    sizes = {"num_layers": 1, "hidden_size": 16, "intermediate_size": 32, "vocab_size": 96}
    flags = [f"--config.model.{name}={size}" for name, size in sizes.items()]
    flags += [
        f"--config.data.source=text:{tmp_path}/corpus.txt",
        "--config.data.line_format=sentences",
    ]
    words = ["bert=configs/tiny.py", "fast=configs/fast.py:tiny", *flags]
    rivals = [
        "trainer=transformers:bert",
        "modern=transformers:modernbert;tail=0.5;optim=adamw_torch",
    ]
    words += [*rivals] if has_trainer else []
    words += ["keras=keras:bert;tail=0.5;beta_2=0.98"] if has_keras else []
    words += ["--seconds=2", "--seeds=1", f"--output={tmp_path}/race"]
    command.main("recipe", words)
    first = capsys.readouterr().out
    curves = json.loads((tmp_path / "race" / "race.json").read_text())
    rivals = ["trainer", "modern"] if has_trainer else []
    assert set(curves) == {"bert", "fast", *rivals, *(["keras"] if has_keras else [])}
    for (points,) in curves.values():
        assert points[-1]["step"] >= 20 and points[-1]["seconds"] > 0
        assert [p["step"] for p in points] == sorted(p["step"] for p in points)
    command.main("recipe", words)
    assert capsys.readouterr().out == first
    with pytest.raises(ValueError, match="has a race with other settings of bert: choose another"):
        command.main("recipe", [*words, "--seconds=3"])
