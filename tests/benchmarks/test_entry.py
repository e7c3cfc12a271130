"""An entry of the race: valid, and each way in which it is not."""

import json
import pathlib
import shutil

import pytest

from benchmarks import command, entry
from bert_jax.text import installed_docs

SIZES = {"num_layers": 1, "hidden_size": 8, "intermediate_size": 16, "vocab_size": 512}


@pytest.fixture(scope="module")
def race(tmp_path_factory):
    """A race of one recipe and three seeds, on the documentation of one package."""
    folder = tmp_path_factory.mktemp("entry")
    flags = [f"--config.model.{name}={size}" for name, size in SIZES.items()]
    words = ["mine=configs/fast.py:tiny", *flags, "--config.model.num_heads=1"]
    command.main("recipe", [*words, "--seconds=1", "--part=report", f"--output={folder}"])
    return folder


@pytest.fixture
def changed(race, tmp_path):
    """A copy of the race, to be changed."""
    shutil.copytree(race, tmp_path / "race")
    return tmp_path / "race"


def problems(folder: pathlib.Path, seconds: float = 100) -> list[str]:
    return list(entry.find_problems(str(folder), "mine", seconds))


@pytest.mark.slow  # three runs
def test_a_race_on_the_second_half_is_valid(race, capsys):
    command.main("entry", [str(race), "--seconds=100"])
    assert capsys.readouterr().out.startswith("mine: valid, ")


@pytest.mark.slow  # three runs
def test_what_is_invalid_is_named(changed, monkeypatch):
    assert [text.partition(" s of")[2] for text in problems(changed, 0.01)] == [" 0.01"] * 3
    shutil.rmtree(changed / "mine-seed2")
    assert problems(changed) == ["the run of seed 2 is missing; an entry has 3 seeds"]
    path = changed / "mine-seed1" / "config.json"
    config = json.loads(path.read_text())
    config["eval"]["part"] = [0.0, 0.5]
    path.write_text(json.dumps(config))
    assert "seed 1: config.eval.part is (0.0, 0.5), and the rules have (0.5, 1.0)" in (
        problems(changed)
    )
    with pytest.raises(ValueError, match="Not valid by the rules of docs/race.md: mine."):
        command.main("entry", [str(changed)])


@pytest.mark.slow  # three runs
def test_a_score_that_the_checkpoint_does_not_have_is_found(changed):
    path = changed / "mine-seed0" / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1]["masked_lm_bits_per_character"] *= 0.9
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (problem,) = problems(changed)
    assert problem.startswith("seed 0: its last checkpoint has ")


@pytest.mark.slow  # three runs
def test_another_text_is_found(race, monkeypatch):
    monkeypatch.setattr(installed_docs, "CLEANING_VERSION", 0)
    assert len(problems(race)) == 3 and "not that of this installation" in problems(race)[0]


def test_a_folder_without_a_race_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no race.json"):
        command.main("entry", [str(tmp_path)])
