"""Whole runs of the small model: on the 8 devices of this process, and as users run the program.

| property | file |
| --- | --- |
| learns, evaluates, predicts, and is reported, as a user would do it | test_end_to_end |
| killed and stopped from outside: resumed bit for bit | test_killed |
| stopped after any step, on meshes: resumed bit for bit; other settings and data | test_exactness |
| non-finite losses: never applied, counted, the batch is kept | test_nonfinite |
| in a bucket, on other machines | test_buckets |
| two processes train as one; one that fails or is missing | test_processes |
| next-token prediction, GPT's vocabulary | test_causal_lm, test_gpt_vocabulary |
| the end of ten million steps; listeners and losses of a program | test_long, test_listener |
| the tools that flip bits and kill programs | test_tools |
"""

import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from bert_jax.config.store import parse
from bert_jax.training.train import train
from tests import resuming, tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Programs run as for users of a machine without accelerators, on one device. FASTER is what
# tests/conftest.py sets to compile faster, which ENVIRONMENT does not have.
_FASTER = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
FASTER = {name: value for name, value in os.environ.items() if name in _FASTER}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in FASTER}
ENVIRONMENT["JAX_NUM_CPU_DEVICES"] = "1"
# Two phases, so that runs stop and resume in both of them and between them. The embeddings come
# from the text, also on meshes and in several processes.
SMALL = tiny.make_overrides(
    model__vocab_size=96,
    model__num_layers=1,
    steps=20,
    init_embeddings="spectral",
    phases=((16, 0.5), (32, 0.5)),
    global_batch_size=8,
    data__line_format="sentences",
    data__dupe_factor=2,
    data__max_examples_per_row=3,
    data__validation_share=0.1,
    data__num_processes=1,
    optimizer__learning_rate=1e-3,
    optimizer__warmup="2",
    log__every="2",
    eval__every="7",
    eval__max_batches=2,
    checkpoint__every="3",
)
# Changes of SMALL where phases are not the point; the data are the run's own.
ONE_PHASE = {"phases": ((16, 1.0),), "data__dir": ""}


@dataclasses.dataclass
class Run:
    """A run in a folder of its own, on data that all runs share.

    Its programs compile with fewer optimizations unless `optimized`: what a killed run computes is
    compared with what one computes that was compiled alike.
    """

    workdir: pathlib.Path
    values: dict
    optimized: bool = False

    @property
    def config(self):
        """The configuration, for bert_jax.train.train."""
        from configs import tiny

        config = parse(tiny.get_config())
        config = config.replace(self.values)
        return config

    def start(self, *flags: str, mode: str = "train", **environment: str) -> subprocess.Popen:
        """Starts `python -m bert_jax.main` in another process."""
        command = [sys.executable, "-m", "bert_jax.main", f"--mode={mode}"]
        command += [f"--workdir={self.workdir}", "--config=configs/tiny.py"]
        command += [f"--config.{name}={value}" for name, value in self.values.items()]
        return subprocess.Popen(
            [*command, *flags],
            cwd=REPOSITORY,
            env=ENVIRONMENT | ({} if self.optimized else FASTER) | environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def finish(self, *flags: str, **options) -> tuple[int, str, str]:
        """Runs to the end; returns exit code, standard output, standard error."""
        return outcome(self.start(*flags, **options))

    @property
    def corpus(self) -> pathlib.Path:
        return pathlib.Path(self.values["data.source"].removeprefix("text:"))

    @property
    def checkpoints(self) -> pathlib.Path:
        return self.workdir / "checkpoints"

    def metrics(self) -> list[dict]:
        """The lines of metrics.jsonl without what depends on the clock."""
        return resuming.metrics_of((self.workdir / "metrics.jsonl").parent)

    def steps_done(self) -> int:
        """The last step in metrics.jsonl; 0 if there is none."""
        path = self.workdir / "metrics.jsonl"
        whole = [line for line in path.read_text().split("\n")[:-1]] if path.is_file() else []
        return json.loads(whole[-1])["step"] if whole else 0

    def arrays(self, step: int) -> dict[str, np.ndarray]:
        """path -> array of everything in a checkpoint: parameters, optimizer state, counters."""
        return resuming.arrays_of(self.checkpoints / str(step))


def outcome(process: subprocess.Popen, timeout: float = 200) -> tuple[int, str, str]:
    """Waits for a process; returns exit code, standard output, standard error."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, out, err


def kill_when(process: subprocess.Popen, is_there: Callable[[], bool]) -> None:
    """Kills a process, with SIGKILL, as soon as something is there."""
    while process.poll() is None and not is_there():
        time.sleep(0.001)
    process.kill()
    _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err


def write_corpus(path: pathlib.Path, documents: int = 300) -> None:
    """Writes documents of a few short sentences of random words."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 5))) for _ in range(200)]
    sentence = lambda: " ".join(rng.choices(words, k=rng.randint(3, 8)))  # noqa: E731
    texts = ("\n".join(sentence() for _ in range(rng.randint(3, 7))) for _ in range(documents))
    path.write_text("\n\n".join(texts) + "\n")


@pytest.fixture(scope="session")
def make_run(tmp_path_factory) -> Callable[..., Run]:
    """Returns a function (**changes of the configuration, dots as __) -> Run."""
    shared = tmp_path_factory.mktemp("shared")
    write_corpus(shared / "corpus.txt")
    values = SMALL | {
        "data.source": f"text:{shared / 'corpus.txt'}",
        "data.dir": str(shared / "data"),
    }

    def make(**changes) -> Run:
        named = {name.replace("__", "."): value for name, value in changes.items()}
        return Run(tmp_path_factory.mktemp("run"), values | named)

    return make


@pytest.fixture(scope="session")
def finished_run(make_run) -> Run:
    """An uninterrupted run of the program, with the checkpoint of each of its steps."""
    run = make_run(checkpoint__every="1", checkpoint__keep=100)
    code, _, err = run.finish()
    assert code == 0, err
    return run


@pytest.fixture(scope="session")
def finished_here(make_run) -> Run:
    """The same run in this process: on 8 devices, compiled with fewer optimizations."""
    run = make_run(checkpoint__every="1", checkpoint__keep=100)
    train(run.config, str(run.workdir))
    return run
