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
    docs = REPOSITORY / "docs"
    for page in docs.rglob("*.md"):
        name = "" if page.stem == "index" else page.relative_to(docs).with_suffix("")
        assert (tmp_path / "site" / name / "index.html").exists(), page
    home = (tmp_path / "site" / "index.html").read_text()
    assert "https://example.org/bert_jax/blob/main/CHANGELOG.md" in home
