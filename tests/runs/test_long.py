"""The end of a run of ten million steps, reached by moving a checkpoint there."""

import contextlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.listener import Listener
from bert_jax.training.metrics import Totals
from bert_jax.training.open import open_run
from bert_jax.training.resume import checkpoint_meta, restore_or_init
from bert_jax.training.train import train
from bert_jax.training.workdir import save_to_workdir

STEPS, LEFT = 10_000_000, 20
PEAK, WARMUP = 1e-3, 1000


@pytest.fixture(scope="module")
def run(make_run):
    """A run whose last steps are trained, with a checkpoint in the middle of them."""
    run = make_run(
        steps=STEPS,
        optimizer__warmup=str(WARMUP),
        optimizer__learning_rate=PEAK,
        checkpoint__every="10",
        log__every="1",
        eval__every="10",
    )
    opened = open_run(run.config, str(run.workdir))
    with contextlib.closing(Checkpoints(str(run.workdir))) as checkpoints:
        state, _ = restore_or_init(opened, checkpoints, Listener())
        start = STEPS - LEFT

        def moved(leaf):
            is_counter = leaf.shape == () and leaf.dtype == jnp.int32
            return jnp.full_like(leaf, start) if is_counter else leaf

        state = state.replace(
            step=moved(state.step), opt_state=jax.tree.map(moved, state.opt_state)
        )
        checkpoints.save(state, checkpoint_meta(opened, Totals(None), False), {})
    save_to_workdir(opened)
    result = train(run.config, str(run.workdir))
    last, is_complete = result.state, not result.stopped_by
    assert is_complete and int(last.step) == STEPS
    return run


def test_rates_and_steps_are_exact_at_the_end(run):
    """Against the closed form in double precision: float32 has whole numbers up to 16.7 million."""
    lines = [line for line in run.metrics() if line["split"] == "train"]
    steps = [line["step"] for line in lines]
    assert steps == list(range(STEPS - LEFT + 1, STEPS + 1))
    expected = [PEAK * (STEPS - (step - 1)) / STEPS for step in steps]
    np.testing.assert_allclose([line["learning_rate"] for line in lines], expected, rtol=1e-6)
    assert all(line["update_norm"] > 0 for line in lines)
    assert len({line["loss"] for line in lines}) == LEFT  # other batches, masks and dropout


def test_batches_are_those_of_the_formula_on_resumption(run):
    whole = run.arrays(STEPS)
    for path in run.checkpoints.glob(f"{STEPS}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = run.metrics()
    train(run.config, str(run.workdir))
    again = run.arrays(STEPS)
    assert whole.keys() == again.keys()
    assert all(np.array_equal(whole[name], again[name]) for name in whole)
    assert run.metrics() == before


def test_files_have_the_size_of_what_was_trained(run):
    files = [path for path in run.workdir.glob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000
