"""The command: what it writes and what it refuses."""

import os
import subprocess
import sys

import pytest

from bert_jax.__main__ import main as run_command
from tests.tools.pages.made_runs import read_page, write_finetuning, write_pretraining


def test_the_report_is_written_and_the_same_again(tmp_path):
    write_pretraining(tmp_path / "run", steps=60)
    words = ["report", f"--workdir={tmp_path / 'run'}"]
    done = subprocess.run(
        [sys.executable, "-m", "bert_jax", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "1"},
    )
    path = tmp_path / "run" / "report.html"
    assert done.stdout == f"wrote {path}, {path.stat().st_size:,} bytes\n"
    before = path.read_bytes()
    run_command(words)
    assert path.read_bytes() == before


def test_several_runs_need_a_name_for_their_report(tmp_path, capsys):
    for name in ("a", "b"):
        write_pretraining(tmp_path / name, steps=60)
    words = [f"--workdir={tmp_path}/a", f"--workdir={tmp_path}/b"]
    with pytest.raises(ValueError, match="--output is missing: the file to write"):
        run_command(["report", *words])
    run_command(["report", *words, f"--output={tmp_path}/both.html"])
    root = read_page((tmp_path / "both.html").read_text(encoding="utf-8"))
    assert [h.text for h in root.find("h1")] == ["2 runs"]
    assert str(tmp_path / "both.html") in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, message",
    [
        (["--workdir={0}", "--workdir={0}", "--output=x"], "{0} holds a sweep: a sweep has a"),
        (["--workdir={0}", "--held_out=2"], "--held_out needs the --workdir of one run"),
        (
            ["--workdir={0}/fine", "--held_out=2"],
            "fine is a run of config.task.name='classification'",
        ),
    ],
)
def test_a_wrong_command_line_is_refused(words, message, tmp_path):
    (tmp_path / "sweep.json").write_text("{}")
    write_finetuning(tmp_path / "fine", seeds=1)
    with pytest.raises(ValueError) as error:
        run_command(["report", *(word.format(tmp_path) for word in words)])
    assert message.format(tmp_path) in str(error.value)
