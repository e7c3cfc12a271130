"""Several seeds: each the same as alone, compiled once, and their summary."""

import json
import shutil
import statistics

import pytest

from bert_jax.scores.goodput import read_goodput
from bert_jax.tools.listeners.make import training_listener
from bert_jax.tools.report.evaluated import spread_of
from bert_jax.tools.report.workdir import load
from bert_jax.training.evaluate import jitted_eval_step
from bert_jax.training.listener import Listener, Listeners
from bert_jax.training.seeds import train_seeds
from bert_jax.training.step import _jit_train_step
from bert_jax.training.train import train
from tests.resuming import StopAfter

SEEDS = (4, 5, 6)


@pytest.fixture(scope="module")
def config(new_run):
    return new_run("classification", {"seed": 4, "seeds": 3, "epochs": 0.0, "steps": 6}).config


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """The folder of a run of three seeds."""
    folder = tmp_path_factory.mktemp("seeds")
    _jit_train_step.cache_clear()
    jitted_eval_step.cache_clear()
    train_seeds(config, str(folder))
    for compiled in (_jit_train_step, jitted_eval_step):
        assert compiled.cache_info().misses == 1  # for all seeds
    return folder


def read_results(folder):
    return json.loads((folder / "results.json").read_text())


def test_each_seed_is_the_same_as_alone_and_the_summary_is_of_all(whole, config, tmp_path):
    train(config.replace({"seed": 5, "seeds": 1}), str(tmp_path))
    expected, summary = read_results(tmp_path), read_results(whole)
    assert read_results(whole / "seed-5") == expected | {"goodput": read_goodput(whole / "seed-5")}
    assert summary["seeds"]["5"] == {"eval": expected["eval"], "step": expected["step"]}
    assert summary["data"] == expected["data"]
    assert len({json.dumps(seed) for seed in summary["seeds"].values()}) > 1  # they do differ

    scores = [summary["seeds"][str(seed)]["eval"]["accuracy"] for seed in SEEDS]
    spread = summary["spread"]
    mean, deviation = statistics.fmean(scores), statistics.stdev(scores)
    assert summary["eval"]["accuracy"] == spread["mean"] == pytest.approx(mean)
    assert spread["standard_deviation"] == pytest.approx(deviation)
    assert spread["best"] == max(scores) == scores[spread["best_seed"] - 4]
    assert spread["runs"] == 3
    assert spread["degenerate"] == sum(score <= expected["baseline"] for score in scores)
    assert spread_of(load(str(whole)), "accuracy") == f"{mean:.4g} ± {deviation:.2g}"


def test_scores_of_a_seed_are_those_of_its_checkpoint(whole, config, tmp_path, capsys):
    """Whatever has become of its results.json."""
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "seed-4" / "results.json").unlink()
    (folder / "seed-5" / "results.json").write_text('{"eval": {"accuracy": 2.0}}')
    train_seeds(config, str(folder), listener=training_listener())
    assert read_results(folder) == read_results(whole)
    assert "accuracy over 3 seeds: mean" in capsys.readouterr().out


class Recorder(Listener):
    def __init__(self):
        self.steps = []

    def progress(self, step, steps):
        self.steps.append(step)


def test_a_run_stopped_in_the_second_seed_resumes_there(whole, config, tmp_path, capsys):
    folder, recorder = tmp_path / "run", Recorder()
    folder.mkdir()
    shutil.copytree(whole / "seed-4", folder / "seed-4")
    train_seeds(config, str(folder), listener=Listeners(StopAfter(2), training_listener()))
    assert not (folder / "results.json").exists()
    assert "Stopped by SIGTERM after step 2" in capsys.readouterr().out
    train_seeds(config, str(folder), listener=recorder)
    assert recorder.steps == [*range(3, 7), *range(1, 7)]
    assert read_results(folder) == read_results(whole)
