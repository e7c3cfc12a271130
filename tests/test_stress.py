"""The tool that damages input files, with a few files of each kind."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def test_damaged_files_are_read_or_refused_in_one_line(tmp_path):
    command = [sys.executable, "-m", "tests.stress", "--cases=1500", f"--kept={tmp_path / 'kept'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^\w+ +(\d+ read, )?\d+ refused", done.stdout, re.MULTILINE)) == 15
