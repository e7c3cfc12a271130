"""mkdocs builds the site of docs/ without a warning: every page is in it, every link resolves."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mkdocs", reason="needs the extra docs")
REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def test_the_site_builds_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}/site"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {path.stem for path in (REPOSITORY / "docs").glob("*.md")} - {"index"}
    assert pages <= {path.name for path in (tmp_path / "site").iterdir()}
    home = (tmp_path / "site" / "index.html").read_text()
    assert "https://example.org/bert_jax/blob/main/CHANGELOG.md" in home
