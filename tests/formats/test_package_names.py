"""Folders of installed packages as models."""

import sys

import pytest

from bert_jax.files.errors import UserError
from bert_jax.formats.hub import local_model


def test_a_folder_of_a_package_which_is_not_imported(tmp_path, monkeypatch):
    folder = tmp_path / "some_weights" / "model"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path)
    assert local_model("package:some_weights/model") == str(folder)
    assert "some_weights" not in sys.modules
    with pytest.raises(UserError, match="has no folder models; it has model"):
        local_model("package:some_weights/models")
    for name in ("some-weights/model", "some.weights", "json.tool", "no_such_weights/model", ""):
        with pytest.raises(UserError, match="is installed here"):
            local_model(f"package:{name}")
