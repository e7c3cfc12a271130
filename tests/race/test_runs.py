"""A whole run of race/train.py, with a small model and a small text."""

import functools
import json

import jax
import numpy as np
import pytest

from race import evaluate, prepare, train
from tests.race.small import WORDS, Tokenizer, make_text


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Two stages of a model with 16 features."""
    text, make_params = make_text(), functools.partial(train.init_params, hidden=16, inner=32)
    (tmp_path / "vocab.txt").write_text("\n".join(Tokenizer.pieces))
    np.savez(tmp_path / "train.npz", **prepare.training_arrays(text))
    np.savez(tmp_path / "held_out.npz", **prepare.held_out_arrays(text, Tokenizer()))
    monkeypatch.setattr(evaluate, "DATA", tmp_path)
    monkeypatch.setattr(train, "STAGES", ((16, 8, 3), (32, 4, 5)))
    monkeypatch.setattr(train, "init_params", make_params)
    with jax.numpy_rank_promotion("allow"):
        yield


def run(capsys, *words):
    train.main(list(words))
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_number_of_steps_can_be_repeated_exactly_and_a_budget_is_kept(small, capsys):
    *lines, first = run(capsys, "--steps=40")
    *others, again = run(capsys, "--steps=40")  # its programs are in jax's cache
    assert [line["loss"] for line in lines] == [line["loss"] for line in others]
    assert len(lines) == 20 and first["steps"] == 40
    assert first["bits_per_character"] == again["bits_per_character"]
    # Tokens are random: what can be learned is that special tokens are never masked.
    assert abs(lines[0]["loss"] - np.log(WORDS)) < 1

    seconds = 2 * again["compiled"] + 1  # loading them may take twice as long
    *_, timed = run(capsys, f"--seconds={seconds}", "--part=report")
    assert timed["seconds"] < seconds + 0.5 and timed["steps"] > 1  # other programs run, too
    assert timed["part"] == "report"
    with pytest.raises(SystemExit, match="Compiling took .* s of --seconds=0.01: give more."):
        train.main(["--seconds=0.01"])


def test_each_epoch_has_all_rows_in_another_order():
    rows = np.arange(10)[:, None]
    epochs = np.concatenate([train.make_batch(rows, 4, n, seed=1) for n in range(5)]).reshape(2, 10)
    assert [sorted(epoch) for epoch in epochs.tolist()] == [list(range(10))] * 2
    assert epochs[0].tolist() != epochs[1].tolist()
