"""The command `prepare`: what it dumps, and programs that are killed."""

import json
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.data.corpus.manifest import Manifest
from tests.data.corpus.corpora import REPOSITORY, contents, make_config, write_text

# ml_collections loads configuration files by it.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


def words(text: pathlib.Path, folder: pathlib.Path, *flags: str) -> list[str]:
    config = make_config(text, vocab="train:wordpiece")
    names = ("source", "line_format", "vocab", "dupe_factor", "seed", "validation_share")
    values = [f"--config.data.{name}={getattr(config, name)}" for name in names]
    values += ["--config.model.vocab_size=100", "--config.phases=((32, 0.5), (64, 0.5))"]
    return ["prepare", "--config=configs/tiny.py", f"--data_dir={folder}", *values, *flags]


def test_it_prepares_and_dumps(text, tmp_path, capsys):
    records = tmp_path / "records.jsonl"
    flags = ("--config.data.mode=static", "--config.data.num_processes=1")
    run_command(words(text, tmp_path / "data", *flags, "--dump=2", f"--dump_jsonl={records}"))
    out = capsys.readouterr().out
    assert out.count("A: [CLS]") == out.count("\nB: ") == 2
    assert out.count("\nis_next\n") + out.count("\nrandom_next\n") == 2
    assert out.count("\nmasked: ") == 2
    manifest = Manifest.load(str(tmp_path / "data"))
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert len(lines) == sum(
        manifest.num_rows(split, length) for split in manifest.splits for length in (32, 64)
    )
    tokenizer = manifest.tokenizer()
    for line in lines:
        length = len(line["input_ids"])
        assert length in (32, 64) and len(line["segment_ids"]) == len(line["input_mask"]) == length
        used = sum(line["input_mask"])
        assert [tokenizer.pieces[i] for i in line["input_ids"][:used]] == line["tokens"]
        assert not any(line["input_ids"][used:])
        num_masked = int(sum(line["masked_lm_weights"]))
        assert 1 <= num_masked <= len(line["masked_lm_ids"]) == len(line["masked_lm_positions"])
        assert line["next_sentence_labels"] in ([0], [1])


# ------------------------------------------------------------------ killed programs


@pytest.fixture(scope="module")
def long_text(tmp_path_factory) -> pathlib.Path:
    """Text that takes a second to prepare."""
    folder = tmp_path_factory.mktemp("text")
    write_text(folder, 600)
    return folder


@pytest.fixture(scope="module")
def expected(long_text, tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("data")
    run_command(words(long_text, folder, "--config.data.num_processes=1"))
    return contents(folder)


def start(text, folder, *flags) -> subprocess.Popen:
    command = [sys.executable, "-m", "bert_jax", *words(text, folder, *flags)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=pipe, stderr=subprocess.STDOUT)


def wait_for(path: pathlib.Path) -> None:
    for _ in range(3000):
        if path.exists() or (path.parent / "manifest.json").exists():
            return
        time.sleep(0.01)


def test_killed_at_any_moment_it_goes_on_and_leaves_no_process_behind(
    long_text, expected, tmp_path
):
    # Immediately, and then at a random moment, when a fast machine may already be done.
    for delay in (0, random.Random(0).uniform(0, 1)):
        started = start(long_text, tmp_path, "--config.data.num_processes=2")
        wait_for(tmp_path / "unfinished")
        time.sleep(delay)
        started.send_signal(signal.SIGKILL)
        # The output ends when the last of its writers is gone: the workers too.
        started.communicate(timeout=30)
        assert started.returncode in (-signal.SIGKILL, 0)
    run_command(words(long_text, tmp_path, "--config.data.num_processes=2"))
    assert contents(tmp_path) == expected
    # As if the kill had come after the manifest was written.
    (tmp_path / "unfinished").mkdir()
    run_command(words(long_text, tmp_path, "--config.data.num_processes=2"))
    assert contents(tmp_path) == expected
