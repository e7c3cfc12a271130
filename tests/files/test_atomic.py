"""Durable writes: complete or not at all, and flushed to disk in the right order."""

import os
import stat

import pytest

from bert_jax.files.atomic import (
    AppendFile,
    move_file,
    own_parts,
    read_json,
    whole_file,
    whole_folder,
    write_json,
    write_text,
)


@pytest.fixture
def calls(tmp_path, monkeypatch) -> list[tuple[str, ...]]:
    """Records ("fsync", path) and ("replace", source, target), with paths below tmp_path."""
    recorded: list[tuple[str, ...]] = []
    fsync, replace = os.fsync, os.replace

    def below(path: str) -> str:
        return os.path.relpath(path, tmp_path)

    def recorded_fsync(descriptor: int) -> None:
        recorded.append(("fsync", below(os.readlink(f"/proc/self/fd/{descriptor}"))))
        fsync(descriptor)

    def recorded_replace(source: str, target: str) -> None:
        recorded.append(("replace", below(source), below(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    return recorded


def test_a_file_appears_when_it_is_complete_and_a_failure_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    with whole_file(path) as part, open(part, "w") as file:
        file.write("old")
        assert not path.exists()
    with pytest.raises(RuntimeError), whole_file(path) as part, open(part, "w") as file:
        file.write("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_two_writers_of_a_file_have_their_own_temporary_files(tmp_path):
    path, parts = tmp_path / "file", []
    for number in range(2):
        with own_parts(), whole_file(path) as part, open(part, "w") as file:
            file.write(str(number))
            parts.append(part)
    assert path.read_text() == "1" and len({*parts, f"{path}.part"}) == 3
    assert all(part.startswith(str(path)) and part.endswith(".part") for part in parts)
    with whole_file(path) as part:  # as before, after the block
        assert part == f"{path}.part"
        write_text(part, "2")


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("old", "missing"):  # a link may precede its target
        target, link = tmp_path / "disk" / name, tmp_path / name
        link.symlink_to(target)
        if name == "old":
            target.write_text("old")
        write_text(link, "new")
        assert link.readlink() == target and target.read_text() == "new"
        source = tmp_path / "disk" / "moved"
        source.write_text("moved")
        move_file(source, link)
        assert link.readlink() == target and target.read_text() == "moved"
    (tmp_path / "folder").symlink_to(tmp_path / "disk" / "folder")
    with whole_folder(tmp_path / "folder") as part:
        write_text(f"{part}/file", "text")
    assert (tmp_path / "disk" / "folder" / "file").read_text() == "text"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["disk", "folder", "missing", "old"]
    assert {p.name for p in (tmp_path / "disk").iterdir()} == {"folder", "missing", "old"}


def test_pipes_and_devices_are_written_to(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "link").symlink_to(pipe)
    terminal, device = os.openpty()
    for path, descriptor in ((pipe, reader), (tmp_path / "link", reader)):
        write_text(path, "text")
        assert os.read(descriptor, 9) == b"text" and stat.S_ISFIFO(os.stat(pipe).st_mode)
    write_text(os.ttyname(device), "text")
    assert os.read(terminal, 9) == b"text"
    for descriptor in (reader, terminal, device):
        os.close(descriptor)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_file_behind_a_descriptor_stays_for_those_who_write_to_it_too(tmp_path):
    with open(tmp_path / "file", "w") as file:
        write_text(f"/dev/fd/{file.fileno()}", "text")
        assert os.fstat(file.fileno()).st_ino == (tmp_path / "file").stat().st_ino
    assert (tmp_path / "file").read_text() == "text"


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


def test_a_file_is_on_disk_before_it_is_renamed_and_its_folder_after(calls, tmp_path):
    write_text(tmp_path / "file", "ä\r\nb")
    assert (tmp_path / "file").read_bytes() == "ä\r\nb".encode()
    assert calls == [("fsync", "file.part"), ("replace", "file.part", "file"), ("fsync", ".")]


def test_a_folder_is_on_disk_at_every_depth_before_it_is_renamed(calls, tmp_path):
    with whole_folder(tmp_path / "folder") as part:
        os.makedirs(f"{part}/a/b")
        for name in ("one", "a/b/two"):
            with open(f"{part}/{name}", "w") as file:
                file.write("text")
    assert calls[-2:] == [("replace", "folder.part", "folder"), ("fsync", ".")]
    flushed = [path for _, path in calls[:-2]]
    assert flushed == [
        "folder.part/a/b/two",
        "folder.part/a/b",
        "folder.part/a",
        "folder.part/one",
        "folder.part",
    ]


def test_a_file_name_without_a_folder_is_in_the_working_directory(calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text("file", "text")
    assert (tmp_path / "file").read_text() == "text" and calls[-1] == ("fsync", ".")


def test_equal_json_has_equal_bytes(tmp_path):
    write_json(tmp_path / "a", {"x": 1, "y": ["ä"]})
    write_json(tmp_path / "b", {"y": ["ä"], "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").read_text() == '{\n "x": 1,\n "y": [\n  "ä"\n ]\n}\n'
    assert read_json(tmp_path / "a") == {"x": 1, "y": ["ä"]}


def test_lines_are_visible_at_once_and_on_disk_after_sync(calls, tmp_path):
    path = tmp_path / "lines"
    path.write_text("first\n")
    with AppendFile(path) as file:
        assert calls == [("fsync", ".")]
        file.write_line("zweite Zeile, ä")
        assert path.read_text(encoding="utf-8") == "first\nzweite Zeile, ä\n"
        assert len(calls) == 1
        file.sync()
        assert calls[1:] == [("fsync", "lines")]
        file.write_line("third")
    file.close()
    assert calls[2:] == [("fsync", "lines")]
    assert path.read_text(encoding="utf-8") == "first\nzweite Zeile, ä\nthird\n"
