"""The measurement of preparation."""

import re

import pytest

from benchmarks import command
from tests.runs.conftest import write_corpus

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


def test_stages_are_measured(tmp_path, capfd):
    write_corpus(tmp_path / "corpus.txt")
    fields = {"source": f"text:{tmp_path}/corpus.txt", "line_format": "sentences"}
    flags = [f"--config.data.{name}={value}" for name, value in fields.items()]
    command.main("prepare", [*flags, "--config=configs/tiny.py", "--config.model.vocab_size=96"])
    lines = capfd.readouterr().out.splitlines()
    assert re.fullmatch(r"[\d.]+ s, at most \d+ MiB in any process", lines[1])
    assert lines[2].split() == ["s", "MB/s"]
    stages = {line.rstrip(" .0123456789") for line in lines[3:]}
    assert {"count words", "tokenize", "pairs", "shards"} <= stages
