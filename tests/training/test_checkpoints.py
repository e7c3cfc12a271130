"""Checkpoints are intact or absent, corruption is detected, and the right ones are kept."""

import logging
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import SingleDeviceSharding

from bert_jax.training import checkpoints as checkpoints_module
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.seals import find_corruption
from bert_jax.training.state import TrainState

SHARDING = SingleDeviceSharding(jax.devices()[0])


def make_state(step: int, **params) -> TrainState:
    """Returns a small state that is a function of its step."""
    params = params or {"dense": {"kernel": jnp.full((4, 3), step / 3), "bias": jnp.arange(3.0)}}
    params = jax.device_put(params, SHARDING)
    return TrainState(
        step=jnp.int32(step),
        params=params,
        opt_state=optax.adam(1e-3).init(params),
        nonfinite_streak=jnp.int32(0),
    )


def abstract(state: TrainState) -> TrainState:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=SHARDING), state)


def save(checkpoints: Checkpoints, *steps: int, **metrics: float) -> None:
    for step in steps:
        checkpoints.save(make_state(step), {"number": step}, metrics)
        checkpoints.wait()


def steps_in(workdir: pathlib.Path) -> list[int]:
    names = (path.name for path in (workdir / "checkpoints").iterdir())
    return sorted(int(name) for name in names if name.isdecimal())


def assert_restores(checkpoints: Checkpoints, step: int) -> None:
    state, meta = checkpoints.restore(step, abstract(make_state(0)))
    jax.tree.map(np.testing.assert_array_equal, state, make_state(step))
    assert meta == {"number": step}


@pytest.fixture
def warnings(caplog):
    """Returns a function that returns the text of the warnings so far."""
    caplog.set_level(logging.WARNING)
    return lambda: caplog.text


def test_a_saved_state_is_restored_bit_for_bit(tmp_path):
    assert Checkpoints(str(tmp_path / "none"), read_only=True).newest_good_step() is None
    assert not (tmp_path / "none").exists()
    checkpoints = Checkpoints(str(tmp_path))
    with pytest.raises(ValueError, match="has no checkpoint yet: train first"):
        checkpoints.chosen_step("best")
    save(checkpoints, 1, 2)
    assert checkpoints.chosen_step("best") == 2  # without evaluations the newest
    checkpoints.close()
    again = Checkpoints(str(tmp_path))
    assert again.newest_good_step() == 2
    assert_restores(again, 2)
    params = again.restore_params(1, abstract(make_state(0)).params)
    jax.tree.map(np.testing.assert_array_equal, params, make_state(1).params)
    assert again.read_meta(1) == {"number": 1}
    again.close()


def test_a_save_in_the_background_has_the_state_at_its_start(tmp_path):
    checkpoints = Checkpoints(str(tmp_path))
    state = make_state(1)
    checkpoints.save(state, {"number": 1}, {})
    changed = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)(state)
    jax.block_until_ready(changed)
    checkpoints.wait()
    assert checkpoints.newest_good_step() == 1
    assert_restores(checkpoints, 1)
    checkpoints.close()


# ------------------------------------------------------------------ corruption


def flip_a_bit(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("two")
    checkpoints = Checkpoints(str(workdir))
    save(checkpoints, 1, 2)
    checkpoints.close()
    return workdir


@pytest.mark.parametrize("corrupt", [flip_a_bit, truncate, pathlib.Path.unlink])
def test_corruption_of_any_file_of_a_checkpoint_is_found(two_checkpoints, corrupt):
    folder = two_checkpoints / "checkpoints" / "2"
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(files) > 5
    assert not find_corruption(folder)
    for path in files:
        content = path.read_bytes()
        corrupt(path)
        assert str(path.relative_to(folder)) in find_corruption(folder)
        path.write_bytes(content)
    assert not find_corruption(folder)
    (extra := folder / "params" / "extra").write_text("x")
    assert find_corruption(folder) == "params/extra is not in its list of checksums"
    extra.unlink()


@pytest.mark.parametrize("name", ["2/params/manifest.ocdbt", "2.sha256.json"])
def test_a_corrupt_checkpoint_is_moved_aside_and_the_previous_one_is_used(tmp_path, name, warnings):
    checkpoints = Checkpoints(str(tmp_path))
    save(checkpoints, 1, 2)
    checkpoints.close()
    folder = tmp_path / "checkpoints"
    truncate(folder / name)

    reader = Checkpoints(str(tmp_path), read_only=True)
    assert reader.newest_good_step() == 1
    assert steps_in(tmp_path) == [1, 2]
    assert "is corrupt" in warnings()
    assert "skipped; the previous one is used" in warnings()

    checkpoints = Checkpoints(str(tmp_path))
    assert checkpoints.newest_good_step() == 1
    assert f"moved to {folder / 'damaged-2'}; the previous one is used" in warnings()
    assert (folder / "damaged-2").is_dir()
    assert_restores(checkpoints, 1)
    save(checkpoints, 2)  # the run reaches this step again
    assert checkpoints.newest_good_step() == 2
    assert_restores(checkpoints, 2)
    checkpoints.close()


def test_a_checkpoint_without_a_list_of_checksums_is_unfinished(tmp_path, warnings):
    checkpoints = Checkpoints(str(tmp_path))
    save(checkpoints, 1, 2)
    (tmp_path / "checkpoints" / "2.sha256.json").unlink()
    assert Checkpoints(str(tmp_path), read_only=True).newest_good_step() == 1
    assert steps_in(tmp_path) == [1, 2]
    assert checkpoints.newest_good_step() == 1
    assert "Checkpoint 2 is unfinished and is removed." in warnings()
    assert steps_in(tmp_path) == [1]
    checkpoints.close()


# ------------------------------------------------------------------ another tree


KERNEL, BIAS = {"kernel": jnp.zeros((4, 3))}, {"bias": jnp.zeros(3)}


@pytest.mark.parametrize(
    "params, message",
    [
        ({"kernel": jnp.zeros((4, 2)), **BIAS}, r"- dense/kernel: float32\[4, 3\]; \+"),
        ({"kernel": jnp.zeros((4, 3), jnp.bfloat16), **BIAS}, "bfloat16"),
        (KERNEL, r"- dense/bias: float32\[3\]"),
        ({**KERNEL, **BIAS, "scale": jnp.zeros(3)}, r"\+ dense/scale: float32\[3\]"),
    ],
)
def test_a_state_of_another_structure_is_refused(two_checkpoints, params, message):
    checkpoints = Checkpoints(str(two_checkpoints), read_only=True)
    like = abstract(make_state(0, dense=params))
    assert checkpoints.newest_good_step() == 2
    for restore in (
        lambda: checkpoints.restore(2, like),
        lambda: checkpoints.restore_params(2, like.params),
    ):
        with pytest.raises(ValueError, match=message) as raised:
            restore()
        assert "does not fit the configuration" in str(raised.value)


# ------------------------------------------------------------------ what is kept


@pytest.mark.parametrize("metric, sign", [("loss", 1), ("accuracy", -1)])
def test_the_newest_and_the_best_are_kept_across_restarts(tmp_path, metric, sign):
    options = dict(keep=2, keep_best=1, best_metric=metric)
    for step, value in ((1, 3.0), (2, 1.0), (3, 2.0), (4, float("nan")), (5, 2.0)):
        checkpoints = Checkpoints(str(tmp_path), **options)
        checkpoints.newest_good_step()
        save(checkpoints, step, **{metric: sign * value})
        checkpoints.close()
    assert steps_in(tmp_path) == [2, 4, 5]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 6  # no list without its folder


def test_milestones_are_kept_whatever_the_later_settings(tmp_path):
    for keep, steps in ((1, (1, 2, 3)), (2, (4, 5, 6))):
        checkpoints = Checkpoints(str(tmp_path), keep=keep, best_metric="loss")
        for step in steps:
            texts = {1: ("1 word",), 5: ("2 words", "50%")}.get(step, ())
            checkpoints.save(make_state(step), {"number": step}, {"loss": 1.0}, texts)
            checkpoints.wait()
        checkpoints.close()
    assert steps_in(tmp_path) == [1, 5, 6]
    reader = Checkpoints(str(tmp_path), read_only=True)
    assert reader.milestones() == {"1 word": 1, "2 words": 5, "50%": 5}
    assert reader.chosen_step("newest", 5) == 5
    flip_a_bit(tmp_path / "checkpoints" / "1" / "params" / "manifest.ocdbt")
    with pytest.raises(ValueError, match="has no intact checkpoint of step 1"):
        reader.chosen_step("newest", 1)


# ------------------------------------------------------------------ no room


def test_a_full_disk_is_reported_and_earlier_checkpoints_are_intact(tmp_path, monkeypatch):
    checkpoints = Checkpoints(str(tmp_path))
    save(checkpoints, 1)

    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints_module, "write_checksums", no_room)
    checkpoints.save(make_state(2), {"number": 2}, {})
    with pytest.raises(
        ValueError, match=r"step 2 could not be written .*No space left.* intact: \[1\]"
    ):
        checkpoints.close()
    monkeypatch.undo()
    again = Checkpoints(str(tmp_path))
    assert again.newest_good_step() == 1
    assert_restores(again, 1)
    again.close()


def test_a_folder_that_disappears_is_reported_by_save_or_wait(tmp_path, monkeypatch):
    checkpoints = Checkpoints(str(tmp_path))
    save(checkpoints, 1)
    # Threads of orbax wait this many seconds for the save that failed, also when Python exits.
    monkeypatch.setattr("orbax.checkpoint._src.multihost.multihost._DEFAULT_BARRIER_TIMEOUT", 1)
    folder = tmp_path / "checkpoints"
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("a file in its place")
    with pytest.raises(ValueError, match="The checkpoint of step 2 could not be written to"):
        save(checkpoints, 2)
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    again = Checkpoints(str(tmp_path))
    assert again.newest_good_step() == 1
    again.close()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file/run/checkpoints cannot be created"):
        Checkpoints(str(tmp_path / "file" / "run"))


# ------------------------------------------------------------------ which one is used


def save_scores(workdir, values):
    checkpoints = Checkpoints(str(workdir), best_metric="f1", keep=9)
    for step, value in values.items():
        save(checkpoints, step, **({} if value is None else {"f1": value}))
    return checkpoints


def test_the_best_is_chosen_of_equals_the_first_and_a_corrupt_one_is_skipped(tmp_path, warnings):
    values = {1: 0.5, 2: 0.9, 3: None, 4: 0.9, 5: 0.1, 6: float("nan")}
    checkpoints = save_scores(tmp_path, values)
    assert checkpoints.chosen_step("best") == 2
    assert checkpoints.chosen_step("newest") == 6
    assert checkpoints.metrics_of(2) == {"f1": 0.9}
    assert checkpoints.metrics_of(3) == {}
    checkpoints.close()
    flip_a_bit(tmp_path / "checkpoints" / "2" / "params" / "manifest.ocdbt")
    reader = Checkpoints(str(tmp_path), best_metric="f1", read_only=True)
    assert reader.chosen_step("best") == 4
    assert "Checkpoint 2 is corrupt" in warnings()
    reader.close()
