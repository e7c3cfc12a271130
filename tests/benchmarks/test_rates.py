"""The grid of rates: what was run is not run again, and the default is compared with the best."""

import pytest

from benchmarks import command, rates
from bert_jax.files.errors import UserError


def test_a_grid_goes_on_and_compares_the_default_with_the_best(tmp_path, monkeypatch, capsys):
    for name in ("a.csv", "a_dev.csv", "b.csv", "b_dev.csv", "c.csv"):
        (tmp_path / name).write_text("")
    trained = []

    def train(encoder, files, given):
        rate, seed = given["optimizer.learning_rate"], given["seed"]
        trained.append((encoder, files[0][-5:], rate, seed))
        return {2e-3: 0.5, 1e-3: 0.4, 3e-3: 0.6}[rate] + 0.1 * seed

    monkeypatch.setattr(rates, "train", train)
    monkeypatch.setattr(rates, "chosen_rate", lambda *_: 2e-3)
    words = [str(tmp_path), "--encoders=x=one", f"--log={tmp_path / 'log.jsonl'}"]
    command.main("rates", [*words, "--rates=1e-3", "--sets=a", "--seeds=1"])
    assert trained == [("one", "a.csv", 0.002, 0), ("one", "a.csv", 0.001, 0)]
    command.main("rates", [*words, "--rates=1e-3,3e-3", "--seeds=2"])
    assert len(trained) == len(set(trained)) == 2 * 3 * 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[-3:-1]] == [
        [f"{name},", "x", "0.002", "0.550", "0.450", "0.650"] for name in "ab"
    ]
    assert lines[-1] == ("x: `finetune` is 0.1000 below the best rate on average, at most 0.1000")
    with pytest.raises(UserError, match="no files c and c_dev"):
        command.main("rates", [*words, "--sets=c"])
