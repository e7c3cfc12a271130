"""Several seeds: each the same as alone, compiled once, and their summary."""

import json
import os
import random
import signal
import statistics

import pytest

from bert_jax.config.store import parse
from bert_jax.tools.listeners.make import training_listener
from bert_jax.tools.report.evaluated import spread_of
from bert_jax.tools.report.workdir import load
from bert_jax.training import reporting
from bert_jax.training import train as train_module
from bert_jax.training.evaluate import jitted_eval_step
from bert_jax.training.seeds import train_seeds
from bert_jax.training.step import _jit_train_step
from bert_jax.training.train import train
from tests import tiny

WORDS = "the a of moon river stone tree cloud leaf sand hill good bad".split()


def write_texts(path, rng, count):
    """Texts that are good or bad, and three of four good."""
    lines = ["text_a\tlabel"]
    for number in range(count):
        label = "good" if number % 4 else "bad"
        lines.append(f"{' '.join(rng.choices(WORDS[:-2], k=6))} {label}\t{label}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def config(tmp_path):
    from configs import classification

    pieces = [*tiny.SPECIAL, *WORDS]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    for seed, (name, count) in enumerate((("train", 40), ("eval", 12))):
        write_texts(tmp_path / f"{name}.tsv", random.Random(seed), count)
    config = parse(classification.get_config())
    config = config.replace(
        tiny.make_overrides(model__vocab_size=len(pieces), model__num_layers=1)
        | {
            "seeds": 3,
            "seed": 4,
            "epochs": 4.0,
            "max_length": 16,
            "global_batch_size": 8,
            "model.initializer_range": 0.1,
            "data.bucket_lengths": (16,),
            "data.train": str(tmp_path / "train.tsv"),
            "data.eval": str(tmp_path / "eval.tsv"),
            "data.vocab": str(tmp_path / "vocab.txt"),
            "optimizer.name": "adamw",
            "optimizer.learning_rate": 3e-3,
        }
    )
    return config


def read_results(folder):
    return json.loads((folder / "results.json").read_text())


def test_each_seed_is_the_same_as_alone_and_the_summary_is_of_all(config, tmp_path, capsys):
    _jit_train_step.cache_clear()
    jitted_eval_step.cache_clear()
    train_seeds(config, str(tmp_path / "run"), listener=training_listener())
    for compiled in (_jit_train_step, jitted_eval_step):
        assert compiled.cache_info().misses == 1  # for all seeds

    alone = config.replace({"seed": 5, "seeds": 1})
    train(alone, str(tmp_path / "alone"), listener=training_listener())
    expected = read_results(tmp_path / "alone")
    assert read_results(tmp_path / "run" / "seed-5") == expected

    summary = read_results(tmp_path / "run")
    assert summary["seeds"]["5"] == {"eval": expected["eval"], "step": expected["step"]}
    scores = [summary["seeds"][str(seed)]["eval"]["accuracy"] for seed in (4, 5, 6)]
    assert len({json.dumps(seed) for seed in summary["seeds"].values()}) > 1  # they do differ
    spread = summary["spread"]
    assert summary["eval"]["accuracy"] == pytest.approx(statistics.mean(scores))
    assert spread["mean"] == pytest.approx(statistics.mean(scores))
    assert spread["standard_deviation"] == pytest.approx(statistics.stdev(scores))
    assert spread["best"] == max(scores) == scores[spread["best_seed"] - 4]
    assert spread["runs"] == 3
    assert spread["degenerate"] == sum(score <= 0.75 for score in scores)
    assert summary["data"] == expected["data"]
    printed = capsys.readouterr().out
    assert "accuracy over 3 seeds: mean" in printed
    shown = f"{statistics.fmean(scores):.4g} ± {statistics.stdev(scores):.2g}"
    assert spread_of(load(str(tmp_path / "run")), "accuracy") == shown


def test_scores_of_a_seed_are_those_of_its_checkpoint(config, tmp_path):
    """Whatever has become of its results.json, and whichever checkpoint is chosen."""
    config = config.replace({"seeds": 2, "epochs": 1.0, "checkpoint.use": "newest"})
    train_seeds(config, str(tmp_path / "run"), listener=training_listener())
    summary = read_results(tmp_path / "run")
    assert summary["seeds"]["4"]["step"] == 5
    (tmp_path / "run" / "seed-4" / "results.json").unlink()
    (tmp_path / "run" / "seed-5" / "results.json").write_text('{"eval": {"accuracy": 2.0}}')
    train_seeds(config, str(tmp_path / "run"), listener=training_listener())
    assert read_results(tmp_path / "run") == summary


def test_a_run_stopped_in_the_second_seed_resumes_there(config, tmp_path, monkeypatch, capsys):
    config = config.replace({"seeds": 2, "epochs": 1.0})
    train_seeds(config, str(tmp_path / "whole"), listener=training_listener())
    push, trained = reporting.Reporter.push, []

    def push_and_stop(self, step, *rest):
        push(self, step, *rest)
        trained.append(step)
        if len(trained) == 7:  # five steps of the first seed, two of the second
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(train_module.Reporter, "push", push_and_stop)
    train_seeds(config, str(tmp_path / "run"), listener=training_listener())
    assert not (tmp_path / "run" / "results.json").exists()
    assert "Stopped by SIGTERM after step 2" in capsys.readouterr().out
    train_seeds(config, str(tmp_path / "run"), listener=training_listener())
    assert trained == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]
    assert read_results(tmp_path / "run") == read_results(tmp_path / "whole")
