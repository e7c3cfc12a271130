"""The measurement of preparation."""

import re

import pytest

from bert_jax.__main__ import main as run_command
from tests.runs.conftest import write_corpus

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


def test_stages_of_each_number_of_tasks_are_measured(tmp_path, capfd):
    write_corpus(tmp_path / "corpus.txt")
    fields = {"source": f"text:{tmp_path}/corpus.txt", "line_format": "sentences"}
    flags = [f"--config.data.{name}={value}" for name, value in fields.items()]
    flags += ["--config=configs/tiny.py", "--config.model.vocab_size=96", "--tasks=1,2"]
    run_command(["benchmark", "prepare", *flags])
    found = re.findall(
        r"--tasks=(\d): [\d.]+ s, at most \d+ MiB in any process\n.*MB/s\n(\w+ +[\w ]*[\d.]+)",
        capfd.readouterr().out,
    )
    assert [number for number, _ in found] == ["1", "2"]
