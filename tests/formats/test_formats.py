"""The format of a path."""

import pytest

from bert_jax.formats import format_of


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_path_of_no_format_is_reported(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no such file|neither a workdir"):
        format_of(str(tmp_path / name))
