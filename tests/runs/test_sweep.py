"""A sweep of real runs, killed in the middle, resumed, with a run that fails."""

import json
import random
import re
import subprocess
import sys

import pytest

from tests import tiny
from tests.runs.conftest import ENVIRONMENT, REPOSITORY, kill_when, outcome, write_corpus

SWEEP = """
from bert_jax.tools.sweep.plan import Column, Run, Sweep, Table

MODEL = {model!r}
PRETRAINING = {pretraining!r}
FINETUNING = {finetuning!r}


def get_sweep() -> Sweep:
    runs = []
    for name in ("bert", "no_nsp"):
        overrides = MODEL | PRETRAINING | {{"model.next_sentence": name == "bert"}}
        runs.append(Run(name, "configs/tiny.py", overrides, system=name, task="pretraining"))
        runs.append(
            Run(
                f"{{name}}-texts",
                "configs/classification.py",
                FINETUNING,
                after=name,
                seeds=0,
                system=name,
                task="texts",
            )
        )
    middle = FINETUNING | {{"epochs": 1.0}}
    runs.append(Run("middle", "configs/classification.py", middle, "bert", 8, 1, "middle", "texts"))
    bad = FINETUNING | {{"data.eval": "{folder}/bad.tsv"}}
    runs.append(Run("bad", "configs/classification.py", bad, "bert", 0, 1, "bad", "texts"))
    table = Table(
        "Systems by tasks",
        {{"bert": "BERT", "no_nsp": "No NSP"}},
        (Column("texts", "accuracy"), Column("pretraining", "masked_lm_perplexity", "", 1.0)),
        {{"bert": {{"texts": 84.4}}}},
    )
    return Sweep("A small sweep", tuple(runs), (table,))
"""


def write_texts(path, rng, rows):
    label = lambda text: "yes" if text.count("a") > 3 else "no"  # noqa: E731
    texts = (" ".join("".join(rng.choices("abcd", k=3)) for _ in range(4)) for _ in range(rows))
    path.write_text("text_a\tlabel\n" + "".join(f"{t}\t{label(t)}\n" for t in texts))


@pytest.fixture
def sweep(tmp_path):
    """Returns a function (workdir, *flags) -> a process of the command."""
    rng = random.Random(0)
    write_corpus(tmp_path / "corpus.txt")
    write_texts(tmp_path / "train.tsv", rng, 40)
    write_texts(tmp_path / "dev.tsv", rng, 24)
    (tmp_path / "bad.tsv").write_text("text_a\tclass\nabc\tyes\n")
    prng = {"prng_impl": tiny.PRNG_IMPL}
    pretraining = {
        **{"steps": 16, "phases": ((16, 1.0),), "global_batch_size": 8},
        **{"data.source": f"text:{tmp_path}/corpus.txt", "data.line_format": "sentences"},
        **{"data.dupe_factor": 1, "data.validation_share": 0.1, "data.num_processes": 1},
        **{"log.every": "2", "eval.every": "8", "checkpoint.every": "4", "checkpoint.keep": 9},
    }
    finetuning = prng | {
        **{"data.train": f"{tmp_path}/train.tsv", "data.eval": f"{tmp_path}/dev.tsv"},
        **{
            "epochs": 2.0,
            "max_length": 16,
            "data.bucket_lengths": (16,),
            "global_batch_size": 8,
        },
    }
    model = tiny.make_overrides(model__vocab_size=96, model__num_layers=1)
    text = SWEEP.format(
        model=model, pretraining=pretraining, finetuning=finetuning, folder=tmp_path
    )
    (tmp_path / "small.py").write_text(text)

    def start(workdir, *flags):
        command = [sys.executable, "-m", "bert_jax", "sweep", f"--sweep={tmp_path}/small.py"]
        return subprocess.Popen(
            [*command, f"--workdir={workdir}", "--seeds=2", *flags],
            cwd=REPOSITORY,
            env=ENVIRONMENT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    return start


def steps(folder) -> list[int]:
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    rows = [json.loads(line) for line in lines]
    return [row["step"] for row in rows if row["split"] == "train"]


def starts(folder) -> int:
    return (folder / "log.txt").read_text().count("$ ")


@pytest.mark.slow
def test_a_killed_sweep_ends_with_the_results_of_an_uninterrupted_one(sweep, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    code, out, err = outcome(sweep(whole, "--parallel=2"), timeout=900)
    assert code == 1, out + err
    assert re.search(r"BERT +\| \d+\.\d\d ± \d+\.\d\d \(2\) +\| 84.4 +\| \d+\.\d\d \(1\)", out)
    assert "bad failed: exit code 2." in out and "column" in out.splitlines()[-1]

    runs = killed / "runs"
    kill_when(sweep(killed), lambda: len(steps(runs / "bert")) > 2)
    kill_when(sweep(killed), lambda: (runs / "no_nsp/config.json").is_file())
    code, out, err = outcome(sweep(killed), timeout=900)
    assert code == 1, out + err
    assert "no_nsp: resumed" in out

    # Nothing but the two runs that were interrupted started more than once. The second sweep may
    # have started no_nsp while the process of bert was still saving.
    for folder in runs.iterdir():
        assert starts(folder) in ((2, 3) if folder.name in ("bert", "no_nsp") else (1,)), folder
    lines = lambda folder: (folder / "results.jsonl").read_text().splitlines()  # noqa: E731
    read = lambda folder: list(map(json.loads, lines(folder)))  # noqa: E731
    drop = ("seconds", "tokens")  # depend on the clock
    assert [{k: v for k, v in r.items() if k not in drop} for r in read(killed)] == [
        {k: v for k, v in r.items() if k not in drop} for r in read(whole)
    ]
    assert [r["name"] for r in read(whole)] == [
        *("bert", "bert-texts-seed0", "bert-texts-seed1"),
        *("no_nsp", "no_nsp-texts-seed0", "no_nsp-texts-seed1", "middle"),
    ]
    assert read(whole)[0]["steps"] == 16 and read(whole)[0]["parameters"] > 1000
    assert "step 8" in (runs / "middle/log.txt").read_text()  # the checkpoint that it starts from
