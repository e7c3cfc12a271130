"""Fine-tuning with several seeds, killed in the first and the second, ends as if uninterrupted."""

import json
import random
import subprocess
import sys

import pytest

from tests import tiny
from tests.runs.conftest import ENVIRONMENT, REPOSITORY, Run, kill_when, outcome

WORDS = "the a of moon river stone tree cloud leaf sand hill".split()
SETTINGS = tiny.make_overrides(
    model__vocab_size=len(WORDS) + 7,
    model__num_layers=1,
    init_from="",
    seeds=2,
    epochs=8.0,
    max_length=24,
    global_batch_size=8,
    data__bucket_lengths=(24,),
    head__tagging="crf",
    optimizer__name="adamw",
    optimizer__learning_rate=5e-3,
    checkpoint__keep=20,
)


def write_sentences(path, rng, count):
    """Persons among other words."""
    sentences = [rng.choices([*WORDS, "ann", "bob"], k=rng.randint(3, 16)) for _ in range(count)]
    lines = (
        "\n".join(f"{word} {'B-PER' if word in ('ann', 'bob') else 'O'}" for word in sentence)
        for sentence in sentences
    )
    path.write_text("\n\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Returns a function (workdir) -> the process of the command on the same files."""
    shared = tmp_path_factory.mktemp("shared")
    rng = random.Random(0)
    write_sentences(shared / "train.conll", rng, 60)
    write_sentences(shared / "eval.conll", rng, 11)
    pieces = [*tiny.SPECIAL, *WORDS, "ann", "bob"]
    (shared / "vocab.txt").write_text("\n".join(pieces) + "\n")
    values = SETTINGS | {
        "data.train": shared / "train.conll",
        "data.eval": shared / "eval.conll",
        "data.vocab": shared / "vocab.txt",
    }
    command = [sys.executable, "-m", "bert_jax.main", "--config=configs/tagging.py"]
    command += [f"--config.{name}={value}" for name, value in values.items()]

    def start(workdir):
        return subprocess.Popen(
            [*command, f"--workdir={workdir}"],
            cwd=REPOSITORY,
            env=ENVIRONMENT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    return start


@pytest.mark.slow
def test_killed_seeds_end_as_if_uninterrupted(start, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    code, out, err = outcome(start(whole))
    assert code == 0, err
    assert "f1 over 2 seeds: mean" in out

    runs = [Run(killed / f"seed-{seed}", {}) for seed in (0, 1)]
    kill_when(start(killed), lambda: runs[0].checkpoints.is_dir() and any_step(runs[0]))
    kill_when(start(killed), lambda: runs[1].steps_done() > 0)
    code, out, err = outcome(start(killed))
    assert code == 0, err
    assert "This run is complete" in out  # seed 0 is not trained again

    read = lambda folder: json.loads((folder / "results.json").read_text())  # noqa: E731
    assert read(killed) == read(whole)
    for run in runs:
        undisturbed = Run(whole / run.workdir.name, {})
        assert run.metrics() == undisturbed.metrics()
        arrays, expected = run.arrays(64), undisturbed.arrays(64)
        assert arrays.keys() == expected.keys()
        for name, array in expected.items():
            assert arrays[name].tobytes() == array.tobytes(), name


def any_step(run):
    """Whether a checkpoint, sealed or not, stands there."""
    return any(path.name.isdecimal() for path in run.checkpoints.iterdir())
