"""config.json in the folder of a run, and what may change in it."""

import json

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
    expected = json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n"
    assert (tmp_path / "config.json").read_bytes() == expected.encode()


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


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "holds no run: there is no config.json in it"),
        ("{", r"config.json is corrupt \(.*\): train again with"),
        ("[]", r"config.json is corrupt \(.*\): train again with"),
        ('{"model": 3}', r"config.json is corrupt \(.*\): train again with"),
        ("no seed", r"this version of the program \(config.seed is missing"),
    ],
)
def test_a_file_that_is_not_of_this_program(content, message, make_config, tmp_path):
    if content == "no seed":
        content = json.dumps({k: v for k, v in make_config().to_dict().items() if k != "seed"})
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=message):
        store.load(str(tmp_path))


def test_a_run_of_a_version_without_fields_that_no_number_depends_on(make_config, tmp_path):
    config = make_config(**{"eval.max_batches": 3})
    store.save(config, str(tmp_path))
    values = json.loads((tmp_path / "config.json").read_text())
    del values["eval"]["suites"], values["eval"]["max_batches"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert store.load(str(tmp_path)) == config.replace({"eval.max_batches": 0})


def test_the_folder_of_another_program(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    for refuse in (store.load, store.check_workdir):
        with pytest.raises(ValueError, match="is not a workdir: .*bert_jax convert from_hf"):
            refuse(str(tmp_path))
    store.check_workdir(str(tmp_path / "new"))


def test_a_run_has_begun_from_one_source(make_config, tmp_path):
    config = make_config(init_from="theirs")
    assert not store.has_begun("theirs", "") and not store.has_begun("theirs", str(tmp_path))
    store.save(config, str(tmp_path))
    assert store.has_begun("theirs", str(tmp_path))
    assert not store.has_begun("others", str(tmp_path))
