"""Labels of checkpoints, and folders that hold a run or a part of one."""

import json
import pathlib
import shutil
from unittest import mock

import pytest

from bert_jax.config import store
from bert_jax.tools.doctor import origin
from bert_jax.tools.doctor.examine import examine
from bert_jax.training.train import train
from tests.tools.doctor.conftest import bad, found


@pytest.fixture(scope="session")
def finished(make_config, tmp_path_factory):
    """The folder of a finished run of a classifier."""
    workdir = tmp_path_factory.mktemp("finished")
    train(make_config("classification", epochs=2.0), str(workdir))
    return workdir


@pytest.fixture
def copy(finished, tmp_path):
    return pathlib.Path(shutil.copytree(finished, tmp_path / "run"))


def look_at(workdir, **changes):
    config = store.load(str(workdir))
    config = config.replace(changes)
    with mock.patch("bert_jax.tools.doctor.examine.all_shapes", lambda _: []):
        return list(examine(config, str(workdir), 0))


def test_a_finished_run_is_complete(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    findings = look_at(finished)
    found(findings, "note", "The run is complete: 12 of 12 updates")
    found(findings, "ok", "the newest intact checkpoint is that of step 12")
    assert bad(findings) == []
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_an_unfinished_run_can_be_resumed(copy):
    for path in (copy / "checkpoints").glob("12*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    findings = look_at(copy)
    assert "resumes it" in found(findings, "note", "6 of 12 updates are done").fix


def test_a_run_without_an_intact_checkpoint_starts_again(copy):
    for path in (copy / "checkpoints").glob("*.sha256.json"):
        path.unlink()
    found(look_at(copy), "warning", "has no intact checkpoint: training would start again")


def test_other_settings_than_those_of_the_run_are_a_problem(finished):
    findings = look_at(finished, **{"optimizer.learning_rate": 3e-4})
    found(findings, "problem", "other settings: optimizer.learning_rate: 0.0005 -> 0.0003")
    found(findings, "note", "The data are not looked at")


def test_files_with_other_labels_than_the_run_are_a_problem(copy, files, tmp_path):
    text = (files / "train.tsv").read_text()
    changed = {}
    for name in ("train", "dev"):
        path = tmp_path / f"{name}.tsv"
        path.write_text((files / f"{name}.tsv").read_text().replace("\tbad", "\tawful"))
        changed[f"data.{'train' if name == 'train' else 'eval'}"] = str(path)
    assert "\tbad" in text
    config = store.load(str(copy))
    config = config.replace(changed)
    config = config.replace({"checkpoint.allow_changes": True})
    store.save(config, str(copy))
    findings = look_at(copy)
    found(findings, "problem", "the checkpoint's numbers would mean other labels")


def test_labels_in_another_order_than_the_checkpoints(make_config, finished, tmp_path):
    source = pathlib.Path(shutil.copytree(finished, tmp_path / "source"))
    config = make_config("classification", init_from=str(source))
    assert json.loads((source / "labels.json").read_text()) == ["bad", "good"]
    findings = list(origin.check_labels(config, ("bad", "good"), ""))
    found(findings, "ok", "has a head for the same labels: bad, good")
    (source / "labels.json").write_text('["good", "bad"]')
    with mock.patch("bert_jax.tools.doctor.examine.all_shapes", lambda _: []):
        findings = list(examine(config, "", 0))
    found(findings, "warning", "the same labels in another order: good, bad")
    (source / "labels.json").write_text('["yes", "no"]')
    findings = list(origin.check_labels(config, ("bad", "good"), ""))
    found(findings, "warning", "its labels are others: yes, no")
    (source / "labels.json").write_text('["a", "b", "c"]')
    assert list(origin.check_labels(config, ("bad", "good"), "")) == []  # a new head


def test_a_head_of_other_labels_is_really_taken_over(make_config, finished, tmp_path):
    """What the warning says is what training does."""
    from bert_jax.training.checkpoints import Checkpoints
    from bert_jax.training.listener import Listener
    from bert_jax.training.open import open_run
    from bert_jax.training.resume import restore_or_init
    from bert_jax.training.workdir import open_model

    config = make_config("classification", init_from=str(finished))
    run = open_run(config, str(tmp_path))
    state, _ = restore_or_init(run, Checkpoints(str(tmp_path)), Listener())
    before = open_model(str(finished)).params
    assert (before["classifier/bias"] == state.params["classifier"]["bias"]).all()


def test_weights_that_do_not_fit_are_a_problem(make_config, finished):
    config = make_config("classification", init_from=str(finished))
    config = config.replace({"model.intermediate_size": 48})
    found(examine(config, "", 0), "problem", "do not fit the configuration")


def test_imported_weights_are_no_run(make_config, copy):
    for path in (copy / "checkpoints").glob("*/train_state"):
        shutil.rmtree(path)
    found(look_at(copy), "problem", "holds imported parameters, not a run")
