"""The folder of a run, the weights to start from, and the length of the run."""

import pathlib
import shutil

import pytest

from bert_jax.config import store
from bert_jax.tools.doctor.examine import examine
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.listener import Listener
from bert_jax.training.open import open_run
from bert_jax.training.resume import restore_or_init
from bert_jax.training.train import train
from bert_jax.training.workdir import open_model
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


@pytest.fixture
def look_at(uncompiled):
    """Returns a function (folder of a run, changes) -> findings before compilation."""

    def look_at(workdir, **changes):
        config = store.load(str(workdir)).replace(changes)
        return list(examine(config, str(workdir), 0))

    return look_at


def test_a_finished_run_is_complete(finished, look_at):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    findings = look_at(finished)
    found(findings, "note", "The run is complete: 12 of 12 steps")
    assert bad(findings) == []
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_an_unfinished_run_can_be_resumed(copy, look_at):
    for path in (copy / "checkpoints").glob("12*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "resumes it" in found(look_at(copy), "note", "6 of 12 steps are done").fix


def test_a_run_without_an_intact_checkpoint_starts_again(copy, look_at):
    for path in (copy / "checkpoints").glob("*.sha256.json"):
        path.unlink()
    found(look_at(copy), "warning", "has no intact checkpoint: training would start again")


def test_imported_weights_are_no_run(copy, look_at):
    for path in (copy / "checkpoints").glob("*/train_state"):
        shutil.rmtree(path)
    findings = look_at(copy)
    found(findings, "problem", "holds imported parameters, not a run")
    found(findings, "note", "The data are not looked at")


def test_other_settings_or_data_than_those_of_the_run_are_a_problem(finished, look_at, tmp_path):
    findings = look_at(finished, **{"optimizer.learning_rate": 3e-4})
    found(findings, "problem", "other settings: optimizer.learning_rate: 0.0005 -> 0.0003")
    config = store.load(str(finished))
    other = tmp_path / "train.tsv"
    other.write_text(pathlib.Path(config["data.train"]).read_text() + "good good\tgood\n")
    found(look_at(finished, **{"data.train": str(other)}), "problem", "data: ")


def test_a_head_is_kept_for_the_same_labels_only(make_config, finished, tmp_path, uncompiled):
    """What the note says is what training does."""
    source = pathlib.Path(shutil.copytree(finished, tmp_path / "source"))
    config = make_config("classification", init_from=str(source))
    findings = list(examine(config, "", 0))
    found(findings, "ok", f"The parameters in {source} fit config.model")
    assert bad(findings) == []
    (source / "labels.json").write_text('["good", "better"]')
    finding = found(examine(config, "", 0), "note", "The head will be new")
    assert "labels of config.init_from are good, better; those of the data: bad, g" in finding.what

    (source / "labels.json").write_text('["good", "bad"]')
    assert bad(examine(config, "", 0)) == []
    run = open_run(config, str(tmp_path / "run"))
    state, _ = restore_or_init(run, Checkpoints(str(tmp_path / "run")), Listener())
    before = open_model(str(finished)).params
    assert (before["classifier/bias"][::-1] == state.params["classifier"]["bias"]).all()


def test_a_rate_far_from_that_of_the_recipe_is_a_warning(make_config, finished):
    config = make_config("classification", init_from=str(finished))
    config = config.replace({"optimizer.learning_rate": 2e-5})
    finding = found(examine(config, "", 0), "warning", "learning_rate=2e-05 is far from 0.001")
    assert "--config.optimizer.learning_rate=0.001, or the command finetune" in finding.fix


def test_weights_that_do_not_fit_are_a_problem(make_config, finished):
    config = make_config("classification", init_from=str(finished))
    config = config.replace({"model.intermediate_size": 48})
    found(examine(config, "", 0), "problem", "do not fit the configuration")


def test_the_length_of_a_run(look):
    findings = look("classification", epochs=4.0, eval__every="5", checkpoint__every="10")
    # 96 examples in batches of 16; evaluations at 5, 10, 15, 20, 24, checkpoints at 10, 20, 24
    line = found(findings, "ok", "24 steps").what
    assert line == "24 steps, 4 epochs of the training data; 5 evaluations, 3 checkpoints."


def test_a_warmup_that_does_not_end_is_a_warning(look):
    findings = look(optimizer__warmup="1000")
    finding = found(findings, "warning", "1,000 of 300 steps: the learning rate never reaches")
    assert finding.fix == "--config.optimizer.warmup=10%"
