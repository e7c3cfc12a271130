"""Kills programs at random moments, starts them again, and compares what they leave.

    python -m tests.kills --count=100 [--seed=0] [--only=train,prepare,finetune]

Each kind of program (pre-training, preparation of data, fine-tuning with two seeds) runs once
without interruption. Then, in turns, it gets SIGKILL after a random time and is started again in
the same folder; after five of them it runs to its end. Metrics without what depends on the clock,
the arrays of the last checkpoints and the prepared data must be the same bytes. Exit code 1 if
anything differs.
"""

import argparse
import dataclasses
import hashlib
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from tests import tiny
from tests.runs import conftest

KILLS_OF_A_RUN = 5
WORDS = "the a of moon river stone tree cloud leaf sand hill".split()
FINETUNING = tiny.make_overrides(
    model__vocab_size=len(WORDS) + 7,
    model__num_layers=1,
    init_from="",
    seeds=2,
    epochs=8.0,
    max_length=24,
    global_batch_size=8,
    data__bucket_lengths=(24,),
    task__head="crf",
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


@dataclasses.dataclass
class Program:
    """A program that can be killed.

    Attributes:
      words: its command without the folder.
      flag: that names the folder.
      seconds: that it takes without interruption, measured.
    """

    words: list[str]
    flag: str
    seconds: float = 0.0

    def start(self, folder: pathlib.Path) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", *self.words, f"{self.flag}={folder}"],
            cwd=conftest.REPOSITORY,
            env=conftest.ENVIRONMENT | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, folder: pathlib.Path) -> None:
        """Raises RuntimeError if it does not end well."""
        process = self.start(folder)
        _, err = process.communicate()
        if process.returncode:
            raise RuntimeError(f"exit code {process.returncode} in {folder}: {err[-2000:]}")


def programs(folder: pathlib.Path) -> dict[str, Program]:
    """Writes the inputs and returns the programs by name."""
    conftest.write_corpus(folder / "corpus.txt")
    conftest.write_corpus(folder / "long.txt", documents=20_000)
    values = conftest.SMALL | {"data.source": f"text:{folder / 'corpus.txt'}"}
    small = [f"--config.{name}={value}" for name, value in values.items()]
    rng = random.Random(0)
    write_sentences(folder / "train.conll", rng, 60)
    write_sentences(folder / "eval.conll", rng, 11)
    words = [*tiny.SPECIAL, *WORDS, "ann", "bob"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    values = FINETUNING | {
        "data.train": folder / "train.conll",
        "data.eval": folder / "eval.conll",
        "data.vocab": folder / "vocab.txt",
    }
    tagging = [f"--config.{name}={value}" for name, value in values.items()]
    return {
        "train": Program(["bert_jax.main", "--config=configs/tiny.py", *small], "--workdir"),
        "prepare": Program(
            ["bert_jax", "prepare", "--config=configs/tiny.py", *small]
            + [f"--config.data.source=text:{folder / 'long.txt'}"],
            "--data_dir",
        ),
        "finetune": Program(
            ["bert_jax.main", "--config=configs/tagging.py", *tagging], "--workdir"
        ),
    }


def left(folder: pathlib.Path) -> dict[str, str]:
    """What a program leaves that must not depend on interruptions, by the names of the files."""
    found = dict(_files(folder))
    for seals in folder.rglob("*.sha256.json"):
        step = int(seals.name.split(".")[0])
        newest = max(int(path.name.split(".")[0]) for path in seals.parent.glob("*.sha256.json"))
        if step == newest:
            found[f"{seals.relative_to(folder)}"] = json.dumps(_arrays(seals.parent / str(step)))
    return found


def _files(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.name == "metrics.jsonl":
            rows = map(json.loads, path.read_text().splitlines())
            yield name, json.dumps([{k: v for k, v in row.items() if k != "speed"} for row in rows])
        elif path.name == "results.json":
            values = json.loads(path.read_text())
            yield name, json.dumps({k: v for k, v in values.items() if k != "goodput"})
        elif path.name == "manifest.json" or path.suffix == ".array_record":
            yield name, hashlib.sha256(path.read_bytes()).hexdigest()


def _arrays(checkpoint: pathlib.Path) -> dict[str, str]:
    """Hashes of the arrays: orbax names its files at random."""
    run = conftest.Run(checkpoint.parents[1], {})
    arrays = run.arrays(int(checkpoint.name))
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}


def kill(program: Program, folder: pathlib.Path, rng: random.Random) -> bool:
    """Starts a program and kills it at a random moment; returns whether it was still running."""
    process = program.start(folder)
    end = time.monotonic() + rng.uniform(0, 1.1 * program.seconds)
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    process.kill()
    _, err = process.communicate()
    if process.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"exit code {process.returncode} in {folder}: {err[-2000:]}")
    return process.returncode != 0


def main(log: Callable[..., None] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="train,prepare,finetune")
    flags = parser.parse_args()
    rng, failures = random.Random(flags.seed), 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        chosen = {k: v for k, v in programs(folder).items() if k in flags.only.split(",")}
        expected, kills = {}, dict.fromkeys(chosen, 0)
        for name, program in chosen.items():
            program.finish(folder / name)  # compiles
            started = time.monotonic()
            program.finish(folder / f"{name}-again")
            program.seconds = time.monotonic() - started
            expected[name] = left(folder / f"{name}-again")
        number = 0
        while sum(kills.values()) < flags.count:
            name = min(kills, key=lambda name: kills[name])
            number += 1
            run = folder / f"{name}-{number}"
            this = [kill(chosen[name], run, rng) for _ in range(KILLS_OF_A_RUN)]
            kills[name] += sum(this)
            chosen[name].finish(run)
            if (found := left(run)) != expected[name]:
                failures += 1
                differs = [
                    k for k in expected[name] | found if found.get(k) != expected[name].get(k)
                ]
                log(f"{name}: run {number} differs in {differs}")
            log(f"{name:<10} {sum(this)} kills, {sum(kills.values())} in all", flush=True)
    log(", ".join(f"{count} of {name}" for name, count in kills.items()), f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
