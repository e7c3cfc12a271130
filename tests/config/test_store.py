"""config.json in the folder of a run, and what may change in it."""

import json
import pathlib

import pytest

from bert_jax.config import store
from bert_jax.files.errors import UserError


def test_a_saved_configuration_is_loaded_with_its_tuples(make_config, tmp_path):
    config = make_config(phases=((64, 0.5, 8), (128, 0.5)), steps=3)
    store.save(config, str(tmp_path))
    loaded = store.load(str(tmp_path))
    assert loaded.to_dict() == config.to_dict()
    assert store.differences(loaded, config) == []
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 3


def test_differences_name_what_decides_the_numbers(make_config):
    changes = {"seed": 1, "model.num_layers": 6}
    free = {
        "preset": "hf",  # only a name, as long as the fields that it sets are the same
        "log.every": "7",
        "eval.every": "7",
        "checkpoint.keep": 9,
        "mesh.fsdp": 2,
        "data.dir": "x",
    }
    assert store.differences(make_config(), make_config(**changes, **free)) == [
        "model.num_layers: 12 -> 6",
        "seed: 0 -> 1",
    ]


def test_lengths_that_are_left_to_the_run_are_those_that_it_has(make_labelled):
    chosen, left, other = (
        make_labelled(**{"data.bucket_lengths": n}) for n in ((16, 40), (), (16, 48))
    )
    assert store.differences(chosen, left) == []
    assert store.differences(chosen, other) == ["data.bucket_lengths: (16, 40) -> (16, 48)"]
    assert store.differences(left, other) == ["data.bucket_lengths: () -> (16, 48)"]


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(ValueError, match="holds no run: there is no config.json in it"):
        store.load(str(tmp_path))


def test_the_bytes_are_indented_json_with_sorted_names(make_config, tmp_path):
    config = make_config()
    store.save(config, str(tmp_path))
    expected = json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n"
    assert (tmp_path / "config.json").read_bytes() == expected.encode()


def test_a_changed_model_is_a_difference(make_config):
    before, after = make_config(**{"model.positions": "rotary"}), make_config()
    assert store.differences(before, after) == ["model.positions: 'rotary' -> 'learned'"]


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"model": 3}', ""])
def test_a_corrupt_file(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config.json is corrupt \(.*\): train again with"):
        store.load(str(tmp_path))


def test_a_file_of_another_version(make_config, tmp_path):
    values = make_config().to_dict()
    del values["seed"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"this version of the program \(config.seed is missing"):
        store.load(str(tmp_path))


def test_the_folder_of_another_program(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    for refuse in (store.load, store.check_workdir):
        with pytest.raises(ValueError) as error:
            refuse(str(tmp_path))
        assert str(error.value) == (
            f"{tmp_path} is not a workdir: its config.json is another program's. Choose another"
            " folder; to import a BERT into a new workdir, run bert_jax convert from_hf"
            f" {tmp_path} NEW."
        )
    store.check_workdir(str(tmp_path / "new"))


def test_a_run_has_begun_from_one_source(make_config, tmp_path):
    config = make_config(init_from="theirs")
    assert not store.has_begun("theirs", "") and not store.has_begun("theirs", str(tmp_path))
    store.save(config, str(tmp_path))
    assert store.has_begun("theirs", str(tmp_path))
    assert not store.has_begun("others", str(tmp_path))


def test_a_failed_save_leaves_the_old_file(make_config, tmp_path, monkeypatch):
    store.save(make_config(steps=1), str(tmp_path))
    monkeypatch.setattr(pathlib.os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.save(make_config(steps=2), str(tmp_path))
    assert store.load(str(tmp_path)).steps == 1
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
