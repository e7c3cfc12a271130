"""Files and folders are there whole or not at all."""

import pytest

from bert_jax.files.atomic import read_json, whole_file, whole_folder, write_json


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    with whole_file(path) as part, open(part, "w") as file:
        file.write("text")
        assert not path.exists()
    assert path.read_text() == "text"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as part, open(part, "w") as file:
        file.write("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_appears_when_it_is_complete_and_starts_empty(tmp_path):
    path = tmp_path / "folder"
    (tmp_path / "folder.part").mkdir()
    (tmp_path / "folder.part" / "of an interrupted run").write_text("")
    with whole_folder(path) as part:
        with open(f"{part}/file", "w") as file:
            file.write("text")
        assert not path.exists()
    assert [p.name for p in path.iterdir()] == ["file"]
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "other"):
        raise RuntimeError
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_equal_json_has_equal_bytes(tmp_path):
    write_json(tmp_path / "a", {"x": 1, "y": ["ä"]})
    write_json(tmp_path / "b", {"y": ["ä"], "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_json(tmp_path / "a") == {"x": 1, "y": ["ä"]}
