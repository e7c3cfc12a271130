"""The folder of a run, the weights to start from, and the length of the run."""

import pathlib
import shutil

import pytest

from bert_jax.config import store
from bert_jax.tools.doctor.examine import examine
from bert_jax.tools.doctor.measured import Workbench, all_shapes
from bert_jax.tools.doctor.trial import open_trial
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


@pytest.mark.parametrize(
    ("missing", "level", "text"),
    [
        ("12*", "note", "The run is not complete: 6 of 12 steps are done"),
        ("*.sha256.json", "warning", "has no intact checkpoint: training would start again"),
        ("*/train_state", "problem", "holds imported parameters, not a run"),
    ],
)
def test_a_folder_that_lacks_checkpoints(missing, level, text, copy, look_at):
    for path in (copy / "checkpoints").glob(missing):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    found(look_at(copy), level, text)


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


def test_weights_that_do_not_fit_and_a_rate_far_from_the_recipe(make_config, finished, uncompiled):
    config = make_config("classification", init_from=str(finished))
    other = config.replace({"model.intermediate_size": 48})
    found(examine(other, "", 0), "problem", "do not fit the configuration")
    changes = {"optimizer.learning_rate": 2e-5, "dtype": "bfloat16_products"}
    findings = list(examine(config.replace(changes), "", 0))
    # The tests' configuration says so of every processor.
    found(findings, "note", "multiplies float32 faster")
    finding = found(findings, "warning", "learning_rate=2e-05 is far from 0.0014")
    assert "--config.optimizer.learning_rate=0.0014, or the command finetune" in finding.fix


def test_the_length_of_a_run(look):
    changes = {"eval__every": "5", "checkpoint__every": "10", "optimizer__warmup": "1000"}
    changes["checkpoint__milestones"] = ("0.5 epochs", "20 steps", "5 epochs")
    findings = look("classification", epochs=4.0, **changes)
    # 96 examples in batches of 16; evaluations at 5, 10, 15, 20, 24, checkpoints at 3, 10, 20, 24
    line = found(findings, "ok", "24 steps").what
    assert line == "24 steps, 4 epochs of the training data; 5 evaluations, 4 checkpoints."
    finding = found(findings, "warning", "1,000 of 24 steps: the learning rate never reaches")
    assert finding.fix == "--config.optimizer.warmup=10%"


def test_checkpoints_have_the_size_that_is_said(finished, tmp_path):
    opened = open_trial(store.load(str(finished)), "", str(tmp_path))
    (only,) = Workbench(opened, 0).measure(all_shapes(opened.run))
    folder = finished / "checkpoints" / "12"
    written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    # the names of arrays, compressed parts
    assert only.checkpoint < written < only.checkpoint + 200_000
