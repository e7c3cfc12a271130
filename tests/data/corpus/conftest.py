"""Text to prepare, and the data prepared from it."""

import pathlib
import shutil

import pytest

from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare
from tests.data.corpus.corpora import make_config, make_small_units, quiet, write_text


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("text")
    write_text(folder, 60)
    return folder


@pytest.fixture
def small_units(monkeypatch):
    """See `make_small_units`."""
    make_small_units(monkeypatch)


@pytest.fixture(scope="session")
def prepared(text, tmp_path_factory) -> Manifest:
    """The data of `make_config(text)`, in many units and files; tests leave them as they are."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        make_small_units(patch)
        return prepare(make_config(text), str(folder), 1, quiet)


@pytest.fixture
def manifest(prepared, tmp_path) -> Manifest:
    """A copy of `prepared`, which a test may damage."""
    folder = tmp_path / "data"
    shutil.copytree(prepared.folder, folder)
    return Manifest.load(str(folder))
