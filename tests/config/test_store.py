"""config.json in the folder of a run, also of earlier versions, and what may change in it."""

import json
import pathlib

import pytest

from bert_jax.config import defaults, store


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


def test_a_field_that_one_side_does_not_have_is_a_difference(make_config):
    old = make_config()
    with old.unlocked():
        del old["seed"]
    assert store.differences(old, make_config()) == ["seed: 'missing' -> 0"]


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(ValueError, match="holds no run: there is no config.json in it"):
        store.load(str(tmp_path))


def test_the_bytes_are_indented_json_with_sorted_names(make_config, tmp_path):
    config = make_config()
    store.save(config, str(tmp_path))
    expected = json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n"
    assert (tmp_path / "config.json").read_bytes() == expected.encode()


def test_a_configuration_of_version_0_1_0_has_the_values_that_were_built_in(make_config, tmp_path):
    config = make_config()
    old = json.loads(json.dumps(config.to_dict()))
    for name, value in (store.ADDED_FIELDS | store.ADDED_STACK_FIELDS).items():
        assert old["model"].pop(name) == value
    assert old["data"].pop("eval_masked_lm_prob") == old["data"]["masked_lm_prob"]
    for name, value in store.ADDED_OPTIMIZER_FIELDS.items():
        written = old["optimizer"].pop(name)
        assert (tuple(written) if isinstance(written, list) else written) == value
    (tmp_path / "config.json").write_text(json.dumps(old))
    loaded = store.load(str(tmp_path))
    assert loaded.to_dict() == config.to_dict()
    assert store.differences(loaded, config) == []


def test_a_head_of_an_earlier_version_has_the_values_that_were_built_in(tmp_path):
    config = defaults.tagging()
    old = json.loads(json.dumps(config.to_dict()))
    for name, value in store.ADDED_HEAD_FIELDS.items():
        assert old["head"].pop(name) == value
    (tmp_path / "config.json").write_text(json.dumps(old))
    assert store.load(str(tmp_path)).to_dict() == config.to_dict()


def test_a_configuration_without_shares_of_masks_has_those_that_were_built_in(
    make_config, make_labelled, tmp_path
):
    for config, added in ((make_config(), store.ADDED_DATA_FIELDS), (make_labelled(), {})):
        old = json.loads(json.dumps(config.to_dict()))
        for name, value in added.items():
            assert tuple(old["data"][name]) == value if value == () else old["data"][name] == value
            del old["data"][name]
        (tmp_path / "config.json").write_text(json.dumps(old))
        loaded = store.load(str(tmp_path))
        assert loaded.to_dict() == config.to_dict()
        assert store.differences(loaded, config) == []


def test_a_changed_model_is_a_difference(make_config):
    before, after = make_config(**{"model.positions": "rotary"}), make_config()
    assert store.differences(before, after) == ["model.positions: 'rotary' -> 'learned'"]


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"model": 3}', ""])
def test_a_corrupt_file(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config.json is corrupt \(.*\): give the configuration"):
        store.load(str(tmp_path))


def test_the_folder_of_another_program(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    for refuse in (store.load, store.check_workdir):
        with pytest.raises(ValueError) as error:
            refuse(str(tmp_path))
        assert str(error.value) == (
            f"{tmp_path} is not a workdir: its config.json is another program's. Choose another"
            " folder; to import a BERT into a new workdir, run python -m bert_jax convert from_hf"
            f" {tmp_path} NEW."
        )
    store.check_workdir(str(tmp_path / "new"))


def test_a_run_has_begun_from_one_source(make_config, tmp_path):
    config = make_config(init_from="theirs")
    assert not store.has_begun(config, "") and not store.has_begun(config, str(tmp_path))
    store.save(config, str(tmp_path))
    assert store.has_begun(config, str(tmp_path))
    assert not store.has_begun(make_config(init_from="others"), str(tmp_path))


def test_a_failed_save_leaves_the_old_file(make_config, tmp_path, monkeypatch):
    store.save(make_config(steps=1), str(tmp_path))
    monkeypatch.setattr(pathlib.os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.save(make_config(steps=2), str(tmp_path))
    assert store.load(str(tmp_path)).steps == 1
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
